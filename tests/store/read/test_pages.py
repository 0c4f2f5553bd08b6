"""Lists: filters, orders and pages that neither skip nor repeat a row."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined import journal
from determined.errors import StoreError
from determined.store import (
    CheckpointFilter,
    ExperimentFilter,
    NewExperiment,
    NewTrial,
    Order,
    TrialFilter,
)
from tests.store.homes import Home, a_home, report


def test_experiments_are_filtered(home: Home) -> None:
    with home.writer.transaction() as tx:
        workspace = tx.registry.create_workspace("mine", "me")
        project = tx.registry.create_project(workspace.id, "p", "me")
        second = tx.create_experiment(
            NewExperiment({}, "you", "My Net", labels=["a", "b"], project_id=project.id)
        )
        tx.update_experiment(home.experiment_id, state="COMPLETED", archived=True)

    def ids(**wanted: Any) -> list[int]:
        return [e.id for e in home.reader.experiments(ExperimentFilter(**wanted)).rows]

    first = home.experiment_id
    assert ids() == [first, second.id]
    assert ids(archived=False) == [second.id]
    assert ids(states=["COMPLETED"]) == [first]
    assert ids(states=[]) == []
    assert ids(owner="you") == [second.id]
    assert ids(labels=["a", "b"]) == [second.id]
    assert ids(labels=["a", "c"]) == []
    assert ids(project_id=1) == [first]
    assert ids(workspace_id=workspace.id) == [second.id]
    assert ids(name_contains="NET") == [second.id]
    assert ids(ids=[first, 99]) == [first]
    assert home.reader.count_experiments(["ACTIVE"]) == 1


_values = st.lists(st.none() | st.integers(0, 3).map(float), max_size=12)


@settings(max_examples=15)
@given(values=_values, size=st.integers(1, 5), descending=st.booleans(),
       by=st.sampled_from(["id", "best_validation", "total_batches"]))  # fmt: skip
def test_pages_together_are_the_list(
    values: list[float | None],
    size: int,
    descending: bool,
    by: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with a_home(tmp_path_factory.mktemp("store") / "home") as home:
        for value in values:
            trial = home.new_trial()
            if value is not None:
                home.ingest(home.new_run(trial), report(int(value), "validation", loss=value))
        where, order = TrialFilter(experiment_id=home.experiment_id), Order(by, descending)
        whole = home.reader.trials(where, order).rows
        paged, after = [], None
        while True:
            page = home.reader.trials(where, order, size, after)
            paged += page.rows
            if page.next is None:
                break
            after = page.next
        assert paged == whole
        assert len({trial.id for trial in whole}) == len(values)
        keys = [getattr(trial, by) for trial in whole]
        known = [key for key in keys if key is not None]
        assert known == sorted(known, reverse=descending)
        assert keys == known + [None] * (len(keys) - len(known))


def test_an_unknown_order_names_the_known_ones(home: Home) -> None:
    with pytest.raises(ValueError, match="Sort by one of id, state"):
        home.reader.trials(order=Order("id; DROP TABLE trial"))


def test_a_page_of_many_trials_uses_the_index(home: Home) -> None:
    connection = home.reader._connection
    plan = connection.execute(
        "EXPLAIN QUERY PLAN SELECT id FROM trial WHERE experiment_id=1 "
        "ORDER BY best_validation ASC NULLS LAST, id LIMIT 10"
    ).fetchall()
    assert any("trial_by_best" in row[-1] for row in plan)
    assert not any("TEMP B-TREE" in row[-1] for row in plan)


def test_checkpoints_are_rated_by_the_validation_at_their_step(home: Home) -> None:
    run = home.new_run(home.new_trial())
    home.ingest(
        run,
        report(1, "validation", loss=0.5, accuracy=0.1),
        journal.Checkpoint("a", 1, {"w": 1}, {"steps_completed": 1}, time=1.0),
        journal.Checkpoint("b", 2, {"w": 1}, {"steps_completed": 2}, time=2.0),
    )
    where = CheckpointFilter(trial_id=run.trial_id)
    a, b = home.reader.rated_checkpoints(where)
    assert (a.checkpoint.uuid, a.value, a.metrics) == ("a", 0.5, {"loss": 0.5, "accuracy": 0.1})
    assert (b.checkpoint.uuid, b.value, b.metrics) == ("b", None, None)
    assert [r.value for r in home.reader.rated_checkpoints(where, "accuracy")] == [0.1, None]
    page = home.reader.checkpoints(where, Order("steps_completed", descending=True), limit=1)
    assert [c.uuid for c in page.rows] == ["b"]
    assert a.checkpoint.storage == {"type": "shared_fs"}
    assert a.checkpoint.allocation_id == f"{a.checkpoint.task_id}.1"


def test_live_updates_carry_new_reports_only(home: Home) -> None:
    run = home.new_run(home.new_trial())
    home.ingest(run, report(1, a=1.0))
    before, version = home.reader.metrics.last_report_id(), home.reader.data_version()
    home.ingest(run, report(2, a=1.0))
    assert home.reader.data_version() != version
    found = home.reader.metrics.reports_since([run.trial_id], before)
    assert [r.steps_completed for r in found] == [2]
    assert home.reader.metrics.names(home.experiment_id) == [("training", "a")]


def test_models_and_their_versions(home: Home) -> None:
    run = home.new_run(home.new_trial())
    home.ingest(run, journal.Checkpoint("a", 1, {}, {}), journal.Checkpoint("b", 2, {}, {}))
    with home.writer.transaction() as tx:
        model = tx.registry.create_model("net", "me", labels=["x"], metadata={"a": 1})
        first = tx.registry.register_version(model.id, "a")
        second = tx.registry.register_version(model.id, "b")
        tx.registry.update_version(second.id, name="good", notes="n")
        with pytest.raises(StoreError, match="exists already"):
            tx.registry.create_model("net", "me")
        with pytest.raises(StoreError, match="does not exist"):
            tx.registry.register_version(model.id, "c")
        with pytest.raises(StoreError, match="still has"):
            tx.registry.delete_project(1)
    assert (first.number, second.number) == (1, 2)
    newest, oldest = home.reader.registry.versions(model.id)
    assert (newest.name, oldest.checkpoint_uuid) == ("good", "a")
    assert [v.number for v in home.reader.registry.versions_of_checkpoint("a")] == [1]
    assert home.reader.registry.model("net") is not None
    with home.writer.transaction() as tx:
        tx.registry.delete_model(model.id)
    assert home.reader.registry.models() == []


def test_request_ids_are_unique_within_an_experiment(home: Home) -> None:
    new = NewTrial(home.experiment_id, "same", 1, {})
    with home.writer.transaction() as tx:
        tx.create_trial(new)
    with pytest.raises(StoreError, match="UNIQUE"), home.writer.transaction() as tx:
        tx.create_trial(new)
