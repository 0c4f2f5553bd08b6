"""The inputs (events) and outputs (actions) of a searcher; both are plain data.

Every action that decides something carries its reason as a sentence, which the platform records.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

ERRORED, USER_CANCELED, INVALID_HP = "errored", "user_canceled", "invalid_hp"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to an experiment."""

    kind: ClassVar[str]


@dataclass(frozen=True, slots=True)
class TrialEvent(Event):
    """Something that happened to one trial."""

    request_id: str


class InitialTrials(Event):
    """The experiment starts: the first event, once."""

    kind = "initial_trials"


class TrialCreated(TrialEvent):
    """A trial that a `Create` requested has been recorded."""

    kind = "trial_created"


@dataclass(frozen=True, slots=True)
class ValidationCompleted(TrialEvent):
    """A trial reported validation metrics at a step."""

    kind = "validation_completed"
    metrics: dict[str, Any]
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Progress(TrialEvent):
    """A trial reports its progress, from 0 to 1."""

    kind = "progress"
    progress: float


class TrialPaused(TrialEvent):
    """A trial that was asked to pause has saved its checkpoint, and its processes have ended."""

    kind = "trial_paused"


@dataclass(frozen=True, slots=True)
class TrialExitedEarly(TrialEvent):
    """A trial ended for good without finishing; `TrialExited` follows.

    `digest` identifies an error's traceback; `progressed` says whether the trial trained at all.
    """

    kind = "trial_exited_early"
    reason: str
    digest: str | None = None
    progressed: bool = True


class TrialExited(TrialEvent):
    """A trial ended for good."""

    kind = "trial_exited"


@dataclass(frozen=True, slots=True)
class LimitsRaised(Event):
    """The experiment is continued with more trials, longer training or reruns.

    `rerun_failed` covers trials that failed or were canceled, `rerun_canceled` only the latter,
    `rerun_finished` those that trained to the end; a halving search never reruns these.
    """

    kind = "limits_raised"
    max_trials: int | None = None
    max_time: int | None = None
    max_length: int | None = None
    rerun_failed: bool = False
    rerun_canceled: bool = False
    rerun_finished: bool = False


class Stopping(Event):
    """The experiment is being canceled, killed or ended: nothing new may start."""

    kind = "stopping"


@dataclass(frozen=True, slots=True)
class Action:
    """Something that the platform has to do."""

    kind: ClassVar[str]


@dataclass(frozen=True, slots=True)
class TrialAction(Action):
    """Something that the platform has to do with one trial."""

    request_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Create(Action):
    """Create a trial and run it."""

    kind = "create"
    request_id: str
    trial_seed: int
    hparams: dict[str, Any] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Fork(Create):
    """Create a trial that shares the first `at` batches of another one, and run it from there.

    `changed` has the old and the new value of each hyperparameter that differs, by dotted name.
    """

    kind = "fork"
    parent_id: str = ""
    at: int = 0
    changed: dict[str, list[Any]] = field(default_factory=dict)


class Continue(TrialAction):
    """A trial passed a rung and keeps training: nothing to do, but recorded."""

    kind = "continue"


class Stop(TrialAction):
    """End a trial: preempt it if it runs; it counts as completed. `TrialExited` must follow."""

    kind = "stop"


class Pause(TrialAction):
    """Preempt a trial and keep its latest checkpoint; `TrialPaused` follows when it has ended."""

    kind = "pause"


class Resume(TrialAction):
    """Resume a paused or ended trial from its latest checkpoint, or restart it if it has none."""

    kind = "resume"


class FreeCheckpoints(TrialAction):
    """Checkpoints that were kept only to resume this trial are no longer needed."""

    kind = "free_checkpoints"


class FailTrial(TrialAction):
    """End a trial as failed; `TrialExitedEarly` with `errored` and `TrialExited` must follow."""

    kind = "fail_trial"


@dataclass(frozen=True, slots=True)
class PauseExperiment(Action):
    """Pause the whole experiment and show the reason."""

    kind = "pause_experiment"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Shutdown(Action):
    """The search is over; the experiment ends as failed, canceled or completed."""

    kind = "shutdown"
    cancel: bool = False
    failure: bool = False
    reason: str = ""


def to_json(item: Event | Action) -> dict[str, Any]:
    """Return an event or action as a dictionary that `event_from_json` understands."""
    names = _FIELDS.get(item.kind)
    if names is None:
        names = _FIELDS[item.kind] = tuple(entry.name for entry in fields(item))
    return {"kind": item.kind, **{name: getattr(item, name) for name in names}}


_FIELDS: dict[str, tuple[str, ...]] = {}

_EVENTS: dict[str, type[Event]] = {
    kind.kind: kind
    for base in (Event, TrialEvent)
    for kind in base.__subclasses__()
    if hasattr(kind, "kind")
}


def event_from_json(data: dict[str, Any]) -> Event:
    fields = {name: value for name, value in data.items() if name != "kind"}
    return _EVENTS[data["kind"]](**fields)
