"""Open pages hear what changes: each change once, only what is new, and again after a break."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from determined import journal
from determined.dashboard import live as lives
from determined.dashboard.live import read_mark
from determined.platform.homes.home import Home as PlatformHome
from determined.platform.runs.folder import RunFolder
from determined.store import Position, Run
from tests.dashboard.served import Served, served
from tests.store.homes import Home, a_home, report
from tests.support import old_homes


class Stream:
    """An open stream of events."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.iter_lines()
        self.last = ""

    def next(self, wanted: str) -> Any:
        """The data of the next event of a kind."""
        event, data = "", ""
        for line in self._lines:
            if line.startswith("id: "):
                self.last = line[4:]
            elif line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
            elif not line and event:
                if event == wanted:
                    return json.loads(data)
                event = ""
        raise AssertionError("the stream ended")


@contextmanager
def listening(shown: Served, **params: Any) -> Iterator[Stream]:
    with shown.client.stream("GET", "/api/events", params=params) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in answer.headers
        yield Stream(answer)


@pytest.fixture
def written(tmp_path: Path) -> Iterator[tuple[Home, Run, Served]]:
    """A home that is written while it is shown, with a run."""
    with a_home(tmp_path / "home") as home:
        run = home.new_run(home.new_trial())
        with served(PlatformHome(tmp_path / "home")) as shown:
            yield home, run, shown


def test_changes_points_and_lines_are_told(written: tuple[Home, Run, Served]) -> None:
    home, run, shown = written
    home.ingest(run, report(1, loss=9.0))
    key = f"{run.trial_id}:training:loss"
    with listening(shown, series=f"{key};{key}:batches") as stream:
        first = stream.next("change")
        assert first["experiments"] == first["trials"] == []
        assert first["supervisor"] == {"alive": False}
        home.ingest(run, report(3, batches=[{"loss": 5.0}, {"loss": 6.0}], loss=5.5))
        home.ingest(run, report(4, loss=float("nan")), report(4, "validation", loss=1.0))
        change = stream.next("change")
        assert change["trials"] == [run.trial_id]
        assert change["experiments"] == [home.experiment_id]
        found: dict[str, list[Any]] = {key: [], f"{key}:batches": []}
        while len(found[key]) < 2:
            for series in stream.next("points")["series"]:
                found[series["key"]] += zip(series["steps"], series["values"], strict=True)
        assert found == {key: [(3, 5.5), (4, "NaN")], f"{key}:batches": [(2, 5.0), (3, 6.0)]}


def test_a_stream_goes_on_where_it_was_broken_off(written: tuple[Home, Run, Served]) -> None:
    home, run, shown = written
    key = f"{run.trial_id}:training:loss"
    with listening(shown, series=key) as stream:
        stream.next("change")
        home.ingest(run, report(1, loss=1.0))
        assert stream.next("points")["series"][0]["values"] == [1.0]
        mark = stream.last
    home.ingest(run, report(2, loss=2.0), journal.Progress(0.5))
    with listening(shown, series=key, since=mark) as stream:
        assert stream.next("change")["trials"] == [run.trial_id]
        home.ingest(run, report(3, loss=3.0))
        values: list[float] = []
        while len(values) < 2:
            values += stream.next("points")["series"][0]["values"]
        assert values == [2.0, 3.0]


def test_a_new_listener_hears_nothing_of_before(written: tuple[Home, Run, Served]) -> None:
    home, run, shown = written
    key = f"{run.trial_id}:training:loss"
    with listening(shown, series=key) as stream:
        stream.next("change")
    home.ingest(run, report(1, loss=1.0))  # while nobody listens
    with listening(shown, series=key) as stream:
        assert stream.next("change")["trials"] == []
        home.ingest(run, report(2, loss=2.0))
        assert stream.next("points")["series"][0]["values"] == [2.0]


def test_new_lines_of_a_log_are_told(written: tuple[Home, Run, Served], tmp_path: Path) -> None:
    home, run, shown = written
    folder = RunFolder(run.folder)  # relative to where the test runs
    with home.writer.transaction() as tx:
        second = tx.create_run(
            run.trial_id, folder=str(tmp_path / "run"), slots=[], steps_completed=0
        )
    folder = RunFolder(second.folder)
    folder.path.mkdir()
    folder.log.write_text("old\n")
    with listening(shown, log=run.trial_id) as stream:
        stream.next("change")
        with folder.log.open("a") as log:
            log.write("new <b>\nnewer\n")
        lines: list[dict[str, Any]] = []
        while len(lines) < 2:
            lines += stream.next("log")["lines"]
        assert [(line["line"], line["text"]) for line in lines] == [(2, "new <b>"), (3, "newer")]


def test_a_page_that_waits_hears_that_the_server_lives(
    written: tuple[Home, Run, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lives, "HEARTBEAT_SECONDS", 0.05)
    _, _, shown = written
    with shown.client.stream("GET", "/api/events") as answer:
        assert any(line == ": alive" for line in answer.iter_lines())


def test_streams_end_with_the_server_and_leave_nothing(tmp_path: Path) -> None:
    with a_home(tmp_path / "home") as home:
        home.new_trial()
        with served(PlatformHome(tmp_path / "home")) as shown:
            for _ in range(5):
                with listening(shown) as stream:
                    stream.next("change")
            with listening(shown) as stream:
                stream.next("change")


def test_too_many_streams_are_refused(
    written: tuple[Home, Run, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    from determined.dashboard import app

    monkeypatch.setattr(app, "MOST_LISTENERS", 1)
    _, _, shown = written
    with listening(shown) as stream:
        stream.next("change")
        answer = shown.client.get("/api/events")
        assert answer.status_code == 503
        assert "streams" in answer.json()["error"]


def test_a_home_without_a_store_has_a_quiet_stream(tmp_path: Path) -> None:
    with served(PlatformHome(tmp_path / "nothing")) as shown, listening(shown) as stream:
        assert stream.next("change")["reports"] == 0


@pytest.mark.parametrize("query", ["log=99", "log=x", "series=1", "since=" + "a" * 100])
def test_odd_streams_are_refused(written: tuple[Home, Run, Served], query: str) -> None:
    _, _, shown = written
    assert shown.client.get(f"/api/events?{query}").status_code in (404, 422)


def test_marks_of_others_are_passed_over() -> None:
    assert read_mark("1.2.3.4") == (Position(1, 2, 3), 4)
    for mark in (
        "",
        "x",
        "1.2.3",
        "1.2.3.x",
        "-1.2.3.4",
        "1.2.3.4.5",
        "9" * 99 + ".1.1.1",
        "².1.1.1",
    ):
        assert read_mark(mark) is None


def test_a_store_that_cannot_be_read_yet_is_refused_before_the_stream(tmp_path: Path) -> None:
    old_homes.unpack(1, tmp_path / "home")
    with served(PlatformHome(tmp_path / "home"), is_whole=False) as shown:
        answer = shown.client.get("/api/events")
        assert (answer.status_code, answer.json()["next"]) == (503, "`det supervisor start`")
