"""Queries: they cannot write, and do not block the writer; `reader.py` first."""
