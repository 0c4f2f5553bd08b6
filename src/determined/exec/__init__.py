"""Programs that the platform starts inside a task.

Not for import by training code, which calls `determined.pytorch` itself. Read `harness.py` first.
"""
