"""A home on disk: creation, code snapshots, archives, disk usage, import and rebuild."""
