"""Which scripts are recorded automatically, as what, and how their end is described."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from determined._os.notebook import in_ipython
from determined.errors import InvalidHP

TRACKING_VARIABLE = "DET_TRACKING"
_OFF = ("off", "0", "false", "no")


def is_tracked(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether what this process trains is worth recording.

    Tests and one-liners are not, unless `DET_TRACKING=on`.
    """
    setting = environment.get(TRACKING_VARIABLE, "").strip().lower()
    if setting:
        return setting not in _OFF
    return "PYTEST_CURRENT_TEST" not in environment and program_name() is not None


def program_name() -> str | None:
    """The name of the script or module that runs; None for `python -c` and the like."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != "__main__":
        return str(spec.name).removesuffix(".__main__")
    file = _file_of(main)
    if file is not None:
        return Path(file).name
    return "notebook" if in_ipython() else None


def _file_of(main: ModuleType | None) -> str | None:
    file = getattr(main, "__file__", None)
    return None if file is None else str(file)


def command_line() -> list[str]:
    """How the program was started."""
    given = list(getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv])
    return [Path(given[0]).name, *given[1:]]


def how_it_ended(error: BaseException | None, signal_number: int | None) -> tuple[str, str]:
    """The state of a run, and the reason in one line."""
    if signal_number is not None:
        return "CANCELED", f"stopped by {signal.Signals(signal_number).name}"
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return "COMPLETED", "finished"
    if isinstance(error, KeyboardInterrupt):
        return "CANCELED", "interrupted"
    if isinstance(error, InvalidHP):
        return "COMPLETED", f"invalid hyperparameters: {error.msg}"
    if isinstance(error, SystemExit):
        return "ERROR", f"left with status {error.code}"
    return "ERROR", f"{type(error).__name__}: {error}".strip().splitlines()[0][:500]
