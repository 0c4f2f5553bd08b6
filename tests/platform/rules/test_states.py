"""Which state follows which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.errors import RefusedError
from determined.platform.rules.states import (
    State,
    activated,
    more_severe,
    paused,
)


def test_pause_and_activate_may_be_repeated() -> None:
    assert paused(paused(State.ACTIVE, "experiment 1"), "experiment 1") is State.PAUSED
    assert activated(activated(State.PAUSED, "it"), "it") is State.ACTIVE


@pytest.mark.parametrize("state", [State.COMPLETED, State.STOPPING_KILLED, State.DELETED])
def test_what_has_ended_cannot_be_paused_or_activated(state: State) -> None:
    with pytest.raises(RefusedError, match=f"experiment 3 is {state.value}"):
        paused(state, "experiment 3")
    with pytest.raises(RefusedError, match=f"experiment 3 is {state.value}"):
        activated(state, "experiment 3")


@given(state=st.sampled_from(State))
def test_cancel_and_kill_leave_what_has_ended_alone_and_may_be_repeated(state: State) -> None:
    for wanted in (State.STOPPING_CANCELED, State.STOPPING_KILLED):
        stopping = more_severe(state, wanted)
        assert more_severe(stopping, wanted) is stopping
        if state.is_terminal:
            assert stopping is state


def test_the_more_severe_reason_to_stop_counts() -> None:
    canceled, killed = State.STOPPING_CANCELED, State.STOPPING_KILLED
    assert more_severe(canceled, killed) is killed
    assert more_severe(killed, canceled) is killed
    assert more_severe(State.STOPPING_ERROR, State.STOPPING_COMPLETED) is State.STOPPING_ERROR


@given(state=st.sampled_from([s for s in State if s.is_stopping]))
def test_every_stopping_state_has_an_outcome(state: State) -> None:
    assert state.outcome.is_terminal
