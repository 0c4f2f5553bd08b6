"""The example of a split model, on two processes and then on one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.examples.running import percentages, run_example


@pytest.mark.slow
@pytest.mark.multiprocess
def test_each_process_holds_a_part_and_one_continues_with_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_STORAGE", str(tmp_path))
    output = run_example("fsdp", "train.py", "--epochs=2", processes=2)
    shares = re.findall(r"holds ([\d,]+) of ([\d,]+) weights, ([\d,]+) averages", output)
    (first, total, averages), (second, _, _) = [
        [int(number.replace(",", "")) for number in share] for share in shares
    ]
    assert first + second == total
    assert first == averages == pytest.approx(total / 2, rel=0.01)
    before = percentages(output)[0]
    assert before > 75

    output = run_example("fsdp", "train.py", "--resume", "--epochs=4")
    assert f"holds {total:,} of {total:,} weights" in output
    assert percentages(output)[0] > before
