"""Check that a user's script, stopped and resumed, gives the same result as uninterrupted.

    python -m determined.pytorch.verify_resume [--batches N] [--cut K] train.py [ARGUMENTS...]

The script runs three times, each in a process of its own: N batches at once; K batches, where it is
stopped as a preemption would; and the rest, from the checkpoint. Samples, batches, metrics,
learning rates, random states, weights and optimizers are compared bit by bit. Exit status 0: equal;
1: the first difference is named, with its batch and the stage of training that made it.

`_compare.py` runs the parts and words the verdict; `_trace.py` is what each part writes down.
"""

from determined.pytorch.verify_resume._compare import Report, verify_resume

__all__ = ["Report", "verify_resume"]
