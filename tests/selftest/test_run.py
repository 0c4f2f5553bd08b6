"""Each check runs in a process of its own: one that dies or hangs has failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.selftest import _run
from determined.selftest._plan import Planned
from determined.selftest._result import FAILS, NOT_RUN


def test_a_check_that_dies_has_failed_with_its_last_words(tmp_path: Path) -> None:
    result = _run.run(Planned("absent", "cpu", 0), tmp_path)
    assert result.verdict == FAILS
    assert result.found == (
        "the process ended with status 1: ModuleNotFoundError: No module named "
        "'determined.selftest.checks.absent'"
    )


def test_a_check_that_hangs_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_run, "_DEADLINE_SECONDS", 0.05)
    result = _run.run(Planned("waits", "cpu", 0), tmp_path)
    assert (result.verdict, result.found) == (FAILS, "not done after 0 s")


def test_a_check_that_cannot_look_says_why(tmp_path: Path) -> None:
    (result,) = _run.run_all([Planned("waits", "cpu", 0)], tmp_path)
    assert (result.verdict, result.found) == (NOT_RUN, "torch does not count waits on cpu")
