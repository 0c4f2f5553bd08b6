"""Logs by line, by time, by what they say: the same lines whichever way one comes to them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from determined.platform.homes.home import Home
from tests.dashboard.logs.written import write_log
from tests.dashboard.served import Served, served
from tests.store.homes import a_home


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
