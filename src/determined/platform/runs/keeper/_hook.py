"""The startup hook of an experiment's code: a shell script that is sourced before the entrypoint.

Hooks were written for containers, which are thrown away. Here, what `pip` installs goes into a
virtual environment of the experiment, which sees everything that the interpreter of the run sees.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

HOOK = "startup-hook.sh"
FOLDER_VARIABLE = "DET_HOOK_VENV"
"""Where the virtual environment of the experiment is, for all of its runs."""
_FOLDER = "hook_venv"
# Sourced, so that the entrypoint, which replaces the shell, gets what it exports. One at a time:
# two runs of pip would get into each other's way.
_SOURCE_HOOK = f"""set -e
if command -v flock >/dev/null 2>&1; then exec 9>"${FOLDER_VARIABLE}/lock"; flock 9; fi
. "./{HOOK}"
exec 9>&-
set +e
exec "$@"
"""
# A virtual environment that is made from another one sees the base interpreter's packages only.
_CREATE = """
import pathlib, site, sys, venv
folder = pathlib.Path(sys.argv[1])
venv.create(folder, system_site_packages=True, symlinks=True)
(packages,) = folder.glob("lib/python*/site-packages")
seen = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
lines = [f"import site; site.addsitedir({place!r})" for place in seen]
(packages / "creator.pth").write_text("\\n".join(lines) + "\\n")
for name in ("pip", "pip3"):
    script = folder / "bin" / name
    script.write_text('#!/bin/sh\\nexec "$(dirname "$0")/python" -m pip "$@"\\n')
    script.chmod(0o755)
"""


def with_startup_hook(
    argv: tuple[str, ...], environment: dict[str, str], cwd: Path
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the command that sources the code's startup hook first, if there is one.

    Also returns its environment. Raises OSError if its virtual environment cannot be made.
    """
    if not (cwd / HOOK).is_file():
        return argv, environment
    import shutil  # few runs have a hook, and each has a keeper

    is_python = argv[0].startswith("/") and Path(argv[0]).name.startswith("python")
    path = environment.get("PATH", os.defpath)
    interpreter = argv[0] if is_python else shutil.which("python3", path=path) or sys.executable
    folder = _virtual_environment(interpreter, environment, cwd)
    if is_python:
        argv = (str(folder / "bin" / "python"), *argv[1:])
    shell = shutil.which("bash", path=path) or "/bin/sh"
    changed = {
        "PATH": f"{folder / 'bin'}{os.pathsep}{path}",
        "VIRTUAL_ENV": str(folder),
        "PYTHONUSERBASE": str(folder),
        FOLDER_VARIABLE: str(folder),
    }
    return (shell, "-c", _SOURCE_HOOK, HOOK, *argv), environment | changed


def _virtual_environment(interpreter: str, environment: dict[str, str], cwd: Path) -> Path:
    """Return the experiment's own, made on first use, or one beside `cwd` where it is elsewhere."""
    wanted = Path(environment.get(FOLDER_VARIABLE, ""))
    folder = wanted if wanted.is_absolute() and wanted.parent.is_dir() else cwd.parent / _FOLDER
    if folder.is_dir():
        return folder
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory(prefix=f".{_FOLDER}-", dir=folder.parent) as scratch:
        made = Path(scratch, "made")
        command = [interpreter, "-c", _CREATE, str(made)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=scratch)
        if done.returncode:
            raise OSError(f"{interpreter} could not make {folder}: {done.stderr.strip()[-300:]}")
        with contextlib.suppress(OSError):  # another trial was first
            made.rename(folder)
    return folder
