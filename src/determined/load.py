"""Find a trial class by its name."""

from __future__ import annotations

import functools
import importlib
import sys

from determined._legacy.trial_context import LegacyTrial


def trial_class_from_entrypoint(entrypoint_spec: str) -> type[LegacyTrial]:
    """Import the class named by `"package.module:Outer.Inner"`.

    The module is imported anew even if it was imported before, so it may come from another place
    now (see `determined.import_from_path`).
    """
    module_name, colon, qualified_name = entrypoint_spec.partition(":")
    if not (module_name and colon and qualified_name):
        raise ValueError(
            f"`entrypoint_spec` must look like 'package.module:ClassName', got {entrypoint_spec!r}."
        )
    if module_name == "__main__":
        raise ValueError(
            f"{entrypoint_spec!r} names a class of a script, and which script is not known here. "
            "Pass the class itself, or move it into a module of its own."
        )
    module = _import_anew(module_name)
    found: object = functools.reduce(getattr, qualified_name.split("."), module)
    assert isinstance(found, type), f"{entrypoint_spec!r} is {found!r}, not a class."
    assert issubclass(found, LegacyTrial), (
        f"{entrypoint_spec!r} is not a trial: derive it from determined.pytorch.PyTorchTrial."
    )
    return found


def _import_anew(name: str) -> object:
    previous = sys.modules.pop(name, None)
    try:
        return importlib.import_module(name)
    except BaseException:
        if previous is not None:
            sys.modules[name] = previous
        raise
