"""The logs of many runs as one, by time."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.dashboard.logs import merge, pages
from determined.dashboard.logs.pages import Wanted
from determined.store import RunSpan
from tests.dashboard.logs.written import write_log


@pytest.mark.parametrize("wanted", [Wanted(), Wanted(text="7")])
def test_no_line_of_many_runs_is_missed_for_lack_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Wanted
) -> None:
    runs = []
    for number in range(1, 9):
        folder, begin = tmp_path / str(number), 1000.0 * (number // 2)
        runs.append(RunSpan(number, 1, str(folder), begin, begin + 10.0))
        if number in (1, 4, 5):
            write_log(folder, [f"trial {number} line {n}" for n in range(30)], begin=begin)
    whole, on = merge.backwards(runs, None, 1000, wanted)
    assert len(whole) == (90 if wanted.is_anything else 9)
    assert on is None
    for module in (merge, pages):
        monkeypatch.setattr(module, "SCAN_SECONDS", -1.0)
    found: list[merge.Entry] = []
    on = None
    while True:
        page, on = merge.backwards(runs, on, 7, wanted)
        found = page + found
        if on is None:
            break
    assert found == whole
