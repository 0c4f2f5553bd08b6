"""Check that a user's script, stopped and resumed, gives the same result as uninterrupted.

    python -m determined.pytorch.verify_resume [--batches N] [--cut K] train.py [ARGUMENTS...]

The script runs several times, each in a process of its own: N batches at once, then the same in
parts. It is stopped as a preemption would, at a point of each kind that it has: between batches, in
a batch, in a hook, in a validation, at a save (or once, after K batches). Samples, batches,
metrics, random states, weights, optimizers, schedulers and callbacks are compared bit by bit. Exit
status 0: equal; 1: the first difference is named, with its batch and the stage that made it.

`_compare.py` runs the parts, `_part.py` is one of them and `_trace.py` what it writes down;
`_interruptions.py` plans where to stop, `_messages.py` says what differs.
"""

from determined.pytorch.verify_resume._compare import Report, verify_resume

__all__ = ["Report", "verify_resume"]
