"""A run on disk and its processes: folder, entrypoint, keeper, launchers, warm starts."""
