"""The states of experiments and trials, and which may follow which. Pure."""

from __future__ import annotations

import enum

from determined.errors import RefusedError


class State(str, enum.Enum):
    """The state of an experiment or a trial; `DELETING` and the like are for experiments only."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    STOPPING_COMPLETED = "STOPPING_COMPLETED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    STOPPING_KILLED = "STOPPING_KILLED"
    STOPPING_ERROR = "STOPPING_ERROR"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"
    DELETING = "DELETING"
    DELETE_FAILED = "DELETE_FAILED"
    DELETED = "DELETED"

    @property
    def is_stopping(self) -> bool:
        return self in _SEVERITY

    @property
    def is_terminal(self) -> bool:
        return self in _TERMINAL

    @property
    def outcome(self) -> State:
        """The terminal state that a stopping one ends in."""
        return _OUTCOMES[self]


_TERMINAL = frozenset({State.COMPLETED, State.CANCELED, State.ERROR, State.DELETED})
_OUTCOMES = {
    State.STOPPING_COMPLETED: State.COMPLETED,
    State.STOPPING_CANCELED: State.CANCELED,
    State.STOPPING_KILLED: State.CANCELED,
    State.STOPPING_ERROR: State.ERROR,
}
# Of two reasons to stop, the more severe one counts.
_SEVERITY = {
    State.STOPPING_COMPLETED: 0,
    State.STOPPING_CANCELED: 1,
    State.STOPPING_KILLED: 2,
    State.STOPPING_ERROR: 3,
}


def more_severe(now: State, wanted: State) -> State:
    """The state of a trial that is to stop for `wanted`, given what it is doing `now`."""
    if now not in (State.ACTIVE, State.PAUSED) and not now.is_stopping:
        return now
    if now.is_stopping and _SEVERITY[now] >= _SEVERITY[wanted]:
        return now
    return wanted


def paused(state: State, what: str) -> State:
    """The state after `pause`; pausing twice is pausing once."""
    if state in (State.ACTIVE, State.PAUSED):
        return State.PAUSED
    raise RefusedError(f"{what} is {state.value}: only an active one can be paused.")


def activated(state: State, what: str) -> State:
    """The state after `activate`."""
    if state in (State.ACTIVE, State.PAUSED):
        return State.ACTIVE
    hint = f" `det experiment continue` runs {what} again." if state.is_terminal else ""
    raise RefusedError(f"{what} is {state.value}: only a paused one can be activated.{hint}")
