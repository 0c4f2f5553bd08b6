"""Queries of the store: they cannot write, and do not block the writer.

`reader.py` has experiments, trials, runs and checkpoints, and its parts are in the other files.
Read it first, then `connections.py` (one read-only connection per thread).
"""
