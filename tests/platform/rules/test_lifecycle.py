"""What becomes of a trial whose run has ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.platform.rules.lifecycle import EarlyExit, RunEnd, TrialFacts, after_run
from determined.platform.rules.states import State

ACTIVE = TrialFacts(State.ACTIVE, restarts=0, max_restarts=5)


@pytest.mark.parametrize(
    ("state", "end", "expected"),
    [
        (State.STOPPING_CANCELED, RunEnd(0, is_acknowledged=True), State.CANCELED),
        (State.STOPPING_CANCELED, RunEnd(143, is_acknowledged=True), State.CANCELED),
        (State.STOPPING_CANCELED, RunEnd(1, is_acknowledged=True), State.ERROR),
        (State.STOPPING_KILLED, RunEnd(137, was_killed_by_us=True), State.CANCELED),
        (State.STOPPING_KILLED, RunEnd(None), State.CANCELED),
        (State.STOPPING_COMPLETED, RunEnd(0, is_acknowledged=True), State.COMPLETED),
        (State.STOPPING_COMPLETED, RunEnd(0), State.COMPLETED),
        (State.STOPPING_COMPLETED, RunEnd(7), State.ERROR),
        (State.STOPPING_COMPLETED, RunEnd(137), State.COMPLETED),
        (State.STOPPING_CANCELED, RunEnd(137), State.CANCELED),
        (State.STOPPING_ERROR, RunEnd(0), State.ERROR),
        (State.ACTIVE, RunEnd(0, is_acknowledged=True), State.ACTIVE),
        (State.PAUSED, RunEnd(0, is_acknowledged=True), State.PAUSED),
        (State.ACTIVE, RunEnd(143, is_acknowledged=True), State.ACTIVE),
        (State.ACTIVE, RunEnd(0), State.COMPLETED),
        (State.PAUSED, RunEnd(0), State.COMPLETED),
        (State.PAUSED, RunEnd(137, was_killed_by_us=True), State.PAUSED),
        (State.ACTIVE, RunEnd(None), State.ACTIVE),
        (State.ACTIVE, RunEnd(1), State.ACTIVE),
        (State.ACTIVE, RunEnd(1, cancels_retries=True), State.ERROR),
        (State.ACTIVE, RunEnd(1, is_invalid_hp=True), State.COMPLETED),
        (State.STOPPING_CANCELED, RunEnd(0, is_invalid_hp=True), State.COMPLETED),
    ],
)
def test_the_end_of_a_run_decides_the_state(state: State, end: RunEnd, expected: State) -> None:
    assert after_run(TrialFacts(state, 0, 5), end).state is expected


def test_a_trial_that_always_fails_differently_runs_max_restarts_plus_one_times() -> None:
    trial, waits = ACTIVE, []
    for attempt in range(6):
        verdict = after_run(trial, RunEnd(1, error=f"error {attempt}"))
        waits.append(verdict.waits_seconds)
        trial = TrialFacts(verdict.state, verdict.restarts, 5, verdict.last_error)
    assert verdict.state is State.ERROR
    assert waits == [1, 2, 4, 8, 16, 0]


def test_the_same_error_twice_without_progress_ends_a_trial() -> None:
    first = after_run(ACTIVE, RunEnd(1, error="ValueError: no"))
    again = TrialFacts(first.state, first.restarts, 5, first.last_error)
    assert after_run(again, RunEnd(1, error="ValueError: other")).state is State.ACTIVE
    second = after_run(again, RunEnd(1, error="ValueError: no"))
    assert second.state is State.ERROR
    assert "same error twice" in second.reason


def test_a_kill_from_outside_is_no_error_that_repeats() -> None:
    trial, waits = TrialFacts(State.ACTIVE, 0, 3, last_error="ValueError: no"), []
    for _ in range(3):
        verdict = after_run(trial, RunEnd(137, error="the last line"))
        waits.append((verdict.state, verdict.restarts, verdict.waits_seconds))
        trial = TrialFacts(verdict.state, verdict.restarts, 3, verdict.last_error)
    assert waits == [(State.ACTIVE, n, 2 ** (n - 1)) for n in (1, 2, 3)]
    assert after_run(trial, RunEnd(1, error="ValueError: no")).state is State.ERROR
    assert after_run(trial, RunEnd(137)).state is State.ERROR  # as often as `max_restarts` allows


def test_a_failure_after_a_new_checkpoint_does_not_count() -> None:
    trial = TrialFacts(State.ACTIVE, restarts=1, max_restarts=1, last_error="ValueError: no")
    verdict = after_run(trial, RunEnd(1, brought_checkpoint=True, error="ValueError: no"))
    assert (verdict.state, verdict.restarts, verdict.waits_seconds) == (State.ACTIVE, 1, 0)
    assert verdict.last_error == ""


def test_no_restarts_means_none_whatever_was_saved() -> None:
    trial = TrialFacts(State.ACTIVE, restarts=0, max_restarts=0)
    verdict = after_run(trial, RunEnd(1, brought_checkpoint=True, error="ValueError: no"))
    assert verdict.state is State.ERROR
    assert verdict.reason == "failed with status 1: ValueError: no; max_restarts is 0"


def test_the_search_is_told_why_a_trial_ended_early() -> None:
    canceled = TrialFacts(State.STOPPING_CANCELED, 0, 5)
    assert after_run(canceled, RunEnd(0)).early_exit is EarlyExit.USER_CANCELED
    stopped = TrialFacts(State.STOPPING_COMPLETED, 0, 5)
    assert after_run(stopped, RunEnd(0)).early_exit is None
    last = TrialFacts(State.ACTIVE, 5, 5)
    assert after_run(last, RunEnd(1)).early_exit is EarlyExit.ERRORED
    invalid = after_run(ACTIVE, RunEnd(1, is_invalid_hp=True))
    assert invalid.early_exit is EarlyExit.INVALID_HP


ends = st.builds(
    RunEnd,
    exit_code=st.none() | st.sampled_from([0, 1, 129, 130, 137, 143]),
    is_acknowledged=st.booleans(),
    is_invalid_hp=st.booleans(),
    brought_checkpoint=st.booleans(),
    was_killed_by_us=st.booleans(),
    cancels_retries=st.booleans(),
    error=st.sampled_from(["", "a", "b"]),
)


@given(
    state=st.sampled_from([s for s in State if s.is_stopping or s in (State.ACTIVE, State.PAUSED)]),
    restarts=st.integers(0, 6),
    end=ends,
)
def test_a_stopping_trial_always_ends_and_restarts_never_fall(
    state: State, restarts: int, end: RunEnd
) -> None:
    verdict = after_run(TrialFacts(state, restarts, 5), end)
    assert verdict.restarts >= restarts
    assert verdict.reason
    if state.is_stopping:
        assert verdict.state.is_terminal
    else:
        assert verdict.state in (state, State.COMPLETED, State.ERROR)
