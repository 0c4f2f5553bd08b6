"""Checkpoints of training: what they hold, how they are written, read, kept and loaded.

Not here: where the bytes live (`determined.storage`). Read `state.py` first, then `saver.py`.
"""
