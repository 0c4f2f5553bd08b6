"""Checkpoints of training: what they hold, how they are written, read, kept and loaded.

Not here: where the bytes live (`determined.storage`), and what the files are called
(`determined._checkpoint_layout`). Read `checkpoints.py` first, which decides about saves, and
`resume.py` for the way back.
"""
