"""What the store calls garbage: the policy's table over its rows, and what is never deleted."""

from __future__ import annotations

from determined import journal
from determined._contracts.retention import Retention
from determined.store import NewTrial, Run
from tests.store.homes import Home, report
from tests.support.retention_table import TRIALS


def save(home: Home, run: Run, uuid: str, steps: int) -> None:
    home.ingest(run, journal.Checkpoint(uuid, steps, {"w": 10}, {"steps_completed": steps}))


def gone(home: Home, policy: Retention) -> set[str]:
    return {rated.checkpoint.uuid for rated in home.reader.garbage(home.experiment_id, policy)}


def test_the_store_knows_the_same_table(home: Home) -> None:
    for rows in TRIALS.values():
        trial = home.new_trial()
        run = home.new_run(trial)
        for uuid, steps, value in rows:
            save(home, run, uuid, steps)
            if value is not None:
                home.ingest(run, report(steps, "validation", loss=value))
        with home.writer.transaction() as tx:
            tx.update_trial(trial.id, state="COMPLETED")
    assert gone(home, Retention(0, 1, 1)) == {"a", "b", "f"}
    assert gone(home, Retention(0, 0, 0)) == set("abcdefg")


def test_what_is_in_use_stays(home: Home) -> None:
    trial = home.new_trial()
    run = home.new_run(trial)
    for uuid, steps in (("registered", 1), ("warm", 2), ("old", 3), ("newest", 4)):
        save(home, run, uuid, steps)
    with home.writer.transaction() as tx:
        model = tx.registry.create_model("m", "me")
        tx.registry.register_version(model.id, "registered")
        tx.create_trial(NewTrial(home.experiment_id, "other", 1, {}, warm_start_checkpoint="warm"))
    nothing = Retention(0, 0, 0)
    assert gone(home, nothing) == {"old"}
    with home.writer.transaction() as tx:
        tx.update_trial(trial.id, state="COMPLETED")
    assert gone(home, nothing) == {"old", "newest"}


def test_a_restart_would_use_the_newest_exact_one_so_it_stays(home: Home) -> None:
    run = home.new_run(home.new_trial())
    save(home, run, "old", 1)
    save(home, run, "exact", 2)
    home.ingest(run, journal.Checkpoint("failed", 3, {"w": 10}, {"not_exact": "an error"}))
    assert gone(home, Retention(0, 0, 0)) == {"old", "failed"}
    assert gone(home, Retention(0, 0, 1)) == {"old"}


def test_deleted_checkpoints_are_counted_out(home: Home) -> None:
    trial = home.new_trial()
    run = home.new_run(trial)
    save(home, run, "a", 1)
    save(home, run, "b", 2)
    assert (home.trial(trial.id).checkpoint_count, home.trial(trial.id).checkpoint_size) == (2, 20)
    home.ingest(run, journal.CheckpointDeleted("a"))
    with home.writer.transaction() as tx:
        assert tx.set_checkpoint_files("b", "PARTIALLY_DELETED", {"w": 4})
        assert not tx.set_checkpoint_files("c", "DELETED", {})
    read = home.trial(trial.id)
    assert (read.checkpoint_count, read.checkpoint_size) == (1, 4)
    a, b = home.reader.checkpoint("a"), home.reader.checkpoint("b")
    assert a is not None
    assert b is not None
    assert (a.state, a.resources, b.state) == ("DELETED", {}, "PARTIALLY_DELETED")
    assert gone(home, Retention(0, 0, 0)) == set()
