"""Where the interpreter of a command is, and whether it is ours."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from determined.platform.runs.warm.program import Program


def locate(program: Program, environment: Mapping[str, str]) -> Program | None:
    """Return a program with the path of its interpreter; None if that is not ours.

    Ours may have several names in its folder: python, python3, python3.12.
    """
    found = shutil.which(program.command[0], path=environment.get("PATH", os.defpath))
    if found is None:
        return None
    path, own = Path(found), Path(sys.executable)
    is_own = path.parent == own.parent and path.resolve() == own.resolve()
    return program._replace(executable=found) if is_own else None
