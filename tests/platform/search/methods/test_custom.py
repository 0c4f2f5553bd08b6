"""A user's own method, in a process of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from determined.platform.search import events as e
from determined.platform.search.canonical_json import dump, load
from determined.platform.search.processes.custom_process import CustomProcess
from determined.platform.search.searcher import Searcher
from tests.platform.search.climbing import METHOD, config
from tests.platform.search.scripted import SPACE, Script


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., CustomProcess]]:
    (tmp_path / "my_search.py").write_text(METHOD)
    started = []

    def _start(name: str = "Climb", **options: Any) -> CustomProcess:
        started.append(CustomProcess(config(name), SPACE, 1, tmp_path, **options))
        return started[-1]

    yield _start
    for process in started:
        process.close()


def play(search: Script) -> None:
    assert search.start() == ["create T1", "create T2"]
    for trial in (1, 2, 3, 4):
        search.validate(trial, 1, 1 / trial)
        search.exit(trial)


def test_a_custom_method_runs_a_whole_search(start: Callable[..., CustomProcess]) -> None:
    search = Script(config(), oracle=start())
    play(search)
    assert len(search.created) == 4
    assert search.created[0].hparams["group"] == {"y": [1]}
    assert search.created[0].reason.startswith("near 0.")
    assert search.searcher.is_over
    assert search.handle(e.LimitsRaised(max_trials=9)) == ["resume T1"]
    assert search.reasons == ["{'max_trials': 9}"]
    event = e.ValidationCompleted(search.rid(1), {"loss": float("nan")}, 1)
    assert search.handle(event) == ["stop T1"]


def test_a_killed_process_is_restored_by_its_records(start: Callable[..., CustomProcess]) -> None:
    unbroken = Script(config(), oracle=start())
    play(unbroken)
    first = start()
    search = Script(config(), oracle=first)
    search.start()
    search.validate(1, 1, 0.5)
    search.exit(1)
    os.kill(first.pid, signal.SIGKILL)
    records = [load(dump(record)) for record in search.records]
    search.searcher = Searcher.restore(config(), SPACE, 42, records=records, oracle=start())
    search.validate(2, 1, 0.25)
    search.exit(2)
    assert len(search.created) == 4
    without_process = Searcher.restore(config(), SPACE, 42, records=search.records)
    assert dump(without_process.snapshot()) == dump(search.searcher.snapshot())


def test_an_exception_ends_the_experiment_with_its_traceback(
    start: Callable[..., CustomProcess],
) -> None:
    search = Script(config(), oracle=start())
    search.start()
    assert search.early(1) == ["failure"]
    reason = [a.reason for s in search.steps for a in s.actions if isinstance(a, e.Shutdown)][0]
    assert "my_search.py" in reason
    assert "RuntimeError: I cannot cope with errored" in reason
    again = Searcher.restore(config(), SPACE, 42, records=search.records)
    assert again.is_over


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Slow", "took more than 1 s"),
        ("Dies", "status 3.\nlast words"),
        ("Wrong", "expected a dict of values, got 7"),
        ("Missing", "has no attribute 'Missing'"),
        ("Idle", "created no trial"),
    ],
)
def test_what_a_method_can_do_wrong_is_told(
    name: str, message: str, start: Callable[..., CustomProcess]
) -> None:
    timeout = {"timeout_seconds": 1.0} if name == "Slow" else {}
    search = Script(config(name), oracle=start(name, **timeout))
    assert search.start() == ["failure"]
    assert message in search.reasons[0]


def test_a_method_that_cannot_be_restored_is_named(start: Callable[..., CustomProcess]) -> None:
    search = Script(config("Clock"), oracle=start("Clock"))
    search.start()
    from determined.platform.search.methods.custom import CustomMethodError

    with pytest.raises(CustomMethodError, match="cannot be restored"):
        Searcher.restore(config("Clock"), SPACE, 42, records=search.records, oracle=start("Clock"))


def test_a_custom_search_needs_all_records(start: Callable[..., CustomProcess]) -> None:
    oracle = start()
    search = Script(config(), oracle=oracle)
    snapshot = search.searcher.snapshot()
    with pytest.raises(ValueError, match="all of its records"):
        Searcher.restore(config(), SPACE, 42, snapshot, oracle=oracle)
