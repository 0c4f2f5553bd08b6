"""What runs computed with: recorded with each, shown where it was not as before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from determined.journal import Environment
from determined.platform.queries.run_environments import environments_of
from tests.store.homes import Home, a_home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with a_home(tmp_path / "home") as home:
        yield home


def test_each_run_has_its_environment_and_what_was_not_as_before(home: Home) -> None:
    trial = home.new_trial()
    home.ingest(home.new_run(trial), Environment({"threads": 1, "ranks": 2, "torch": "2.9"}))
    other = home.new_run(trial)
    home.ingest(other, Environment({"threads": 4}, ["4 threads instead of 1"]))
    home.ingest(other, Environment({"threads": 4, "instruction_set": "AVX2"}))
    first, second = environments_of(home.reader, trial.id)
    assert (first.run_id, first.differences) == (1, [])
    assert first.text == "1 thread, 2 processes, torch 2.9"
    assert (second.run_id, second.differences) == (2, ["4 threads instead of 1"])
    assert second.text == "4 threads, AVX2"


def test_only_what_is_not_as_before_is_an_event_of_the_experiment(home: Home) -> None:
    trial = home.new_trial()
    home.ingest(home.new_run(trial), Environment({"threads": 1}))
    assert home.reader.tables.last_events(home.experiment_id, 10) == []
    home.ingest(home.new_run(trial), Environment({"threads": 2}, ["2 threads instead of 1"]))
    (event,) = home.reader.tables.last_events(home.experiment_id, 10)
    assert (event.level, event.text) == ("warn", "2 threads instead of 1")
