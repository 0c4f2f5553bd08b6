"""What training processes and the platform must agree on: file names, formats, the home."""
