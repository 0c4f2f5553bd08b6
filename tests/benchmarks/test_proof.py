"""The proof: its table tells of each promise, and one that does not hold is not passed over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import proof


def test_a_promise_that_does_not_hold_is_told_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = proof.Promise("good", "5 rows", True), proof.Promise("bad", "none", False)
    monkeypatch.setattr(sys, "argv", ["proof", "--folder", str(tmp_path)])
    monkeypatch.setattr(proof, "_PARTS", (lambda _: good, lambda _: bad))
    assert proof.main() == 1
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[-2] for line in told[1:3]] == ["yes", "NO"]
    assert told[-1].startswith("Not all hold")


def test_only_processes_of_the_home_are_found(tmp_path: Path) -> None:
    place = proof.Place(tmp_path / "proof")
    sleeping = [sys.executable, "-c", "import sys, time; print(1, flush=True); time.sleep(60)"]
    with subprocess.Popen(sleeping, env=place.environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert list(place.processes()) == [process.pid]
        assert os.getpid() not in place.processes()
        process.kill()
