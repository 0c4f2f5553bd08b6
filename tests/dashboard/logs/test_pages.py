"""Pages of a log, in both directions, of lines that fit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from determined.dashboard.logs import pages
from determined.dashboard.logs.pages import TrialLog, Wanted, reader_of
from determined.store import Run
from tests.dashboard.logs.written import write_log

_WORDS = ("loss", "LOSS of time", "epoch", "Ünïcode", "Traceback (most recent call last):", "")


_PREFIXES = ("", "[rank=0] ", "[rank=3] ", "[rank=3] ERROR: ", "WARNING: ", "[rank=0] INFO: ")


def a_run(folder: Path, run_id: int = 1, trial_id: int = 1) -> Run:
    return Run(
        trial_id, run_id, "", str(folder), "", [], 0, None, False, "", 0, "", 0.0, 0.0, 1e12, None
    )


def a_log(folder: Path, parts: list[list[str]]) -> TrialLog:
    runs = []
    for number, lines in enumerate(parts, start=1):
        write_log(folder / str(number), lines, begin=100.0 * number)
        runs.append(a_run(folder / str(number), number))
    return TrialLog(runs, [reader_of(run).count() for run in runs])


def _fits(line: str, wanted: Wanted) -> bool:
    rank = re.match(r"\[rank=(\d+)\] ", line)
    level = re.match(r"(?:\[rank=\d+\] )?([A-Z]+): ", line)
    if wanted.text is not None and wanted.text.lower() not in line.lower():
        return False
    if wanted.ranks and (rank is None or int(rank[1]) not in wanted.ranks):
        return False
    return not wanted.levels or (level[1] if level else "INFO") in wanted.levels


_lines = st.lists(
    st.tuples(st.sampled_from(_PREFIXES), st.sampled_from(_WORDS)).map("".join), max_size=25
)


_wanted = st.builds(
    Wanted,
    text=st.sampled_from([None, "loss", "ünï", "(most", "nowhere"]),
    levels=st.frozensets(st.sampled_from(["ERROR", "WARNING", "INFO"]), max_size=2),
    ranks=st.frozensets(st.sampled_from([0, 3]), max_size=1),
)


@settings(max_examples=40)
@example(parts=[["Ünïcode", "Ünïcode"]], wanted=Wanted(text="ünï"), limit=1)
@given(parts=st.lists(_lines, max_size=3), wanted=_wanted, limit=st.integers(1, 7))
def test_pages_in_both_directions_are_all_lines_that_fit(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[str]], wanted: Wanted, limit: int
) -> None:
    log = a_log(tmp_path_factory.mktemp("logs"), parts)
    everything = list(enumerate([line for part in parts for line in part], start=1))
    expected = [(number, line) for number, line in everything if _fits(line, wanted)]
    assert log.total == len(everything)

    found: list[tuple[int, str]] = []
    on: int | None = 1
    while on is not None:
        page = log.forwards(on, limit, wanted)
        found += [(n.number, n.line.text) for n in page.lines]
        assert len(page.lines) <= limit
        assert page.next is None or page.next > on
        on = page.next
    assert found == expected

    found, on = [], log.total or None
    while on is not None:
        page = log.backwards(on, limit, wanted)
        found = [(n.number, n.line.text) for n in page.lines] + found
        assert page.previous is None or page.previous < on
        on = page.previous
    assert found == expected


def test_a_search_that_takes_long_tells_where_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_log(tmp_path, [["nothing"] * 50_000])
    monkeypatch.setattr(pages, "SCAN_SECONDS", 0.0)
    page = log.forwards(1, 10, Wanted(levels=frozenset({"INFO"}), ranks=frozenset({5})))
    assert page.lines == []
    assert page.next is not None
    assert 1 < page.next <= 50_000


def test_a_trial_without_a_log_has_an_empty_one(tmp_path: Path) -> None:
    empty = TrialLog([a_run(tmp_path / "none")], [0])
    for page in (empty.forwards(1, 5, Wanted()), empty.backwards(9, 5, Wanted(text="x"))):
        assert page == ([], 0, None, None)


@pytest.mark.parametrize(
    "wanted",
    [Wanted(text="needle"), Wanted(pattern="need+le"), Wanted(levels=frozenset({"ERROR"}))],
)
def test_a_log_without_an_index_is_searched_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Wanted
) -> None:
    lines = [f"line {n} " + "x" * 200 for n in range(16_000)]
    lines[15_900] = "ERROR: needle"
    write_log(tmp_path / "run", lines)
    (tmp_path / "run" / "log.times").unlink()
    log = TrialLog([a_run(tmp_path / "run")], [len(lines)])
    monkeypatch.setattr(pages, "SCAN_SECONDS", 0.0)
    found: list[int] = []
    on: int | None = 15_000
    while on is not None:
        page = log.forwards(on, 10, wanted)
        found += [numbered.number for numbered in page.lines]
        assert page.next is None or page.next > on
        on = page.next
    assert found == [15_901]
