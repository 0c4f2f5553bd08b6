"""Deletions are noted first, and told apart from what must stay."""

from __future__ import annotations

import json

import pytest

from determined import journal
from determined.errors import StoreError
from determined.store import Checkpoint, NewTrial, Trial
from tests.store.homes import Home


def _save(home: Home, trial: Trial, *uuids: str) -> None:
    run = home.new_run(trial)
    for steps, uuid in enumerate(uuids, 1):
        home.ingest(run, journal.Checkpoint(uuid, steps, {"w": 10, "o/": 0, "o/x": 5}, {}))


def _read(home: Home, uuid: str) -> Checkpoint:
    found = home.reader.checkpoint(uuid)
    assert found is not None
    return found


def _over(home: Home, trial: Trial) -> None:
    with home.writer.transaction() as tx:
        tx.update_trial(trial.id, state="COMPLETED")
        tx.update_experiment(trial.experiment_id, state="COMPLETED")


def test_a_deletion_is_due_until_it_ends(home: Home) -> None:
    trial = home.new_trial()
    _save(home, trial, "a", "b")
    _over(home, trial)
    assert not home.reader.has_chores()
    with home.writer.transaction() as tx:
        tx.deletions.begin("a")
        tx.deletions.begin("a")  # asked twice
        tx.deletions.begin("unknown")
    assert _read(home, "a").state == "DELETED"  # nobody may start from it any more
    assert _read(home, "a").resources != {}
    assert home.reader.has_chores()
    assert home.reader.is_deleting(trial.experiment_id)
    with home.writer.transaction() as tx:
        ((deletion, storage),) = tx.deletions.due(10)
        assert (deletion.uuid, deletion.globs) == ("a", ["**/*"])
        assert json.loads(storage or "") == {"type": "shared_fs"}
        tx.deletions.end("a", {})
    assert not home.reader.has_chores()
    assert (_read(home, "a").resources, _read(home, "a").size) == ({}, 0)
    assert home.trial(trial.id).checkpoint_count == 1
    assert home.trial(trial.id).checkpoint_size == 15


def test_what_failed_waits_until_somebody_asks_again(home: Home) -> None:
    trial = home.new_trial()
    _save(home, trial, "a", "b")
    _over(home, trial)
    with home.writer.transaction() as tx:
        tx.deletions.begin("a")
        tx.deletions.begin("b")
        tx.deletions.fail("a", "no way in")
        assert [d.uuid for d, _ in tx.deletions.due(10)] == ["a", "b"]
        assert [d.uuid for d, _ in tx.deletions.due(10, {"a"})] == ["b"]
        assert [d.uuid for d, _ in tx.deletions.due(1)] == ["a"]
        tx.deletions.end("b", {})
    assert not home.reader.has_chores()  # no supervisor is started in vain
    failed = home.reader.deletion("a")
    assert failed is not None
    assert failed.failure == "no way in"
    with home.writer.transaction() as tx:
        tx.deletions.begin("a")
    assert home.reader.has_chores()


def test_what_is_left_decides_the_state(home: Home) -> None:
    trial = home.new_trial()
    _save(home, trial, "some", "all", "none")
    _over(home, trial)
    left = {"some": {"w": 10}, "all": {"w": 10, "o/": 0, "o/x": 5}, "none": {}}
    with home.writer.transaction() as tx:
        for uuid, files in left.items():
            tx.deletions.begin(uuid, ["o"], "COMPLETED")
            tx.deletions.end(uuid, files)
    states = [_read(home, uuid).state for uuid in left]
    assert states == ["PARTIALLY_DELETED", "COMPLETED", "DELETED"]
    assert _read(home, "some").size == 10


def test_who_uses_a_checkpoint_is_named(home: Home) -> None:
    first, second = home.new_trial(), home.new_trial()
    _save(home, first, "old", "newest")
    _save(home, second, "registered", "warm", "other")
    everything = ["old", "newest", "registered", "warm", "other"]
    with home.writer.transaction() as tx:
        model = tx.registry.create_model("m", "me")
        tx.registry.register_version(model.id, "registered")
        tx.update_trial(second.id, state="COMPLETED")
        warm = tx.create_trial(
            NewTrial(home.experiment_id, "third", 1, {}, warm_start_checkpoint="warm")
        )
        assert tx.deletions.in_use(everything) == {
            "newest": f"trial {first.id} resumes from it",
            "registered": "it is version 1 of the model 'm'",
            "warm": f"trial {warm.id} resumes from it",
        }
        assert set(tx.deletions.in_use(everything, outside=home.experiment_id)) == {"registered"}
        assert tx.deletions.in_use(["old", "other"]) == {}
        for trial in (first, warm):
            tx.update_trial(trial.id, state="COMPLETED")
        assert set(tx.deletions.in_use(everything)) == {"registered"}


def test_all_checkpoints_of_an_experiment_go_at_once(home: Home) -> None:
    first, second = home.new_trial(), home.new_trial()
    _save(home, first, "a", "b")
    _save(home, second, "c")
    for trial in (first, second):
        _over(home, trial)
    with home.writer.transaction() as tx:
        tx.deletions.begin("a")
        tx.deletions.end("a", {})
        tx.deletions.begin("b")
        tx.deletions.fail("b", "no way in")
        assert tx.deletions.uuids_of(home.experiment_id) == ["b", "c"]
        tx.deletions.begin_all(home.experiment_id)
        assert [(d.uuid, d.globs) for d, _ in tx.deletions.due(9)] == [
            ("b", ["**/*"]),
            ("c", ["**/*"]),
        ]
        assert all(not d.failure for d in tx.deletions.of_experiment(home.experiment_id))
    assert (home.trial(first.id).checkpoint_count, home.trial(first.id).checkpoint_size) == (0, 15)
    with home.writer.transaction() as tx:
        for uuid in ("b", "c"):
            tx.deletions.end(uuid, {})
    read = home.reader.experiment(home.experiment_id)
    assert read is not None
    assert (read.checkpoint_count, read.checkpoint_size) == (0, 0)


def test_an_experiment_goes_trial_by_trial(home: Home) -> None:
    trials = [home.new_trial() for _ in range(5)]
    for trial in trials:
        _save(home, trial, f"of {trial.id}")
    with home.writer.transaction() as tx:
        tx.deletions.begin(f"of {trials[0].id}")
        assert not tx.delete_experiment(home.experiment_id, 2)
        assert len(tx.trials(home.experiment_id)) == 3
        assert not tx.delete_experiment(home.experiment_id, 2)
        assert tx.delete_experiment(home.experiment_id, 2)
    assert home.reader.experiment(home.experiment_id) is None
    assert home.reader.checkpoint(f"of {trials[4].id}") is None
    assert home.reader.deletion(f"of {trials[0].id}") is None


def test_what_is_being_deleted_cannot_be_registered(home: Home) -> None:
    _save(home, home.new_trial(), "some", "other")
    with home.writer.transaction() as tx:
        model = tx.registry.create_model("m", "me")
        tx.deletions.begin("some", ["w*"], "PARTIALLY_DELETED")
        with pytest.raises(StoreError, match="some is being deleted"):
            tx.registry.register_version(model.id, "some")
        assert tx.registry.register_version(model.id, "other").number == 1
