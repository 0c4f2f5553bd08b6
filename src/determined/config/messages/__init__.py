"""What authors of configurations read: problems with lines, and notes."""
