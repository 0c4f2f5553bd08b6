"""Importing from a directory and forgetting it afterwards."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined import import_from_path


@pytest.fixture
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory on sys.path with modules `det_a` (imports `det_b`) and `det_b`."""
    directory = tmp_path / "cwd"
    write(directory, det_a="import det_b\nwhere = 'cwd'", det_b="where = 'cwd'")
    monkeypatch.chdir(directory)
    monkeypatch.syspath_prepend("")
    yield directory
    for name in [name for name in sys.modules if name.startswith("det_")]:
        del sys.modules[name]


def write(directory: Path, **modules: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in modules.items():
        (directory / f"{name}.py").write_text(text)
    return directory


def load(name: str) -> str:
    return str(importlib.import_module(name).where)


def test_imports_resolve_from_the_path_first(working_directory: Path, tmp_path: Path) -> None:
    old = importlib.import_module("det_a")
    code = write(tmp_path / "code", det_a="where = 'code'")
    with import_from_path(code):
        assert load("det_a") == "code"
    assert importlib.import_module("det_a") is old


def test_hidden_modules_see_the_path_too(working_directory: Path, tmp_path: Path) -> None:
    importlib.import_module("det_a")
    code = write(tmp_path / "code", det_b="where = 'code'")
    with import_from_path(code):
        again = importlib.import_module("det_a")  # from the working directory, but anew
        assert (again.where, again.det_b.where) == ("cwd", "code")
    assert importlib.import_module("det_a") is not again
    assert load("det_b") == "cwd"


def test_modules_from_elsewhere_with_the_same_name_are_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(write(tmp_path / "script", det_c="where = 'script'")))
    old = importlib.import_module("det_c")
    with import_from_path(write(tmp_path / "code", det_c="where = 'code'")):
        assert load("det_c") == "code"
    assert sys.modules.pop("det_c") is old


def test_modules_of_the_path_are_forgotten_but_stay_usable(tmp_path: Path) -> None:
    code = write(tmp_path / "code", det_d="def f():\n    return 5")
    write(code / "det_p", __init__="", inner="x = 1")
    before, old_path = set(sys.modules), list(sys.path)
    with import_from_path(code):
        f = importlib.import_module("det_d").f
        importlib.import_module("det_p.inner")
    assert f() == 5
    assert set(sys.modules) == before
    assert sys.path == old_path


def test_no_bytecode_is_written(tmp_path: Path) -> None:
    code = write(tmp_path / "code", det_d="x = 1")
    old = sys.dont_write_bytecode
    with import_from_path(code):
        importlib.import_module("det_d")
    assert [path.name for path in code.iterdir()] == ["det_d.py"]
    assert sys.dont_write_bytecode == old


def test_other_packages_and_this_one_stay_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    import numpy

    import determined

    # A virtual environment below the working directory is no code of the user.
    monkeypatch.chdir(Path(numpy.__file__).parents[2])
    monkeypatch.syspath_prepend("")
    with import_from_path(write(tmp_path / "code", json="", determined="")):
        assert sys.modules["numpy"] is numpy
        assert sys.modules["determined"] is determined
        assert sys.modules["json"] is json


def test_everything_is_restored_after_an_error(working_directory: Path, tmp_path: Path) -> None:
    old, old_path = importlib.import_module("det_a"), list(sys.path)
    code = write(tmp_path / "code", det_a="raise KeyError('broken')")
    with pytest.raises(KeyError, match="broken"), import_from_path(code):
        importlib.import_module("det_a")
    assert sys.modules["det_a"] is old
    assert sys.path == old_path
    with import_from_path(code):  # and it can be used again
        pass


def test_nesting_and_threads_are_refused(tmp_path: Path) -> None:
    refused: list[str] = []

    def use() -> None:
        try:
            with import_from_path(tmp_path):
                pass
        except RuntimeError as error:
            refused.append(str(error))

    with import_from_path(tmp_path):
        use()
        thread = threading.Thread(target=use)
        thread.start()
        thread.join(timeout=30)
    assert len(refused) == 2
    assert "nested" in refused[0]
