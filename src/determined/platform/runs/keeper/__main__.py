"""`python -m determined.platform.runs.keeper RUN_FOLDER [DESCRIPTOR [NOTE [disown]]]`: keep a run.

DESCRIPTOR is inherited and holds the run's lock; without it we take the lock ourselves. NOTE is a
line for the log. With `disown` a child of ours keeps the run, and this process exits at once. The
launcher runs this file by its path, which is faster: see `_import_only_what_is_needed`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any


def main(argv: list[str], execute: Callable[..., Any] = os.execvpe) -> int:
    """Keep a run; `execute` turns the entrypoint's process into the command."""
    from determined.platform.runs.folder import RunFolder
    from determined.platform.runs.keeper._keeper import Keeper

    if len(argv) not in (1, 2, 3, 4):
        sys.stderr.write(f"{__doc__}\n")
        return 2
    if argv[3:] and os.fork():
        return 0
    folder = RunFolder(os.path.abspath(argv[0]))  # noqa: PTH100
    alive = int(argv[1]) if len(argv) > 1 else folder.try_lock()
    if alive is None:
        sys.stderr.write(f"{folder.path} is already handled by another process.\n")
        return 1
    os.set_inheritable(alive, False)  # nothing that we start may hold the lock
    if len(argv) > 1:
        _close_others(alive)
    else:
        folder.mark_started()
    os.chdir("/")  # so that no directory is in use that may be removed or unmounted
    Keeper(folder, execute, note="".join(argv[2:3])).run()
    return 0


def _close_others(alive: int) -> None:
    """Close descriptors that the launcher had inherited itself."""
    os.closerange(3, alive)
    os.closerange(alive + 1, os.sysconf("SC_OPEN_MAX"))


def _import_only_what_is_needed() -> None:
    """Replace the package's root, whose imports take longer than everything we do."""
    from types import ModuleType

    root = ModuleType("determined")
    root.__path__ = [__file__.rsplit(os.sep, 4)[0]]
    sys.modules["determined"] = root


if __name__ == "__main__":
    if not __package__:
        _import_only_what_is_needed()
    sys.exit(main(sys.argv[1:]))
