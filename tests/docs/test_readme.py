"""The README's own trial: stopped by Ctrl-C and started again, it ends as if it had not been."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TextIO

import pytest
import torch

from tests.docs.pages import ROOT, blocks
from tests.support.terminal import end, file_script, start_script

_SECONDS = 60


@dataclass(frozen=True)
class _Run:
    """The trial at work, and what it says of it."""

    process: BaseProcess
    errors: TextIO

    def finish(self) -> str:
        with self.errors:
            assert end(self.process, _SECONDS) == 0, self.errors.read()
            return self.errors.read()


def _start(script: Path, storage: Path) -> _Run:
    reads, writes = os.pipe()
    process = start_script(file_script(script), writes, writes, {"DET_STORAGE": str(storage)})
    os.close(writes)
    return _Run(process, os.fdopen(reads))


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
    while "validation" not in (line := cut.errors.readline()):
        assert line, "the run ended before its first validation"
    assert cut.process.pid is not None
    os.kill(cut.process.pid, signal.SIGINT)
    assert end(cut.process, _SECONDS) == 128 + signal.SIGINT
    with cut.errors:
        assert "Stopped     after" in cut.errors.read()
    assert "Trained     320 batches" in _start(script, tmp_path / "cut").finish()
    assert "Trained     320 batches" in whole.finish()

    expected, found = _last_state(tmp_path / "whole"), _last_state(tmp_path / "cut")
    (expected,), (found,) = expected["models_state_dict"], found["models_state_dict"]
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
