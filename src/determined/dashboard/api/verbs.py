"""Actions: the commands of the platform's service, which the supervisor carries out.

The answer comes when the supervisor has accepted the action; its effects show as state changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from determined.dashboard.endpoints.bodies import AN_ID, LABELS, list_of, record, text, values
from determined.dashboard.endpoints.endpoints import Refusal, Routes
from determined.dashboard.endpoints.kinds import Choice, Integer
from determined.dashboard.endpoints.parameters import ID
from determined.dashboard.view import View
from determined.errors import DeterminedError
from determined.platform.service import Service

routes = Routes("verbs")

VERBS: dict[str, Callable[[Service, int], None]] = {
    "pause": Service.pause,
    "activate": Service.activate,
    "cancel": Service.cancel,
    "kill": Service.kill,
    "archive": Service.archive,
    "unarchive": lambda service, number: service.archive(number, archived=False),
    "delete": lambda service, number: service.delete_experiments([number]),
}
_LABELS = ("label", "unlabel")
_MOST_IDS = 1000

_CHANGES = record(
    (),
    1,
    name=text(128),
    description=text(10_000),
    notes=text(500_000),
    labels=LABELS,
)
_MANY = record(
    ("verb", "ids"),
    verb={"type": "string", "enum": [*VERBS, *_LABELS]},
    ids=list_of(AN_ID, _MOST_IDS),
    label=text(128, 1),
)
AT = Integer(1)
_FORK = record(
    ("at",),
    at=AN_ID,
    hparams=values(1000),
    name=text(128),
)


class DoneShape(TypedDict):
    """An action was accepted; `state` is the current one."""

    ok: bool
    state: str


class OutcomeShape(TypedDict, total=False):
    ok: bool
    state: str
    error: str


class OutcomesShape(TypedDict):
    """The outcomes of an action on many experiments, by id."""

    results: dict[str, OutcomeShape]


@routes.post("/experiments/verbs", body=_MANY)
def many(view: View, body: dict[str, Any]) -> OutcomesShape:
    """An action on many experiments; each succeeds or fails independently."""
    act = _act(body["verb"], body.get("label"))
    results: dict[str, OutcomeShape] = {}
    for number in dict.fromkeys(body["ids"]):
        try:
            act(view.service, number)
            results[str(number)] = {"ok": True, "state": _state(view, number)}
        except DeterminedError as error:
            results[str(number)] = {"ok": False, "error": str(error)}
    return {"results": results}


def _act(verb: str, label: str | None) -> Callable[[Service, int], None]:
    if verb in VERBS:
        return VERBS[verb]
    if label is None:
        raise Refusal(422, "label: expected a label, got none.")
    return lambda service, number: service.label(number, label, remove=verb == "unlabel")


@routes.post("/experiments/{id}/{verb}", id=ID, verb=Choice(tuple(VERBS)))
def one(view: View, id: int, verb: str) -> DoneShape:
    """An action on an experiment."""
    view.experiment(id)
    VERBS[verb](view.service, id)
    return {"ok": True, "state": _state(view, id)}


@routes.post("/trials/{id}/kill", id=ID)
def kill_trial(view: View, id: int) -> DoneShape:
    """End a trial at once."""
    view.trial(id)
    view.service.kill_trial(id)
    return {"ok": True, "state": view.trial(id).state}


class ForkStartShape(TypedDict):
    """Where a fork would start, in words, and how many batches would be trained again."""

    text: str
    batches_again: int


class ForkedShape(TypedDict):
    """The experiment of a new fork."""

    experiment_id: int


@routes.get("/trials/{id}/fork", id=ID, at=AT)
def plan_fork(view: View, id: int, at: int) -> ForkStartShape:
    """Where a fork of a trial at a batch would start; nothing is created."""
    view.trial(id)
    start = view.service.plan_fork(id, at)
    return {"text": str(start), "batches_again": start.batches_again}


@routes.post("/trials/{id}/fork", id=ID, body=_FORK)
def fork(view: View, id: int, body: dict[str, Any]) -> ForkedShape:
    """Create an experiment with one trial, whose first batches are those of this one."""
    view.trial(id)
    number = view.service.fork(id, body["at"], body.get("hparams"), name=body.get("name") or None)
    return {"experiment_id": number}


@routes.patch("/experiments/{id}", id=ID, body=_CHANGES)
def change(view: View, id: int, body: dict[str, Any]) -> DoneShape:
    """Set the name, description, notes or labels."""
    if "labels" in body:
        body = body | {"labels": list(dict.fromkeys(body["labels"]))}
    view.experiment(id)
    view.service.change(id, **body)
    return {"ok": True, "state": view.experiment(id).state}


def _state(view: View, experiment_id: int) -> str:
    found = view.reader.experiment(experiment_id)
    return "DELETED" if found is None else found.state
