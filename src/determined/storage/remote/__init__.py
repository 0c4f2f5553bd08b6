"""Checkpoints in object stores, through fsspec.

Read `storage.py` first; `clouds.py` has the kinds of stores, `retry.py` repeats failed calls.
"""
