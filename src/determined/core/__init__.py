"""Services of a training process: ranks, checkpoints, metrics, preemption. No framework in here.

Nothing below imports torch at import time; the training library sits in `determined.pytorch`.
Start reading at `_context.py`.
"""
