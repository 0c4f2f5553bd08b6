"""The user's source files: which to copy, which to ignore, how to import them again."""
