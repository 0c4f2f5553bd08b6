"""Checkpoints as folders of a file system.

Read `storage.py` first; `hidden.py` manages stages, trash and locks beside the checkpoints.
"""
