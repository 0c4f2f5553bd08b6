"""Which directory holds a trial's code, and how to import the class from a copy of it."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TrialCode:
    """What a checkpoint keeps of a trial's code.

    `import_root`, a directory relative to `source`, and `spec`, of the form `module:Class`, are
    None where the class cannot be imported from a copy: it was typed into a notebook, say, or it
    belongs to an installed package.
    """

    source: Path
    import_root: str | None = None
    spec: str | None = None


def find_trial_code(cls: type) -> TrialCode:
    """Find the code of a trial class."""
    return find_code(cls.__module__, cls.__qualname__)


def find_code(module_name: str, qualified_name: str) -> TrialCode:
    """Find the code of something that a module defines.

    The source is the working directory when it holds the module, as it does for `python train.py`.
    Otherwise, or when the working directory is no project's, it is the directory that the module's
    imports begin in.
    """
    working_directory = Path.cwd()
    location = _module_location(module_name)
    if location is None:
        return TrialCode(working_directory)
    root, name = location
    inside = root.is_relative_to(working_directory)
    source = root if not inside or is_shared_folder(working_directory) else working_directory
    return TrialCode(source, root.relative_to(source).as_posix(), f"{name}:{qualified_name}")


def _module_location(module_name: str) -> tuple[Path, str] | None:
    """Return the directory that a module is imported from, and its name there."""
    module = sys.modules.get(module_name)
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py"):
        return None
    path, name = Path(os.path.normpath(Path(file).absolute())), module_name
    if module_name == "__main__":
        path = path.resolve()  # as Python does to find the modules beside a script
        spec = getattr(module, "__spec__", None)  # of `python -m package.module`
        name = path.stem if spec is None else spec.name
    parts = name.split(".")
    if path.name == "__init__.py":
        parts.append("__init__")
    root = path.parents[len(parts) - 1] if len(parts) <= len(path.parents) else path.parent
    if path != root.joinpath(*parts).with_suffix(".py") or is_installed(path):
        return None
    return root, name


def is_own_module(module_name: str) -> bool:
    """Whether a module of the running program belongs to the user, not to a package."""
    if module_name == "__main__":
        return True
    file = getattr(sys.modules.get(module_name), "__file__", None)
    return isinstance(file, str) and file.endswith(".py") and not is_installed(Path(file))


def is_installed(path: Path) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    import sysconfig  # slow to import

    locations = (sysconfig.get_path(key) for key in ("stdlib", "purelib", "platlib"))
    return any(path.is_relative_to(location) for location in locations)


def is_shared_folder(directory: Path) -> bool:
    """Whether a directory is the home or the temporary directory, or above: it holds anything."""
    locations = [Path(tempfile.gettempdir()).resolve()]
    with contextlib.suppress(RuntimeError):  # there is no home directory
        locations.append(Path.home())
    return any(location.is_relative_to(directory) for location in locations)
