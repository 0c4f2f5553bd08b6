"""From files, dictionaries and overrides to plain values, each with the place it came from."""
