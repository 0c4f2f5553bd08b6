"""Import code from a directory in isolation, then remove it from `sys.modules` again."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

_in_use = threading.Lock()
_NEVER_HIDDEN = frozenset({"__main__", "__mp_main__", "determined"}) | sys.stdlib_module_names


@contextlib.contextmanager
def import_from_path(
    path: str | os.PathLike[str], *more_paths: str | os.PathLike[str]
) -> Iterator[None]:
    """Resolve imports from `path` first, then from `more_paths`, while the `with` block runs.

    Modules already imported from the working directory, or under a name that one of the paths also
    has, are hidden meanwhile and come back afterwards. Modules loaded from the paths leave
    `sys.modules` at the end: objects that you keep stay usable, but an import that they run later
    looks elsewhere. No `__pycache__` is written. Nested or concurrent use raises RuntimeError,
    because `sys.path` and `sys.modules` belong to the whole process.

    ```python
    with import_from_path(checkpoint_path / "code"):
        import model_def
    trial_class = model_def.MyTrial
    ```
    """
    if not _in_use.acquire(blocking=False):
        raise RuntimeError("import_from_path cannot be nested, nor used by two threads at once.")
    try:
        with _imports_first([Path(entry).resolve() for entry in (path, *more_paths)]):
            yield
    finally:
        _in_use.release()


@contextlib.contextmanager
def _imports_first(paths: list[Path]) -> Iterator[None]:
    old_path, old_bytecode = list(sys.path), sys.dont_write_bytecode
    hidden_names = {name for name in _top_level_names() if _must_hide(name, paths)}
    hidden = _pop_modules(hidden_names)
    before = dict(sys.modules)
    sys.path[:0] = map(str, paths)
    sys.dont_write_bytecode = True
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = old_path
        sys.dont_write_bytecode = old_bytecode
        for name, module in sys.modules.copy().items():  # in one step: other threads import
            if before.get(name) is not module and _lies_below(module, paths):
                sys.modules.pop(name, None)
        # A hidden package may have been imported a second time from its old location.
        _pop_modules(hidden_names)
        sys.modules.update(hidden)
        for path in paths:
            sys.path_importer_cache.pop(str(path), None)


def _top_level_names() -> set[str]:
    return {name.partition(".")[0] for name in list(sys.modules)} - _NEVER_HIDDEN


def _must_hide(name: str, paths: list[Path]) -> bool:
    for path in paths:
        if (path / f"{name}.py").is_file() or (path / name / "__init__.py").is_file():
            return True
    working_directory = Path.cwd()
    on_path = any(entry == "" or Path(entry) == working_directory for entry in sys.path)
    locations = _locations(sys.modules.get(name))
    # Only what was imported *through* the working directory: a virtual environment that happens to
    # lie below it stays.
    return on_path and any(location.parent == working_directory for location in locations)


def _pop_modules(names: set[str]) -> dict[str, ModuleType]:
    found = [name for name in list(sys.modules) if name.partition(".")[0] in names]
    return {name: sys.modules.pop(name) for name in found}


def _locations(module: ModuleType | None) -> list[Path]:
    """The file of a module, or the directories of a package."""
    try:
        directories = [Path(str(entry)) for entry in getattr(module, "__path__", None) or ()]
    except Exception:  # some packages put unusual objects into sys.modules
        return []
    file = getattr(module, "__file__", None)
    if directories or not isinstance(file, str):
        return [directory.absolute() for directory in directories]
    return [Path(file).absolute()]


def _lies_below(module: ModuleType, paths: list[Path]) -> bool:
    locations = [location.resolve() for location in _locations(module)]
    return any(location.is_relative_to(path) for location in locations for path in paths)
