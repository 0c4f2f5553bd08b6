"""The server around the application: its settings, access control, the token, static files."""
