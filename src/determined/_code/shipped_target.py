"""Send a function or class to other processes: by value from a script or notebook, else by name.

A folder gets a copy of the code around it, as for checkpoints, and two files:

    det_target.pkl    what `load_target` reads
    det_target.py     its source, for people
"""

from __future__ import annotations

import contextlib
import inspect
import pickle
import sys
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from determined._code.trial_code import find_code
from determined._code.user_code import copy_user_code

_PICKLE, _SOURCE = "det_target.pkl", "det_target.py"


def name_of(target: Callable[..., Any]) -> str:
    """Return how people call a function, a class or a callable object."""
    return str(getattr(target, "__qualname__", type(target).__qualname__)).rpartition(".")[2]


def takes_context(function: Callable[..., Any]) -> bool:
    """Whether a function takes a context beside the hyperparameters, and reports by itself."""
    parameters = inspect.signature(function).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in positional if p.default is p.empty]
    is_callable = all(p.kind != p.KEYWORD_ONLY or p.default is not p.empty for p in parameters)
    if not is_callable or not positional or len(needed) > 2:
        raise ValueError(
            f"{name_of(function)} must take one argument, the hyperparameters, or two, these and a "
            f"context that reports metrics; its signature is {inspect.signature(function)}."
        )
    return len(needed) == 2


def ship_target(target: Callable[..., Any], folder: Path) -> str:
    """Fill a new folder with a target and its code; return where in it imports begin."""
    import cloudpickle  # loads much

    content: bytes
    try:
        content = cloudpickle.dumps(target)
    except Exception as error:  # whatever `__reduce__` of a user's object raises
        raise ValueError(
            f"{name_of(target)} uses something that cannot be sent to another process ({error}). "
            "Create it inside of the function instead."
        ) from error
    named = target if hasattr(target, "__qualname__") else type(target)
    code = find_code(named.__module__, named.__qualname__)
    copy_user_code(code.source, folder)
    (folder / _PICKLE).write_bytes(content)
    with contextlib.suppress(OSError, TypeError):  # typed into an interpreter without history
        (folder / _SOURCE).write_text(textwrap.dedent(inspect.getsource(target)), "utf-8")
    return code.import_root or "."


def load_target(folder: Path, import_root: str) -> Any:
    """Return the target of a folder, in a process of its own.

    What a script or notebook defined belongs to `__main__`; here that is an empty module, as this
    program's own would pass for the user's code.
    """
    sys.path.insert(0, str(folder / import_root))
    sys.modules["__main__"] = types.ModuleType("__main__")
    return pickle.loads((folder / _PICKLE).read_bytes())
