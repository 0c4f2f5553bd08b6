"""Which scripts are recorded, as what, and how their end is told."""

from __future__ import annotations

import signal
import sys
import types

import pytest

from determined.core.backends.tracking import how_it_ended, is_tracked, program_name
from determined.errors import InvalidHP


def _main(**attributes: object) -> types.ModuleType:
    module = types.ModuleType("__main__")
    module.__dict__.update(attributes)
    return module


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, True),
        ({"DET_TRACKING": "off"}, False),
        ({"DET_TRACKING": " OFF "}, False),
        ({"DET_TRACKING": "0"}, False),
        ({"DET_TRACKING": ""}, True),
        ({"PYTEST_CURRENT_TEST": "test_x"}, False),
        ({"PYTEST_CURRENT_TEST": "test_x", "DET_TRACKING": "on"}, True),
    ],
)
def test_tests_are_not_recorded_unless_somebody_wants_it(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: bool
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", _main(__file__="train.py", __spec__=None))
    assert is_tracked(environment) is expected


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        (_main(__file__="/home/me/train.py", __spec__=None), "train.py"),
        (_main(__file__="x.py", __spec__=types.SimpleNamespace(name="pkg.train")), "pkg.train"),
        (_main(__file__="x.py", __spec__=types.SimpleNamespace(name="pkg.__main__")), "pkg"),
        (_main(__spec__=None), None),
    ],
)
def test_a_program_goes_by_its_script_or_module(
    monkeypatch: pytest.MonkeyPatch, main: types.ModuleType, expected: str | None
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert program_name() == expected
    assert is_tracked({}) is (expected is not None)


@pytest.mark.parametrize(
    ("error", "signal_number", "expected"),
    [
        (None, None, ("COMPLETED", "finished")),
        (SystemExit(0), None, ("COMPLETED", "finished")),
        (SystemExit(None), None, ("COMPLETED", "finished")),
        (SystemExit(3), None, ("ERROR", "left with status 3")),
        (ValueError("a\nb"), None, ("ERROR", "ValueError: a")),
        (ValueError("bad"), None, ("ERROR", "ValueError: bad")),
        (KeyboardInterrupt(), None, ("CANCELED", "interrupted")),
        (None, signal.SIGTERM, ("CANCELED", "stopped by SIGTERM")),
        (InvalidHP("lr < 0"), None, ("COMPLETED", "invalid hyperparameters: lr < 0")),
    ],
)
def test_the_end_of_a_run_is_a_state_and_a_line(
    error: BaseException | None, signal_number: int | None, expected: tuple[str, str]
) -> None:
    assert how_it_ended(error, signal_number) == expected
