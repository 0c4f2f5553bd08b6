"""Of which classes a checkpoint may have objects made: Python's own, yours by name, the trial's.

A class is looked up in the running program and never imported for a file, functions are never
called, and a class counts only where it is defined, not where it is imported to. Those that the
configuration names are imported: there it is the user who asks.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import decimal
import functools
import importlib
import pathlib
import random
import sys
import types
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from determined._code.trial_code import is_installed, is_own_module
from determined.pytorch._checkpoint.files.encoding import class_name

# Files may name them, as the factory of a `defaultdict` say, but have none made by a call: an
# argument of some is a size.
NEVER_CALLED: list[type] = [
    *(bool, int, float, complex, str, bytes, bytearray, object),
    *(list, tuple, dict, set, frozenset),
    *(collections.Counter, collections.OrderedDict, collections.defaultdict, collections.deque),
    *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, np.float32, np.float64, np.complex64, np.complex128),
    *(torch.Tensor, nn.Parameter, nn.Buffer),
]
_HARMLESS: list[type] = [
    *NEVER_CALLED,
    *(
        range,
        slice,
        datetime.date,
        datetime.time,
        datetime.datetime,
        datetime.timedelta,
        datetime.timezone,
    ),
    *(pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath),
    *(decimal.Decimal, uuid.UUID, random.Random),
    *(functools.partial, types.SimpleNamespace, argparse.Namespace),
]
_BY_NAME = {class_name(kind): kind for kind in _HARMLESS}


def check_classes(classes: Any) -> None:
    """Refuse what is no list of classes."""
    if not isinstance(classes, (list, tuple, set, frozenset)):
        raise TypeError(f"`trusted_classes` must be a list of classes, got {classes!r}.")
    for kind in classes:
        if not isinstance(kind, type):
            raise TypeError(f"`trusted_classes` must hold classes only, got {kind!r}.")


class Trust:
    """What may be made of the objects in one checkpoint.

    `own_code` is the folder with the code of the trial if its classes are trusted; `anything`, if
    the user trusts the file as a whole.
    """

    def __init__(self, own_code: pathlib.Path | None = None, anything: bool = False) -> None:
        self._own_code = own_code
        self._anything = anything

    def find(self, name: str) -> type | None:
        """Return the class of a name that a file has, None unless objects of it may be made."""
        if name in _BY_NAME:
            return _BY_NAME[name]
        module, _, qualified_name = name.partition(":")
        if self._anything:
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
        kind = _defined_in(module, qualified_name)
        return kind if kind is not None and self.allows(kind) else None

    def allows(self, kind: type) -> bool:
        """Say whether objects of a class may be made."""
        return (
            self._anything
            or kind in torch.serialization.get_safe_globals()  # also those of `trusted_classes`
            or kind.__module__ == "torch.return_types"
            or (issubclass(kind, nn.Module) and kind.__module__.startswith("torch.nn.modules."))
            or (self._own_code is not None and _is_in(kind.__module__, self._own_code))
        )


def _defined_in(module_name: str, qualified_name: str) -> type | None:
    """Find a class in the running program; importing anything for it would run code."""
    found: Any = sys.modules.get(module_name)
    for name in qualified_name.split("."):
        found = getattr(found, "__dict__", {}).get(name)
    if not isinstance(found, type):
        return None
    is_there = (found.__module__, found.__qualname__) == (module_name, qualified_name)
    return found if is_there else None


def _is_in(module_name: str, folder: pathlib.Path) -> bool:
    if module_name == "__main__":
        return True
    file = getattr(sys.modules.get(module_name), "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py"):
        return False
    path = pathlib.Path(file).resolve()
    return path.is_relative_to(folder.resolve()) and not is_installed(path)


# What a user is told.


def own_classes(names: Sequence[str]) -> list[str] | None:
    """Return the classes as a script would write them, None unless all are of the user's code."""
    written = [_as_written(name) for name in names]
    found = [name for name in written if name is not None]
    return found if len(found) == len(names) else None


def how_to_trust(classes: Sequence[str]) -> str:
    """Return what has objects of these classes loaded, in a script and in a configuration."""
    written = [name.replace(":", ".").removeprefix("__main__.") for name in classes]
    named = [name if ":" in name else ":".join(name.rpartition(".")[::2]) for name in classes]
    return (
        f"pytorch.init(trusted_classes=[{', '.join(written)}]), or in the configuration of an "
        f"experiment trusted_classes: [{', '.join(named)}]"
    )


def _as_written(name: str) -> str | None:
    module_name, _, qualified_name = name.rpartition("." if ":" not in name else ":")
    if _defined_in(module_name, qualified_name) is None or not is_own_module(module_name):
        return None
    return qualified_name if module_name == "__main__" else f"{module_name}.{qualified_name}"


# Those that a configuration names.


@contextlib.contextmanager
def trusting_configured(config: Mapping[str, Any] | None) -> Iterator[None]:
    """Import the classes that `trusted_classes` of a configuration names, and trust them."""
    names = (config or {}).get("trusted_classes") or ()
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise TypeError(
            "`trusted_classes` of the configuration must be a list of names such as "
            f"module:Class, got {names!r}."
        )
    registered = torch.serialization.get_safe_globals()
    classes: list[Any] = [kind for kind in map(_import_class, names) if kind not in registered]
    with torch.serialization.safe_globals(classes):
        yield


def _import_class(name: str) -> type:
    module_name, _, qualified_name = name.rpartition(":" if ":" in name else ".")
    try:
        found: Any = importlib.import_module(module_name)
        for part in qualified_name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as e:
        raise ValueError(
            f"`trusted_classes` of the configuration names {name!r}, which cannot be imported: "
            f"{e}. Write it as module:Class."
        ) from e
    if not isinstance(found, type):
        raise TypeError(
            f"`trusted_classes` of the configuration must name classes, but {name!r} is a "
            f"{type(found).__name__}."
        )
    return found
