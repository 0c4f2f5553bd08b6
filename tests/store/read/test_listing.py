"""Tables: any order, any filter, and pages that together are the whole."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined.store import NewExperiment, NewTrial, Slice, TableFilter
from tests.store.homes import Home, a_home, report

_NAMES = ("lr", "net.units", "name")
_VALUES = st.one_of(st.integers(-5, 5), st.floats(-2, 2), st.sampled_from(["a", "b"]), st.none())


def _key(value: Any) -> tuple[int, Any]:
    """The order of values in SQLite: numbers, then text; nothing comes last."""
    if value is None:
        return 2, 0
    return (0, value) if isinstance(value, (int, float)) else (1, value)


@settings(max_examples=25)
@given(values=st.lists(st.tuples(_VALUES, _VALUES), max_size=12), limit=st.integers(1, 5))
def test_pages_of_any_order_are_the_whole_list_in_that_order(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[Any, Any]], limit: int
) -> None:
    with a_home(tmp_path_factory.mktemp("home")) as home:
        hparams = {}
        with home.writer.transaction() as tx:
            for number, (rate, units) in enumerate(values):
                content = {"lr": rate, "net": {"units": units}}
                new = NewTrial(home.experiment_id, f"r{number}", 1, content)
                hparams[tx.create_trial(new).id] = content
        for sort, value_of in (
            ("id", lambda h: 0),
            ("hparam:lr", lambda h: h["lr"]),
            ("hparam:net.units", lambda h: h["net"]["units"]),
        ):
            found: list[int] = []
            for offset in range(0, len(values) + limit, limit):
                page = Slice(sort, limit=limit, offset=offset)
                total, rows = home.reader.tables.trials(home.experiment_id, None, page)
                assert total == len(values)
                found += [trial.id for trial in rows]
            expected = sorted(hparams, key=lambda i: (_key(value_of(hparams[i])), i))
            assert found == expected
            backwards = Slice(sort, descending=True, limit=100)
            _, rows = home.reader.tables.trials(home.experiment_id, None, backwards)
            have = [t.id for t in rows if value_of(hparams[t.id]) is not None]
            assert have == [i for i in reversed(expected) if value_of(hparams[i]) is not None]


def test_metrics_are_sorted_by_their_last_value(home: Home) -> None:
    trials = [home.new_trial() for _ in range(4)]
    for trial, value in zip(trials, (0.5, math.nan, math.inf, -1.0), strict=True):
        run = home.new_run(trial)
        home.ingest(run, report(1, "validation", loss=9.0), report(2, "validation", loss=value))
    _, rows = home.reader.tables.trials(home.experiment_id, None, Slice("metric:validation.loss"))
    assert [t.id for t in rows] == [trials[i].id for i in (3, 0, 2, 1)]
    _, rows = home.reader.tables.trials(home.experiment_id, None, Slice("metric:nope.loss"))
    assert len(rows) == 4


def test_active_is_running_or_queued(home: Home) -> None:
    running, queued, paused = (home.new_trial() for _ in range(3))
    home.new_run(running)
    with home.writer.transaction() as tx:
        tx.update_trial(paused.id, state="PAUSED")

    def shown(*states: str) -> list[int]:
        _, rows = home.reader.tables.trials(home.experiment_id, list(states), Slice())
        return [trial.id for trial in rows]

    assert shown("RUNNING") == [running.id]
    assert shown("QUEUED") == [queued.id]
    assert shown("ACTIVE") == [running.id, queued.id]
    assert shown("PAUSED", "QUEUED") == [queued.id, paused.id]
    assert shown("ERROR") == []
    states = home.reader.tables.trial_states([home.experiment_id])
    assert states == {home.experiment_id: {"RUNNING": 1, "QUEUED": 1, "PAUSED": 1}}
    assert home.reader.tables.experiment_counts() == {"RUNNING": 1, "QUEUED": 0}


@pytest.fixture
def many(tmp_path: Path) -> Any:
    with a_home(tmp_path / "home") as home:
        with home.writer.transaction() as tx:
            for name, labels, archived in (
                ("Alpha one", ["x"], False),
                ("beta", ["x", "y z"], False),
                ("alphabet", [], True),
            ):
                made = tx.create_experiment(NewExperiment({}, "me", name, labels=labels))
                tx.update_experiment(made.id, archived=archived)
        yield home


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (TableFilter(search="ALPHA"), ["Alpha one", "alphabet"]),
        (TableFilter(search="y z"), ["beta"]),
        (TableFilter(search="3"), ["beta"]),
        (TableFilter(search="%"), []),
        (TableFilter(labels=["x"], archived=False), ["Alpha one", "beta"]),
        (TableFilter(labels=["x", "y z"]), ["beta"]),
        (TableFilter(archived=True), ["alphabet"]),
        (TableFilter(unmanaged=True), []),
        (TableFilter(metric_min=0.0), []),
        (TableFilter(states=["QUEUED"], search="beta"), ["beta"]),
    ],
)
def test_experiments_are_filtered(many: Home, wanted: TableFilter, names: list[str]) -> None:
    total, rows = many.reader.tables.experiments(wanted, Slice(limit=10))
    assert [row.name for row, _ in rows] == names
    assert total == len(names)


def test_an_unknown_order_is_named(home: Home) -> None:
    with pytest.raises(ValueError, match="Sort by one of .*, got 'x; drop'"):
        home.reader.tables.experiments(TableFilter(), Slice("x; drop"))


def test_experiments_show_what_their_best_trials_have(home: Home) -> None:
    for value in (0.3, 0.2):
        trial = home.new_trial()
        home.ingest(home.new_run(trial), report(1, "validation", loss=value, note="text"))
    tables = home.reader.tables
    assert tables.best_hparams(TableFilter()) == [{"lr": 0.1}]
    assert tables.best_metrics(TableFilter()) == [
        ("validation", "loss", False),
        ("validation", "note", False),
    ]
    key = ("validation", "loss")
    assert tables.last_metrics([trial.id], [key, ("a", "b")]) == {trial.id: {key: 0.2}}
    assert tables.last_values(home.experiment_id, *key) == {trial.id - 1: 0.3, trial.id: 0.2}
    assert tables.hparams_of([trial.id]) == {trial.id: {"lr": 0.1}}


def test_decisions_are_found_by_the_trial_they_are_about(home: Home) -> None:
    trial, other = home.new_trial(), home.new_trial()
    with home.writer.transaction() as tx:
        actions = [
            {"kind": "stop", "request_id": trial.request_id, "reason": "too slow"},
            {"kind": "stop", "request_id": other.request_id, "reason": "too bad"},
        ]
        event = {"event": {"kind": "x", "request_id": other.request_id}}
        tx.record_search(home.experiment_id, None, event, actions, "too slow too bad")
        tx.record_search(home.experiment_id, None, {"event": {"kind": "x"}}, [])
    tables = home.reader.tables
    about = tables.decisions_about(home.experiment_id, trial.request_id)
    assert [sentence for _, sentence in about] == ["too slow"]
    last = tables.last_decisions(home.experiment_id, 10)
    assert [action for _, _, action in last] == actions[::-1]
