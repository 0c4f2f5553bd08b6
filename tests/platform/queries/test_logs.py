"""Logs of many runs: each line once, in the order of time, whatever is asked for."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from determined._contracts.log_index import Stamper, pack
from determined.platform.queries.logs import LogFilter, LogFollower, read_logs, tail_logs
from determined.store import Reader, Run

# For each run: its trial, its begin, and the seconds from line to line.
_RUNS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 50), st.lists(st.integers(0, 9), max_size=8)),
    max_size=5,
)


def _run(folder: Path, trial_id: int, run_id: int, created: float) -> Run:
    values: dict[str, object] = {field.name: None for field in dataclasses.fields(Run)}
    values |= {"trial_id": trial_id, "run_id": run_id, "folder": str(folder), "created": created}
    return Run(**values)  # type: ignore[arg-type]  # what is not needed here is None


def _write(folder: Path, lines: list[tuple[float, str]]) -> None:
    folder.mkdir(exist_ok=True)
    stamper = Stamper()
    pieces = [(int(time * 1e6), f"{text}\n".encode()) for time, text in lines]
    stamps = [stamper.stamp(piece, time) for time, piece in pieces]
    (folder / "log").write_bytes(b"".join(piece for _, piece in pieces))
    (folder / "log.times").write_bytes(b"".join(pack(s) for s in stamps if s is not None))


def _made(root: Path, plan: list[tuple[int, int, list[int]]]) -> tuple[list[Run], int]:
    runs = []
    for number, (trial_id, created, gaps) in enumerate(plan):
        times = [created + sum(gaps[: i + 1]) for i in range(len(gaps))]
        folder = root / str(number)
        _write(folder, [(time, f"{number}/{i}") for i, time in enumerate(times)])
        runs.append(_run(folder, trial_id, number + 1, created))
    return runs, sum(len(gaps) for _, _, gaps in plan)


@given(_RUNS)
def test_every_line_comes_once_in_the_order_of_time(plan: list[tuple[int, int, list[int]]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        runs, count = _made(Path(name), plan)
        entries = list(read_logs(runs, LogFilter()))
        assert len({entry.line.text for entry in entries}) == len(entries) == count
        times = [entry.line.time or 0.0 for entry in entries]
        assert times == sorted(times)


@given(_RUNS, st.integers(0, 12), st.integers(0, 60))
def test_the_tail_is_the_end_of_what_is_read(
    plan: list[tuple[int, int, list[int]]], count: int, after: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        runs, _ = _made(
            Path(name), [(trial, 60 * n, gaps[:6]) for n, (trial, _, gaps) in enumerate(plan)]
        )
        for wanted in (LogFilter(), LogFilter(after=after), LogFilter(before=after)):
            everything = list(read_logs(runs, wanted))
            expected = everything[max(0, len(everything) - count) :]
            assert tail_logs(runs, wanted, count) == expected


@given(_RUNS, st.integers(0, 60), st.integers(0, 60))
def test_times_choose_the_lines_between_them(
    plan: list[tuple[int, int, list[int]]], after: int, before: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        runs, _ = _made(Path(name), plan)
        chosen = read_logs(runs, LogFilter(after=after, before=before))
        expected = {
            entry.line.text
            for entry in read_logs(runs, LogFilter())
            if after <= (entry.line.time or 0.0) < before
        }
        assert {entry.line.text for entry in chosen} == expected


def test_ranks_levels_and_words_choose_lines(tmp_path: Path) -> None:
    texts = ["[rank=0] INFO: a", "[rank=1] ERROR: b", "DEBUG: c", "plain d"]
    _write(tmp_path / "run", list(enumerate(texts)))
    run = _run(tmp_path / "run", 1, 1, 0)

    def chosen(wanted: LogFilter) -> list[str]:
        return [entry.line.text[-1] for entry in read_logs([run], wanted)]

    assert chosen(LogFilter(ranks=frozenset({0, 1}))) == ["a", "b"]
    assert chosen(LogFilter(level="INFO")) == ["a", "b", "d"]
    assert chosen(LogFilter(level="WARNING")) == ["b"]
    assert chosen(LogFilter(level="TRACE")) == ["a", "b", "c", "d"]
    assert chosen(LogFilter(search=re.compile("[cd]$"))) == ["c", "d"]


class _Store(Reader):
    """A store that knows one run."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def runs(self, trial_id: int) -> list[Run]:
        return [self.run]


def test_a_line_is_followed_once_it_is_whole_or_its_run_over(tmp_path: Path) -> None:
    run = _run(tmp_path, 1, 1, 0)
    store = _Store(run)
    follower = LogFollower(store, LogFilter())

    def poll() -> list[str]:
        return [entry.line.text for entry in follower.poll([1])]

    assert poll() == []  # it has not written anything yet
    with (tmp_path / "log").open("ab", buffering=0) as log:
        log.write(b"one\ntw")
        assert poll() == ["one"]
        assert poll() == []
        log.write(b"o\nthr")
        assert poll() == ["two"]
        store.run = dataclasses.replace(run, ended=9.0)
        assert poll() == ["thr"]
    assert poll() == []
