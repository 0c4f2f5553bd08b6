"""Checkpoints as folders of a file system; `storage.py` first."""
