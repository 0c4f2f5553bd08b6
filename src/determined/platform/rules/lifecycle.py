"""What follows when a run of a trial ends: done, again, or waiting. Pure.

A run is one execution attempt. What counts is the trial's state (should it continue?), how the
process ended, and whether the trial made progress: a new checkpoint.
"""

from __future__ import annotations

import dataclasses
import enum

from determined.platform.rules.states import State

# Signals that stop a whole machine or session, as a shell reports them: HUP, INT, TERM.
_INTERRUPTED = (129, 130, 143)
# SIGKILL by another process, or for lack of memory: it says nothing about the script.
_KILLED = 137
_LONGEST_WAIT_SECONDS = 60
_LONG_ENOUGH_SECONDS = 60.0
_WAIT_AFTER_LOSS_SECONDS = 2.0


class EarlyExit(str, enum.Enum):
    """Why a trial ended before its search intended."""

    INVALID_HP = "INVALID_HP"
    ERRORED = "ERRORED"
    USER_CANCELED = "USER_CANCELED"


@dataclasses.dataclass(frozen=True)
class RunEnd:
    """How a run ended, once all its reports were read."""

    exit_code: int | None
    """None if its end was not observed: its machine or its keeper was lost."""
    is_acknowledged: bool = False
    """It acknowledged that it stops because it was asked to."""
    is_invalid_hp: bool = False
    brought_checkpoint: bool = False
    """It saved a checkpoint that is further than the one it started from."""
    was_killed_by_us: bool = False
    canceled_elsewhere: str = ""
    """That its user has canceled it with a command of the cluster, in words."""
    loss: str = ""
    """What is known about a loss."""
    cancels_retries: bool = False
    """A log policy matched that rules out another try."""
    lasted_seconds: float = 0.0
    error: str = ""
    """The last line of its traceback, or another short description of the failure."""


@dataclasses.dataclass(frozen=True)
class TrialFacts:
    """What the decision needs to know about a trial."""

    state: State
    restarts: int
    max_restarts: int
    last_error: str = ""
    """Of the previous run, if that failed without a new checkpoint."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The trial from here on. `waits_seconds` is for the next run of an active one."""

    state: State
    reason: str
    restarts: int
    early_exit: EarlyExit | None = None
    waits_seconds: float = 0.0
    last_error: str = ""


def after_run(trial: TrialFacts, end: RunEnd) -> Verdict:
    """Decide how a trial whose run has ended continues."""
    if end.is_invalid_hp:
        return _closed(trial, State.COMPLETED, "invalid hyperparameters", EarlyExit.INVALID_HP)
    if trial.state.is_stopping:
        return _after_stopping(trial, end)
    if end.canceled_elsewhere:
        return _closed(trial, State.CANCELED, end.canceled_elsewhere, EarlyExit.USER_CANCELED)
    if end.exit_code is None:
        return _after_loss(trial, end)
    if end.is_acknowledged and (end.exit_code == 0 or end.exit_code in _INTERRUPTED):
        return _again(trial, "stopped on request, with a checkpoint")
    if end.exit_code == 0:
        return _closed(trial, State.COMPLETED, "finished")
    if end.was_killed_by_us:
        return _again(trial, "killed: it did not stop in time")
    return _after_failure(trial, end)


def may_start(not_before: float, now: float) -> bool:
    """Whether a trial has waited long enough; no trial waits longer than the longest wait.

    Otherwise a clock that was set back would prolong it, maybe by years.
    """
    return not now < not_before <= now + max(_LONGEST_WAIT_SECONDS, _WAIT_AFTER_LOSS_SECONDS)


def _after_loss(trial: TrialFacts, end: RunEnd) -> Verdict:
    """Continue at once, unless that would be a loop: runs that are lost as soon as they start."""
    is_progress = end.brought_checkpoint or end.lasted_seconds >= _LONG_ENOUGH_SECONDS
    wait = 0.0 if is_progress else _WAIT_AFTER_LOSS_SECONDS
    reason = f"{end.loss or 'its process was lost'}; this does not count as a restart"
    return Verdict(trial.state, reason, trial.restarts, None, wait)


def _after_stopping(trial: TrialFacts, end: RunEnd) -> Verdict:
    outcome = trial.state.outcome
    failed = end.exit_code not in (None, 0, _KILLED) and not end.was_killed_by_us
    if failed and not (end.is_acknowledged and end.exit_code in _INTERRUPTED):
        reason = f"failed while it was stopping (status {end.exit_code}): {end.error}"
        return _closed(trial, State.ERROR, reason.rstrip(": "), EarlyExit.ERRORED)
    early = EarlyExit.USER_CANCELED if outcome is State.CANCELED else None
    reasons = {
        State.STOPPING_COMPLETED: "stopped by the search",
        State.STOPPING_CANCELED: "canceled",
        State.STOPPING_KILLED: "killed",
        State.STOPPING_ERROR: "ended because the experiment failed",
    }
    return _closed(trial, outcome, reasons[trial.state], early)


def _after_failure(trial: TrialFacts, end: RunEnd) -> Verdict:
    what = f"failed with status {end.exit_code}" + (f": {end.error}" if end.error else "")
    if end.cancels_retries:
        reason = f"{what}; a log policy forbids a restart"
        return _closed(trial, State.ERROR, reason, EarlyExit.ERRORED)
    if end.brought_checkpoint and trial.max_restarts > 0:
        return _again(trial, f"{what}; resumes at once from its new checkpoint")
    restarts = trial.restarts + 1
    if restarts > trial.max_restarts:
        tries = f"{what}; max_restarts is {trial.max_restarts}"
        return _closed(trial, State.ERROR, tries, EarlyExit.ERRORED)
    error = trial.last_error if end.exit_code == _KILLED else end.error
    if end.exit_code != _KILLED and error and error == trial.last_error:
        reason = f"{what}; the same error twice without a new checkpoint in between"
        return _closed(trial, State.ERROR, reason, EarlyExit.ERRORED)
    wait = float(min(2 ** (restarts - 1), _LONGEST_WAIT_SECONDS))
    reason = f"{what}; restart {restarts} of {trial.max_restarts} in {wait:.0f} s"
    return Verdict(trial.state, reason, restarts, None, wait, error)


def _again(trial: TrialFacts, reason: str) -> Verdict:
    return Verdict(trial.state, reason, trial.restarts)


def _closed(
    trial: TrialFacts, state: State, reason: str, early_exit: EarlyExit | None = None
) -> Verdict:
    return Verdict(state, reason, trial.restarts, early_exit)
