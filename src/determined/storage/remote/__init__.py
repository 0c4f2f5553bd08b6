"""Checkpoints in object stores, through fsspec; `storage.py` first."""
