"""The README's own trial: stopped by Ctrl-C and started again, it ends as if it had not been."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.docs.pages import ROOT, blocks

_SECONDS = 60


def _start(script: Path, storage: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "DET_STORAGE": str(storage), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=_SECONDS)
    assert process.returncode == 0, errors
    return errors


def _last_state(storage: Path) -> Any:
    files = sorted(storage.glob("*/state_dict.pth"), key=lambda file: file.stat().st_mtime_ns)
    return torch.load(files[-1], weights_only=True)


@pytest.mark.slow
@pytest.mark.multiprocess
def test_the_trial_of_the_readme_continues_where_it_was_stopped(tmp_path: Path) -> None:
    (source,) = [block.code for block in blocks(ROOT / "README.md") if block.title == "train.py"]
    script = tmp_path / "train.py"
    script.write_text(source)

    whole = _start(script, tmp_path / "whole")
    cut = _start(script, tmp_path / "cut")
    assert cut.stderr is not None
    while "validation" not in (line := cut.stderr.readline()):
        assert line, "the run ended before its first validation"
    cut.send_signal(signal.SIGINT)
    _, errors = cut.communicate(timeout=_SECONDS)
    assert cut.returncode == 128 + signal.SIGINT, errors
    assert "Stopped after" in errors
    assert "Finished after 320 batches" in _finish(_start(script, tmp_path / "cut"))
    assert "Finished after 320 batches" in _finish(whole)

    expected, found = _last_state(tmp_path / "whole"), _last_state(tmp_path / "cut")
    (expected,), (found,) = expected["models_state_dict"], found["models_state_dict"]
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
