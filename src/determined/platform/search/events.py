"""What a searcher hears (events) and what it says (actions); both are plain data.

Every action that decides something carries the reason as a sentence, which the platform keeps.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from determined.platform.search import trials as t

ERRORED, USER_CANCELED, INVALID_HP = "errored", "user_canceled", "invalid_hp"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to an experiment."""

    kind: ClassVar[str]


@dataclass(frozen=True, slots=True)
class InitialTrials(Event):
    """The experiment starts: the first event, once."""

    kind: ClassVar[str] = "initial_trials"


@dataclass(frozen=True, slots=True)
class TrialCreated(Event):
    """The record of a trial that a `Create` asked for exists."""

    kind: ClassVar[str] = "trial_created"
    request_id: str


@dataclass(frozen=True, slots=True)
class ValidationCompleted(Event):
    """A trial reported validation metrics after so many steps."""

    kind: ClassVar[str] = "validation_completed"
    request_id: str
    metrics: dict[str, Any]
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Progress(Event):
    """A trial says how far it is, from 0 to 1."""

    kind: ClassVar[str] = "progress"
    request_id: str
    progress: float


@dataclass(frozen=True, slots=True)
class TrialPaused(Event):
    """A trial that was told to pause has saved its checkpoint, and its processes are gone."""

    kind: ClassVar[str] = "trial_paused"
    request_id: str


@dataclass(frozen=True, slots=True)
class TrialExitedEarly(Event):
    """A trial ended for good, not by finishing; `TrialExited` follows.

    `digest` names an error's traceback, `progressed` says whether the trial had trained at all.
    """

    kind: ClassVar[str] = "trial_exited_early"
    request_id: str
    reason: str
    digest: str | None = None
    progressed: bool = True


@dataclass(frozen=True, slots=True)
class TrialExited(Event):
    """A trial ended for good."""

    kind: ClassVar[str] = "trial_exited"
    request_id: str


@dataclass(frozen=True, slots=True)
class LimitsRaised(Event):
    """The experiment is continued: more trials, longer training, trials again.

    `rerun_failed` is about trials that failed or were canceled, `rerun_canceled` about the latter
    alone, `rerun_finished` about those that came to their end; a halving search never reruns these.
    """

    kind: ClassVar[str] = "limits_raised"
    max_trials: int | None = None
    max_time: int | None = None
    max_length: int | None = None
    rerun_failed: bool = False
    rerun_canceled: bool = False
    rerun_finished: bool = False

    @property
    def unfinished(self) -> tuple[str, ...]:
        """The statuses of unfinished trials that are to run again."""
        if self.rerun_failed:
            return t.FAILED
        return (t.CANCELED,) if self.rerun_canceled else ()


@dataclass(frozen=True, slots=True)
class Stopping(Event):
    """The experiment is being canceled, killed or ended: nothing new may start."""

    kind: ClassVar[str] = "stopping"


@dataclass(frozen=True, slots=True)
class Action:
    """Something that the platform has to do."""

    kind: ClassVar[str]


@dataclass(frozen=True, slots=True)
class Create(Action):
    """Make a trial and run it."""

    kind: ClassVar[str] = "create"
    request_id: str
    trial_seed: int
    hparams: dict[str, Any] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Continue(Action):
    """A trial passed a rung and trains on: nothing to do, kept for the record."""

    kind: ClassVar[str] = "continue"
    request_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stop(Action):
    """End a trial: preempt it if it runs; it counts as completed. `TrialExited` must follow."""

    kind: ClassVar[str] = "stop"
    request_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Pause(Action):
    """Preempt a trial and keep its latest checkpoint; `TrialPaused` follows when it is gone."""

    kind: ClassVar[str] = "pause"
    request_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Resume(Action):
    """Run a paused or ended trial again from its latest checkpoint, or anew if it has none."""

    kind: ClassVar[str] = "resume"
    request_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FreeCheckpoints(Action):
    """Checkpoints that were held only to resume this trial are no longer needed for that."""

    kind: ClassVar[str] = "free_checkpoints"
    request_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FailTrial(Action):
    """End a trial as failed; `TrialExitedEarly` with `errored` and `TrialExited` must follow."""

    kind: ClassVar[str] = "fail_trial"
    request_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PauseExperiment(Action):
    """Pause the whole experiment and show the reason."""

    kind: ClassVar[str] = "pause_experiment"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Shutdown(Action):
    """The search is over; the experiment ends as failed, canceled or completed."""

    kind: ClassVar[str] = "shutdown"
    cancel: bool = False
    failure: bool = False
    reason: str = ""


def to_json(item: Event | Action) -> dict[str, Any]:
    """Return an event or action as a dictionary that `event_from_json` understands."""
    slots: tuple[str, ...] = item.__slots__  # those of the class itself: its fields
    return {"kind": item.kind, **{name: getattr(item, name) for name in slots}}


_EVENTS: dict[str, type[Event]] = {kind.kind: kind for kind in Event.__subclasses__()}


def event_from_json(data: dict[str, Any]) -> Event:
    fields = {name: value for name, value in data.items() if name != "kind"}
    return _EVENTS[data["kind"]](**fields)


def dump(data: Any) -> str:
    """Return JSON text, the same for equal data; NaN and infinities are kept as tagged strings."""
    try:
        return _dumps(data)
    except ValueError:
        return _dumps(_tag(data))


def load(text: str) -> Any:
    """Return what `dump` wrote."""
    return json.loads(text, object_hook=_untag)


def _dumps(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _tag(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return {"$float": repr(data)}
    if isinstance(data, dict):
        return {key: _tag(value) for key, value in data.items()}
    return [_tag(value) for value in data] if isinstance(data, (list, tuple)) else data


def _untag(data: dict[str, Any]) -> Any:
    return float(data["$float"]) if data.keys() == {"$float"} else data
