"""Train some batches of a run again, exactly, and compare them with what is recorded.

    python -m determined.pytorch.replay CHECKPOINTS --batches A:B [--with module:Callback]...

`_running.py` replays from a folder of checkpoints; on the platform, `det trial replay` does it.
`_replaying.py` is what happens inside the training process, `_stages.py` and `_lockstep.py` what
two runs do that are compared.
"""

from determined.pytorch.replay._running import replay

__all__ = ["replay"]
