"""Libraries that stand between a process and the system (LD_PRELOAD), compiled when needed."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="preloaded-")


@functools.cache
def compiled(name: str, source: str, *options: str) -> Path:
    """Compile C to a shared library; skip the test where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("standing between a process and the system needs a C compiler")
    folder = Path(_folder().name)
    (folder / f"{name}.c").write_text(source)
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", f"{name}.so", f"{name}.c", "-ldl"]
    command += options
    subprocess.run(command, cwd=folder, check=True)
    return folder / f"{name}.so"
