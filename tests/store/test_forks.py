"""Forks read as one curve that branches off from their parent's, and keep what they need of it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from determined import journal
from determined.errors import StoreError
from determined.store import (
    CurveKey,
    Experiment,
    Fork,
    NewExperiment,
    NewTrial,
    OtherStore,
    Retention,
    Trial,
)
from tests.store.homes import Home, a_home, report


def new_fork(home: Home, parent: Trial, at: int, checkpoint: str | None = None) -> Trial:
    """A fork in an experiment of its own."""
    with home.writer.transaction() as tx:
        experiment = tx.create_experiment(NewExperiment({}, "me", "fork", searcher_metric="loss"))
        trial = tx.create_trial(NewTrial(experiment.id, "request", 1, {"lr": 0.2}))
        tx.forks.add(Fork(trial.id, parent.id, at, checkpoint, {"lr": [0.1, 0.2]}, None))
        return trial


def trained(home: Home, steps: range, value: float, trial: Trial | None = None) -> Trial:
    """A trial that has reported every second step, with a loss for each batch."""
    trial = trial or home.new_trial()
    run = home.new_run(trial, steps.start)
    for step in range(steps.start + 2, steps.stop + 1, 2):
        batches = [{"loss": value + step - 1}, {"loss": value + step}]
        home.ingest(run, report(step, batches=batches, loss=value + step))
        home.ingest(run, report(step, "validation", loss=value + step))
    return trial


def points(
    home: Home, trial: Trial, *, per_batch: bool = False, x: str = "steps"
) -> list[tuple[float, float]]:
    key = CurveKey(trial.id, "training", "loss", per_batch)
    (found,) = home.reader.metrics.curves([key], x)
    return list(zip(found.x.tolist(), found.lasts.tolist(), strict=True))


def test_rows_up_to_the_batch_are_the_parents_and_the_rest_its_own(home: Home) -> None:
    parent = trained(home, range(0, 8), 0.0)
    fork = new_fork(home, parent, 4)
    trained(home, range(2, 8), 100.0, fork)  # trained again from an older checkpoint
    assert points(home, fork) == [(2, 2.0), (4, 4.0), (6, 106.0), (8, 108.0)]
    assert points(home, parent) == [(2, 2.0), (4, 4.0), (6, 6.0), (8, 8.0)]
    rows = [
        (r.trial_id, r.steps_completed) for r in home.reader.metrics.reports(fork.id, "training")
    ]
    assert rows == [(parent.id, 2), (parent.id, 4), (fork.id, 6), (fork.id, 8)]
    own = home.reader.metrics.reports_since([fork.id], 0)
    assert {r.steps_completed for r in own} == {6, 8}  # nothing is stored twice


def test_a_batch_inside_a_report_divides_the_points_of_batches(home: Home) -> None:
    parent = trained(home, range(0, 8), 0.0)
    fork = new_fork(home, parent, 5)
    trained(home, range(4, 8), 100.0, fork)
    found = points(home, fork, per_batch=True)
    assert found == [(n, float(n)) for n in range(1, 6)] + [(n, 100.0 + n) for n in range(6, 9)]


def test_long_curves_join_at_the_batch_however_coarse_they_are(home: Home) -> None:
    parent = home.new_trial()
    run = home.new_run(parent)
    columns = journal.BatchColumns.of([{"loss": 0.0}] * 10_000)
    home.ingest(run, journal.Metrics("training", 10_000, {}, columns, time=1.0))
    fork = new_fork(home, parent, 5_000)
    run = home.new_run(fork, 5_000)
    columns = journal.BatchColumns.of([{"loss": 1.0}] * 10_000)
    home.ingest(run, journal.Metrics("training", 10_000, {}, columns, time=2.0))
    (found,) = home.reader.metrics.curves([CurveKey(fork.id, "training", "loss", True)], pixels=50)
    assert found.num_points == 10_000
    assert [value for value in found.maxs[found.x_last <= 5_000] if value != 0] == []
    assert [value for value in found.mins[found.x > 5_000] if value != 1] == []


def test_a_fork_of_a_fork_reads_through_both(home: Home) -> None:
    first = trained(home, range(0, 8), 0.0)
    second = trained(home, range(2, 8), 100.0, new_fork(home, first, 2))
    third = trained(home, range(6, 8), 200.0, new_fork(home, second, 6))
    assert points(home, third) == [(2, 2.0), (4, 104.0), (6, 106.0), (8, 208.0)]


def test_times_count_from_the_start_of_the_first_ancestor(home: Home) -> None:
    parent = trained(home, range(0, 4), 0.0)
    fork = trained(home, range(2, 4), 100.0, new_fork(home, parent, 2))
    own = points(home, parent, x="relative")
    assert points(home, fork, x="relative")[0] == own[0]


def test_lineage_is_known_on_both_sides(home: Home) -> None:
    parent = trained(home, range(0, 8), 0.0)
    forks = [new_fork(home, parent, at) for at in (6, 4)]
    assert [f.trial_id for f in home.reader.forks.forks_of(parent.id)] == [forks[1].id, forks[0].id]
    found = home.reader.forks.fork(forks[0].id)
    assert found is not None
    assert (found.parent_trial_id, found.at, found.changed) == (parent.id, 6, {"lr": [0.1, 0.2]})
    assert home.reader.forks.fork(parent.id) is None


def save(home: Home, trial: Trial, steps: int, **metadata: object) -> str:
    uuid = f"{trial.id}-{steps}{'x' * len(metadata)}"
    run = home.reader.runs(trial.id)[-1]
    home.ingest(run, journal.Checkpoint(uuid, steps, {"weights": 1}, dict(metadata)))
    return uuid


def test_a_fork_starts_from_the_newest_exact_checkpoint_with_files(home: Home) -> None:
    parent = trained(home, range(0, 8), 0.0)
    for steps in (2, 4, 6):
        save(home, parent, steps)
    save(home, parent, 5, not_exact="after an error")
    base = [home.reader.forks.base(parent.id, at) for at in (1, 2, 5, 8)]
    assert [c and c.steps_completed for c in base] == [None, 2, 4, 6]
    with home.writer.transaction() as tx:
        tx.deletions.begin(f"{parent.id}-4")
    found = home.reader.forks.base(parent.id, 5)
    assert found is not None
    assert found.steps_completed == 2
    # A fork without a checkpoint of its own has those of its parent, up to where it left it.
    fork = new_fork(home, parent, 3)
    found = home.reader.forks.base(fork.id, 8)
    assert found is not None
    assert found.uuid == f"{parent.id}-2"


def test_policies_and_people_leave_the_checkpoint_of_a_fork_alone(home: Home) -> None:
    parent = trained(home, range(0, 8), 0.0)
    kept, gone, newest = (save(home, parent, steps) for steps in (2, 4, 6))
    fork = new_fork(home, parent, 2, kept)
    with home.writer.transaction() as tx:
        tx.update_trial(parent.id, state="COMPLETED")
        assert tx.deletions.in_use([kept, gone]) == {
            kept: f"trial {fork.id} is a fork that starts from it"
        }
    garbage = home.reader.garbage(home.experiment_id, Retention(0, 0, 1))
    assert [r.checkpoint.uuid for r in garbage] == [gone]
    assert home.reader.checkpoint(newest) is not None


def test_deleting_the_parent_keeps_what_forks_need(home: Home) -> None:
    parent, other = trained(home, range(0, 8), 0.0), trained(home, range(0, 8), 50.0)
    kept, gone = save(home, parent, 2), save(home, parent, 8)
    fork = trained(home, range(4, 8), 100.0, new_fork(home, parent, 5, kept))
    before = points(home, fork), points(home, fork, per_batch=True)
    delete(home, home.experiment_id)
    left = experiment(home, home.experiment_id)
    assert left is not None
    assert (left.state, left.archived) == ("DELETED", True)
    assert home.reader.trial(other.id) is None
    assert (points(home, fork), points(home, fork, per_batch=True)) == before
    assert [n for n, _ in points(home, parent, per_batch=True)] == [1, 2, 3, 4, 5]
    assert [r.steps_completed for r in home.reader.metrics.reports(parent.id, "training")] == [2, 4]
    assert home.reader.runs(parent.id) == []
    assert home.reader.checkpoint(gone) is None
    found = home.reader.checkpoint(kept)
    assert found is not None
    assert found.state == "COMPLETED"
    # With the last fork, the rest goes.
    delete(home, fork.experiment_id)
    assert experiment(home, fork.experiment_id) is None
    left = experiment(home, home.experiment_id)
    assert left is not None
    assert left.state == "DELETING"
    assert home.reader.deletion(kept) is not None
    delete(home, home.experiment_id)
    assert experiment(home, home.experiment_id) is None


@pytest.mark.parametrize("first", ["middle", "last"])
def test_a_chain_of_forks_may_be_deleted_in_any_order(home: Home, first: str) -> None:
    root = trained(home, range(0, 8), 0.0)
    middle = trained(home, range(2, 8), 100.0, new_fork(home, root, 2))
    last = trained(home, range(4, 8), 200.0, new_fork(home, middle, 4))
    if first == "middle":
        delete(home, middle.experiment_id)
        assert points(home, last) == [(2, 2.0), (4, 104.0), (6, 206.0), (8, 208.0)]
        delete(home, last.experiment_id)
        delete(home, middle.experiment_id)
    else:
        delete(home, last.experiment_id)
        assert points(home, middle)[1:] == [(4, 104.0), (6, 106.0), (8, 108.0)]
        delete(home, middle.experiment_id)
    assert experiment(home, middle.experiment_id) is None
    assert points(home, root) == [(2, 2.0), (4, 4.0), (6, 6.0), (8, 8.0)]


def experiment(home: Home, experiment_id: int) -> Experiment | None:
    return home.reader.experiment(experiment_id)


def delete(home: Home, experiment_id: int) -> None:
    """Delete an experiment, as the supervisor does once its files are gone."""
    with home.writer.transaction() as tx:
        tx.deletions.begin_all(experiment_id)
        for deletion in tx.deletions.of_experiment(experiment_id):
            tx.deletions.end(deletion.uuid, {})
        tx.delete_experiment(experiment_id)


def test_forks_of_another_home_come_with_their_lineage(home: Home, tmp_path: Path) -> None:
    parent = trained(home, range(0, 8), 0.0)
    fork = trained(home, range(4, 8), 100.0, new_fork(home, parent, 4))
    with home.writer.transaction() as tx:
        for number in (home.experiment_id, fork.experiment_id):
            tx.update_experiment(number, state="COMPLETED")
        for trial in (parent, fork):
            for run in home.reader.runs(trial.id):
                tx.end_run(trial.id, run.run_id, 0)
    with a_home(tmp_path / "here") as here, contextlib.closing(OtherStore(home.path)) as other:
        with here.writer.transaction() as tx, pytest.raises(StoreError, match="import that first"):
            tx.import_experiment(other, fork.experiment_id, here.path)
        with here.writer.transaction() as tx:
            tx.import_experiment(other, home.experiment_id, here.path)
            imported = tx.import_experiment(other, fork.experiment_id, here.path)
        new = here.trial(imported.trials[fork.id])
        assert points(here, new) == points(home, fork)
