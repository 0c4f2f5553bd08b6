"""Checkpoints of training: what they hold, how they are written, read, kept and loaded.

Not here: where the bytes live (`determined.storage`), and what the files are called
(`determined._contracts.checkpoint_layout`). Read `checkpoints.py` first, which decides about saves,
and `resuming/resume.py` for the way back.
"""
