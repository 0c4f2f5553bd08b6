"""Which distributed framework the launcher announced in the environment."""

from __future__ import annotations

import os

_OFF = frozenset({"", "0", "false", "no", "off"})


def is_switched_on(variable: str) -> bool:
    """Whether an environment variable is set to anything but an empty or negative word."""
    return os.environ.get(variable, "").strip().lower() not in _OFF


class _DistributedBackend:
    """The launchers set one of these variables in every process that they start."""

    HOROVOD = "USE_HOROVOD"
    DEEPSPEED = "USE_DEEPSPEED"
    TORCH = "USE_TORCH_DISTRIBUTED"

    def use_horovod(self) -> bool:
        return is_switched_on(self.HOROVOD)

    def use_deepspeed(self) -> bool:
        return is_switched_on(self.DEEPSPEED)

    def use_torch(self) -> bool:
        return is_switched_on(self.TORCH)
