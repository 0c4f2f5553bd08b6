"""The harness of the platform: figures, tables, and what is computed from marks."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from benchmarks.platform import page
from benchmarks.platform.__main__ import merged
from benchmarks.platform.effective import _lost_per_kill
from benchmarks.platform.figure import Figure, difference, in_turns, ratio, table
from benchmarks.platform.length import compare
from benchmarks.platform.marks import Mark, read_marks
from benchmarks.platform.picture import share_of_goal


def test_figures_compare_neighbours_and_know_their_goals() -> None:
    samples = {"ours": [1.0, 20.0, 6.0], "theirs": [2.0, 10.0, 2.0]}
    assert ratio(samples, "ours", "theirs") == 2.0
    assert difference(samples, "ours", "theirs") == 4.0
    assert Figure("time", 1.0, goal=1.0).verdict == "meets"
    assert Figure("time", 1.1, goal=1.0).verdict == "MISSES"
    assert Figure("rate", 9.0, goal=10, is_floor=True).verdict == "MISSES"
    assert Figure("time", 1.0).verdict == ""
    shown = table([Figure("rate", 12345.6, "a second", 10_000, True, samples, load=0.5)])
    line = shown.splitlines()[2]
    for text in ("12,346 a second", "at least 10,000", "meets", "ours 6, theirs 2", "0.5"):
        assert text in line


def test_contenders_take_turns_in_both_directions() -> None:
    calls: list[str] = []
    count = itertools.count()

    def contender(name: str) -> float:
        calls.append(name)
        return float(next(count))

    samples = in_turns(2, a=lambda: contender("a"), b=lambda: contender("b"))
    assert calls == ["a", "b", "b", "a"]
    assert samples == {"a": [0.0, 3.0], "b": [1.0, 2.0]}


def test_a_kill_costs_its_pause_and_what_is_trained_again() -> None:
    # A batch takes 0.1 s. Killed after batch 100; 3 s later the next run goes on from batch 80.
    first = [Mark(1, batch, batch / 10) for batch in range(0, 101, 20)]
    second = [Mark(2, batch, 13 + (batch - 80) / 10) for batch in range(80, 201, 20)]
    assert _lost_per_kill([*first, *second], kills=1) == pytest.approx(5.0)


def test_a_long_run_is_compared_with_its_own_beginning(tmp_path: Path) -> None:
    def cpu(batch: int) -> float:
        return batch * 1e-4 + max(0, batch - 1000) * 1e-4  # twice as slow from batch 1,000 on

    lines = [f"1 {n} {n} {cpu(n)} {100 + n / 100}\n" for n in range(0, 2001, 10)]
    path = tmp_path / "marks"
    path.write_text("".join(lines) + "1 2010 3")
    assert read_marks(path)[-1] == Mark(1, 2000, 2000.0, cpu(2000), 120.0)
    pace, memory = compare(read_marks(path))
    assert pace.value == pytest.approx(2.0)
    assert memory.value == pytest.approx(120 / 104)
    assert pace.what.endswith("after 2,000 batches over after 200")


def test_a_group_that_is_measured_again_takes_its_old_place() -> None:
    first = merged([], "starts", [Figure("a start", 1.0), Figure("a row of old", 1.0)])
    both = merged(merged(first, "growth", [Figure("growth", 1.0)]), "commands", [Figure("list", 1)])
    again = merged(both, "starts", [Figure("a start", 2.0)])
    found = [(data["group"], data["what"], data["value"]) for data in again]
    expected = [("commands", "list", 1), ("starts", "a start", 2.0), ("growth", "growth", 1.0)]
    assert found == expected


def test_the_picture_shows_below_one_what_meets_its_goal() -> None:
    assert share_of_goal(Figure("time", 0.5, goal=1.0)) == 0.5
    assert share_of_goal(Figure("rate", 500.0, goal=100, is_floor=True)) == 0.2
    assert share_of_goal(Figure("rate", 0.0, goal=100, is_floor=True)) == 100


def test_the_page_gets_the_last_figure_of_each_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = {"date": "today", "processor": "a", "cores": 2, "python": "3", "versions": {}}
    machine["versions"] = {"torch": "2"}
    paths = []
    for number in (1.0, 2.0):
        data = {"group": "starts", **Figure("a start", number).as_data()}
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps({"machine": machine, "figures": [data]}))
        paths.append(str(path))
    target = tmp_path / "page.md"
    target.write_text("before\n" + "\nold\n".join(page._MARKS) + "\nafter\n")
    monkeypatch.setattr(page, "_PAGE", target)
    monkeypatch.setattr(page, "_PICTURE", tmp_path / "picture.png")
    page.main(paths)
    text = target.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "2 s" in text
    assert "old" not in text
    assert text.count("a start") == 1
