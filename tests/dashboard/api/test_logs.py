"""Logs by line, by time, by what they say: the same lines whichever way one comes to them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from determined._contracts.log_index import Stamper, pack
from determined.dashboard.logs import grep, merge, pages
from determined.dashboard.logs.pages import TrialLog, Wanted, reader_of
from determined.dashboard.logs.scan import scan, text_finder
from determined.platform.homes.home import Home
from determined.platform.runs.folder import RunFolder
from determined.store import Run, RunSpan
from tests.dashboard.served import Served, served
from tests.store.homes import a_home

_WORDS = ("loss", "LOSS of time", "epoch", "Ünïcode", "Traceback (most recent call last):", "")
_PREFIXES = ("", "[rank=0] ", "[rank=3] ", "[rank=3] ERROR: ", "WARNING: ", "[rank=0] INFO: ")


def write_log(folder: Path, lines: list[str], per_piece: int = 3, begin: float = 100.0) -> None:
    """Write a log as a keeper sees it: in pieces, each with its time."""
    folder.mkdir(parents=True, exist_ok=True)
    stamper, files = Stamper(), RunFolder(folder)
    with files.log.open("wb") as log, files.log_times.open("wb") as times:
        for number, first in enumerate(range(0, len(lines), per_piece)):
            text = "".join(f"{line}\n" for line in lines[first : first + per_piece])
            log.write(text.encode())
            stamp = stamper.stamp(text.encode(), int((begin + number) * 1e6))
            if stamp is not None:
                times.write(pack(stamp))


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


@given(
    content=st.binary(max_size=300),
    needle=st.sampled_from(["a", "ab", "\t"]),
)
def test_scanning_bytes_finds_the_lines_that_hold_a_text(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, needle: str
) -> None:
    path = tmp_path_factory.mktemp("scan") / "log"
    path.write_bytes(content)
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    blocks = list(scan(path, 0, 0, 1000, text_finder(needle)))
    found = [number for _, numbers in blocks for number in numbers]
    wanted = needle.lower().encode()
    assert found == [n for n, line in enumerate(lines) if wanted in line.lower()]
    assert blocks == [] or blocks[-1][0] == len(lines)


def test_lines_longer_than_a_block_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (3 << 20) + b"\nfind me\n")
    found = [n for _, numbers in scan(path, 0, 0, 10, text_finder("find me")) for n in numbers]
    assert found == [1]


@pytest.fixture(scope="module")
def shown_logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two trials whose lines interleave; the first has two runs."""
    path = tmp_path_factory.mktemp("logs") / "home"
    begin = time.time()
    with a_home(path) as home:
        for trial, parts in enumerate((["a"] * 12, ["b"] * 30)):
            made = home.new_trial()
            for number in range(2 - trial):
                folder = path / f"run-{made.id}-{number}"
                lines = [f"[rank={n % 2}] INFO: {t} {number} {n}" for n, t in enumerate(parts)]
                write_log(folder, lines, begin=begin + 20 * number)
                with home.writer.transaction() as tx:
                    run = tx.create_run(made.id, folder=str(folder), slots=[], steps_completed=0)
                    tx.end_run(run.trial_id, run.run_id, 0)
    with served(Home(path)) as shown:
        yield shown


def _texts(answer: Any) -> list[str]:
    return [line["text"] for line in answer["lines"]]


def test_lines_of_runs_are_numbered_as_one_log(shown_logs: Served) -> None:
    page = shown_logs.json("/api/trials/1/logs", from_line=12, limit=2)
    assert [(line["line"], line["source"]) for line in page["lines"]] == [
        (12, "run 1"),
        (13, "run 2"),
    ]
    assert page["total"] == 24
    assert page["next"] == 14
    assert page["previous"] == 11
    last = shown_logs.json("/api/trials/1/logs", tail=1, limit=3)
    assert [line["line"] for line in last["lines"]] == [22, 23, 24]
    assert last["next"] is None


def test_times_limit_the_lines(shown_logs: Served) -> None:
    begin = shown_logs.json("/api/trials/1/logs")["lines"][0]["time"]
    page = shown_logs.json("/api/trials/1/logs", since=begin + 1.5, until=begin + 3.5)
    assert [line["line"] for line in page["lines"]] == [7, 8, 9, 10, 11, 12]


def _merged(shown: Served, tail: int = 0, **params: Any) -> list[dict[str, Any]]:
    """All lines of an experiment, page by page: a page may end early, for lack of time."""
    found: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        page = shown.json("/api/experiments/1/logs", tail=tail, after=after, **params)
        found = page["lines"] + found if tail else found + page["lines"]
        after = page["previous" if tail else "next"]
    return found


def test_the_logs_of_an_experiment_are_one_by_time(shown_logs: Served) -> None:
    whole = _merged(shown_logs, limit=100)
    assert len(whole) == 54
    times = [line["time"] for line in whole]
    assert times == sorted(times)
    for tail in (0, 1):
        assert _merged(shown_logs, tail=tail, limit=7) == whole


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


def test_the_logs_of_an_experiment_can_be_searched(shown_logs: Served) -> None:
    found = _merged(shown_logs, search="B 0 1", rank=1)
    assert [line["text"] for line in found] == [
        f"[rank=1] INFO: b 0 {n}" for n in (1, 11, 13, 15, 17, 19)
    ]
    assert shown_logs.client.get("/api/experiments/1/logs?after=x").status_code == 422


def test_a_regular_expression_is_looked_for(shown_logs: Served) -> None:
    found: list[str] = []
    on = 1
    while on is not None:
        page = shown_logs.json("/api/trials/1/logs", search=r"A \d 1[01]$", regex=1, from_line=on)
        found, on = found + _texts(page), page["next"]
    assert found == ["[rank=0] INFO: a 0 10", "[rank=1] INFO: a 0 11"] + [
        "[rank=0] INFO: a 1 10",
        "[rank=1] INFO: a 1 11",
    ]
    for bad in ("(", "[", "*", "(?P<a", "a{99999999999}"):
        answer = shown_logs.client.get("/api/trials/1/logs", params={"search": bad, "regex": 1})
        assert answer.status_code == 422
        assert "search" in answer.json()["error"]


def test_an_expression_that_never_ends_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a" * 60 + "!\n")
    part = grep.Part(str(path), 0, 0, 0, 1)
    with pytest.raises(grep.SearchTimeoutError):
        grep.grep("(a+)+$", [part], 10, 0.1, hard_limit=0.5)


def test_a_search_that_takes_long_tells_where_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_log(tmp_path, [["nothing"] * 50_000])
    monkeypatch.setattr(pages, "SCAN_SECONDS", 0.0)
    page = log.forwards(1, 10, Wanted(levels=frozenset({"INFO"}), ranks=frozenset({5})))
    assert page.lines == []
    assert page.next is not None
    assert 1 < page.next <= 50_000


def test_logs_differ_in_words_or_in_numbers_too(shown_logs: Served) -> None:
    words = shown_logs.json("/api/trials/1/logs/diff", other=1)
    assert words == {"diff": "", "note": ""}
    numbers = shown_logs.json("/api/trials/1/logs/diff", other=2, numbers=1)
    assert "-[rank=0] INFO: a 0 0" in numbers["diff"]
    assert "+[rank=0] INFO: b 0 0" in numbers["diff"]


def test_a_log_is_downloaded_as_it_was_written(shown_logs: Served) -> None:
    answer = shown_logs.client.get("/api/trials/1/logs/download")
    assert answer.headers["content-disposition"] == 'attachment; filename="trial-1.log"'
    assert answer.text.count("\n") == 24


def test_a_trial_without_a_log_has_an_empty_one(shown_logs: Served, tmp_path: Path) -> None:
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
