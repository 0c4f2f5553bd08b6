"""Which checkpoints stay: the policy's table, NaN, ties and the newest of each trial."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined._contracts.retention import Candidate, Retention, kept
from tests.support.retention_table import KEPT, TRIALS

_EXAMPLE = [
    Candidate(name, trial, steps, value, validated)
    for trial, rows in TRIALS.items()
    for validated, (name, steps, value) in enumerate(rows)
]


@pytest.mark.parametrize(("counts", "names"), KEPT)
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


def test_what_is_not_exact_does_not_count_and_stays_until_the_next_save() -> None:
    exact = [Candidate("a", 1, 3, 0.2, 1, 1), Candidate("b", 1, 6, 0.1, 2, 2)]
    failed = [
        Candidate("c", 1, 7, None, 0, 3, is_exact=False),
        Candidate("d", 1, 8, None, 0, 4, is_exact=False),
    ]
    latest = Retention(0, 0, 1)
    assert kept([*exact, *failed], latest, True) == {"b", "d"}
    assert kept([*exact, *failed, Candidate("e", 1, 7, None, 0, 5)], latest, True) == {"e"}
    assert kept(failed, Retention(0, 0, 0), True) == set()


_candidates = st.lists(
    st.builds(
        Candidate,
        uuid=st.uuids().map(str),
        trial_id=st.integers(1, 3),
        steps_completed=st.integers(0, 9),
        value=st.none() | st.floats(),
        validated=st.integers(0, 99),
        saved=st.integers(0, 10**9),
    ),
    max_size=20,
    unique_by=(lambda c: c.uuid, lambda c: c.saved),
)
_counts = st.builds(Retention, st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))


@given(_candidates, _counts, st.booleans())
def test_the_counts_hold_and_the_newest_of_each_trial_stay(
    candidates: list[Candidate], policy: Retention, smaller: bool
) -> None:
    stays = kept(candidates, policy, smaller)
    trials = {candidate.trial_id for candidate in candidates}
    per_trial = policy.trial_best + policy.trial_latest
    assert len(stays) <= policy.experiment_best + per_trial * len(trials)
    for trial in trials:
        own = [c for c in candidates if c.trial_id == trial]
        newest = max(own, key=lambda c: (c.steps_completed, c.saved))
        assert newest.uuid in stays or not policy.trial_latest


def test_of_two_saves_at_one_step_the_later_is_the_newest() -> None:
    saves = [Candidate("first", 1, 9, None, saved=1), Candidate("second", 1, 9, None, saved=2)]
    assert kept(saves, Retention(0, 0, 1), smaller_is_better=True) == {"second"}
