"""The server around the application: access control, limits of connections, static files."""
