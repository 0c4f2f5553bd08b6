"""The user's source files: which to copy, which to ignore, how to import them again.

Where copies are kept is decided by the platform and by checkpoints. Read `user_code.py` first.
"""
