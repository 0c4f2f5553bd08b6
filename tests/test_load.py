"""Finding a trial class by its name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined.load import trial_class_from_entrypoint

_MODULE = """
from determined import LegacyTrial
class Outer:
    class Inner(LegacyTrial):
        def __init__(self, context): pass
class NoTrial: pass
number = 3
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "det_load_me.py").write_text(_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("det_load_me", None)


def test_nested_classes_are_found() -> None:
    found = trial_class_from_entrypoint("det_load_me:Outer.Inner")
    assert found.__qualname__ == "Outer.Inner"


def test_the_module_is_imported_anew() -> None:
    first = trial_class_from_entrypoint("det_load_me:Outer.Inner")
    assert trial_class_from_entrypoint("det_load_me:Outer.Inner") is not first


@pytest.mark.parametrize("name", ["NoTrial", "number"])
def test_anything_but_a_trial_class_is_refused(name: str) -> None:
    with pytest.raises(AssertionError, match=name):
        trial_class_from_entrypoint(f"det_load_me:{name}")


@pytest.mark.parametrize("spec", ["det_load_me", "det_load_me:", ":Outer"])
def test_malformed_names_are_refused(spec: str) -> None:
    with pytest.raises(ValueError, match=r"package\.module:ClassName"):
        trial_class_from_entrypoint(spec)


def test_the_running_script_is_left_alone() -> None:
    main = sys.modules["__main__"]
    with pytest.raises(ValueError, match="Pass the class itself"):
        trial_class_from_entrypoint("__main__:Trial")
    assert sys.modules["__main__"] is main


def test_a_module_that_fails_to_import_keeps_the_old_one(tmp_path: Path) -> None:
    trial_class_from_entrypoint("det_load_me:Outer.Inner")
    old = sys.modules["det_load_me"]
    (tmp_path / "det_load_me.py").write_text("raise KeyError('a longer text than before: broken')")
    with pytest.raises(KeyError, match="broken"):
        trial_class_from_entrypoint("det_load_me:Outer.Inner")
    assert sys.modules["det_load_me"] is old
