"""Older forms of the original's API. Their public names stay where users import them from."""
