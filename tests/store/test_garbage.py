"""Which checkpoints stay: the policy's table, and what is never deleted."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined import journal
from determined.store import Candidate, NewTrial, Retention, Run, garbage, kept
from tests.store.homes import Home, report

_EXAMPLE = [
    Candidate("a", 1, 100, 0.9, 1),
    Candidate("b", 1, 200, None),
    Candidate("c", 1, 300, 0.5, 3),
    Candidate("d", 1, 400, 0.7, 4),
    Candidate("e", 2, 100, 0.4, 5),
    Candidate("f", 2, 200, 0.6, 6),
    Candidate("g", 2, 300, None),
]


@pytest.mark.parametrize(
    ("counts", "names"),
    [
        ((0, 0, 0), ""),
        ((1, 0, 0), "e"),
        ((3, 0, 0), "cef"),
        ((9, 0, 0), "acdef"),
        ((0, 1, 0), "ce"),
        ((0, 0, 1), "dg"),
        ((0, 0, 2), "cdfg"),
        ((0, 1, 1), "cdeg"),
        ((3, 1, 1), "cdefg"),
    ],
)
def test_the_policy_keeps_the_union_of_its_parts(counts: tuple[int, int, int], names: str) -> None:
    assert kept(_EXAMPLE, Retention(*counts), smaller_is_better=True) == set(names)


def test_larger_can_be_better() -> None:
    assert kept(_EXAMPLE, Retention(1, 1, 0), smaller_is_better=False) == {"a", "f"}


@pytest.mark.parametrize("smaller_is_better", [True, False])
def test_nan_ranks_last_and_earlier_validations_win(smaller_is_better: bool) -> None:
    candidates = [
        Candidate("nan", 1, 1, math.nan, 1),
        Candidate("later", 1, 2, 0.5, 9),
        Candidate("earlier", 1, 3, 0.5, 2),
    ]
    for count, names in ((1, {"earlier"}), (2, {"earlier", "later"})):
        assert kept(candidates, Retention(count, 0, 0), smaller_is_better) == names
    assert "nan" in kept(candidates, Retention(3, 0, 0), smaller_is_better)


_candidates = st.lists(
    st.builds(
        Candidate,
        uuid=st.uuids().map(str),
        trial_id=st.integers(1, 3),
        steps_completed=st.integers(0, 9),
        value=st.none() | st.floats(),
        validated=st.integers(0, 99),
    ),
    max_size=20,
    unique_by=lambda c: c.uuid,
)
_counts = st.builds(Retention, st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))


@given(_candidates, _counts, st.booleans(), st.sets(st.integers(0, 19)))
def test_garbage_is_what_nobody_keeps(
    candidates: list[Candidate], policy: Retention, smaller: bool, numbers: set[int]
) -> None:
    protected = {candidates[n].uuid for n in numbers if n < len(candidates)}
    gone = {candidate.uuid for candidate in garbage(candidates, policy, smaller, protected)}
    stays = kept(candidates, policy, smaller)
    assert gone.isdisjoint(stays | protected)
    assert gone | stays | protected == {candidate.uuid for candidate in candidates}
    for trial in {candidate.trial_id for candidate in candidates}:
        own = [c for c in candidates if c.trial_id == trial]
        newest = max(own, key=lambda c: c.steps_completed).steps_completed
        if policy.trial_latest:
            assert any(c.steps_completed == newest and c.uuid not in gone for c in own)


def save(home: Home, run: Run, uuid: str, steps: int) -> None:
    home.say(run, journal.Checkpoint(uuid, steps, {"w": 10}, {"steps_completed": steps}))


def gone(home: Home, policy: Retention) -> set[str]:
    return {rated.checkpoint.uuid for rated in home.reader.garbage(home.experiment_id, policy)}


def test_the_store_knows_the_same_table(home: Home) -> None:
    first, second = home.new_trial(), home.new_trial()
    for trial, saves in ((first, _EXAMPLE[:4]), (second, _EXAMPLE[4:])):
        run = home.new_run(trial)
        for candidate in saves:
            steps = candidate.steps_completed
            save(home, run, candidate.uuid, steps)
            if candidate.value is not None:
                home.say(run, report(steps, "validation", loss=candidate.value))
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


def test_deleted_checkpoints_are_counted_out(home: Home) -> None:
    trial = home.new_trial()
    run = home.new_run(trial)
    save(home, run, "a", 1)
    save(home, run, "b", 2)
    assert (home.trial(trial.id).checkpoint_count, home.trial(trial.id).checkpoint_size) == (2, 20)
    home.say(run, journal.CheckpointDeleted("a"))
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
