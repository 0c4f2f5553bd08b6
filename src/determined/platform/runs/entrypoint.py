"""From an experiment's `entrypoint` to the command that runs it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

_SHELL = re.compile(r"[;&|$`()<>*?\n]")
_PYTHON = re.compile(r"(.*/)?python[0-9.]*")
_TRIAL_CLASS = re.compile(r"[a-zA-Z0-9_.]+:[a-zA-Z0-9_.]+")


def is_trial_class(entrypoint: object) -> bool:
    """Whether it has the old form `module:Class`."""
    return isinstance(entrypoint, str) and _TRIAL_CLASS.fullmatch(entrypoint) is not None


def command_for(entrypoint: str | Sequence[str], interpreter: str) -> tuple[str, ...]:
    """Return the command: a list as it is, a trial class through the launcher, else by a shell."""
    if isinstance(entrypoint, str):
        if is_trial_class(entrypoint):
            launcher = (interpreter, "-m", "determined.launch.torch_distributed")
            return (*launcher, "--", "--trial", entrypoint)
        return ("sh", "-c", entrypoint)
    is_list = isinstance(entrypoint, list | tuple) and bool(entrypoint)
    if is_list and all(isinstance(word, str) for word in entrypoint):
        return tuple(entrypoint)
    raise ValueError(
        "entrypoint: expected a command as a string or a list of strings, or module:Class, "
        f"got {entrypoint!r}."
    )


def script_of(entrypoint: str | Sequence[str]) -> str | None:
    """Return the script that a plain command runs, if it is a relative path; else None.

    Whatever a shell would change, and whatever is not `python file.py`, may be anything.
    """
    if isinstance(entrypoint, str):
        if _SHELL.search(entrypoint):
            return None
        try:
            words = shlex.split(entrypoint)
        except ValueError:
            return None
    else:
        words = list(entrypoint)
    if len(words) < 2 or not _PYTHON.fullmatch(words[0]):
        return None
    script = next((word for word in words[1:] if word not in ("-u", "-B", "-O")), "")
    is_relative = script.endswith(".py") and not script.startswith(("-", "/", "~", ".."))
    return script if is_relative else None
