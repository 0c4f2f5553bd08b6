"""Training on several ranks: the process group, DDP, FSDP, stopping and ending together.

Not here: the messages themselves (`determined.core`). Read `process_group.py` first.
"""
