"""Signals stop a run at a good moment, and the resumed run equals one that nobody disturbed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import preempted
from tests.support.trials import checkpoints
from tests.support.workers import Outcome, collect_workers

_ROOT = Path(__file__).parents[2]


def _script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.support.preempted", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), *sys.path])},
    )


def _process(*arguments: str) -> Outcome:
    """Run the script in a process that has torch loaded already."""
    (outcome,) = collect_workers(1, preempted.main, *arguments, process_group=False)
    return outcome


def _unbroken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> preempted.PreemptedTrial:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("DET_STORAGE", str(tmp_path / "unbroken"))
        return preempted.main()


@pytest.mark.multiprocess
def test_sigterm_saves_says_how_to_resume_and_exits_with_143(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DET_PROGRESS")
    done = _script("SIGTERM", "train", "4")
    assert done.returncode == 143, done.stderr
    assert sorted(checkpoints()) == [5]  # nothing but the current batch was finished
    assert done.stdout.splitlines() == ["shut down", "left fit"]
    assert "SIGTERM" in done.stderr
    assert 'latest_checkpoint="latest"' in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.multiprocess
def test_second_ctrl_c_stops_at_once() -> None:
    done = _script("SIGINT,SIGINT", "train", "4")
    assert done.returncode in (-2, 130)
    assert "KeyboardInterrupt" in done.stderr
    assert done.stdout.splitlines() == ["shut down"]
    assert checkpoints() == {}


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("name", "exit_code", "at"),
    [("SIGTERM", 143, 0), ("SIGTERM", 143, 11), ("SIGINT", 130, 4), ("SIGHUP", 129, 5)],
)
def test_run_resumed_after_a_signal_equals_an_unbroken_one(
    name: str, exit_code: int, at: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outcome = _process(name, "train", str(at))
    assert outcome.exit_code == exit_code, outcome
    assert sorted(checkpoints()) == [at + 1]
    unbroken, resumed = _unbroken(monkeypatch, tmp_path), preempted.main()
    assert resumed.batches == unbroken.batches[at + 1 :]
    assert resumed.weights() == unbroken.weights()
    assert resumed.validations == [
        (after, loss) for after, loss in unbroken.validations if after > at
    ]


@pytest.mark.multiprocess
def test_signal_in_a_validation_does_not_wait_for_its_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outcome = _process("SIGTERM", "validate", "5")
    assert outcome.exit_code == 143, outcome
    assert sorted(checkpoints()) == [6]
    unbroken, resumed = _unbroken(monkeypatch, tmp_path), preempted.main()
    # The resumed run begins with the validation that was cut short.
    assert resumed.validations == unbroken.validations[1:]
    assert resumed.batches == unbroken.batches[6:]
    assert resumed.weights() == unbroken.weights()
