"""`hvd`: Horovod, imported when something of it is first used.

The training library needs no Horovod: ranks talk through `torch.distributed`. Trials that import
`hvd` at their top can run here as long as they do not use it, or where Horovod is installed.
"""

from __future__ import annotations

import importlib
from typing import Any


class _Horovod:
    """Stands for the module `horovod.torch`."""

    _framework = "torch"

    def require_horovod_type(self, horovod_type: str, reason: str = "") -> None:
        """Choose `horovod.<horovod_type>`; `reason` is accepted as before."""
        self._framework = horovod_type

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            module = importlib.import_module(f"horovod.{self._framework}")
        except ImportError as error:
            raise ImportError(
                f"hvd.{name} needs Horovod, which cannot be imported here ({error}). Ranks need no "
                "Horovod: `context.distributed` and torch.distributed tell rank and size."
            ) from error
        return getattr(module, name)


hvd: Any = _Horovod()
