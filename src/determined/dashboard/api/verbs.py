"""Actions: the commands of the platform's service, which the supervisor carries out.

The answer comes when the supervisor has accepted the action; its effects show as state changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from determined.dashboard.endpoints.endpoints import ApiError, Routes
from determined.dashboard.endpoints.parameters import (
    NO_NULL,
    Body,
    Changes,
    Description,
    Id,
    Label,
    Labels,
    Notes,
    OneOf,
)
from determined.dashboard.view import View
from determined.errors import DeterminedError
from determined.platform.service import Service
from determined.platform.service.forking import Forks

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

_Name = Annotated[str, Field(max_length=128, pattern=NO_NULL)]


class ExperimentChanges(Changes):
    name: _Name = ""
    description: Description = ""
    notes: Notes = ""
    labels: Labels = []


class ManyVerbs(Body):
    verb: Annotated[str, OneOf((*VERBS, *_LABELS))]
    ids: Annotated[list[Id], Field(max_length=_MOST_IDS)]
    label: Label = ""


class AcceptedJson(TypedDict):
    """An action was accepted; `state` is the current one."""

    ok: bool
    state: str


class OutcomeJson(TypedDict, total=False):
    ok: bool
    state: str
    error: str


class OutcomesJson(TypedDict):
    """The outcomes of an action on many experiments, by id."""

    results: dict[str, OutcomeJson]


@routes.post("/experiments/verbs")
def many(view: View, body: ManyVerbs) -> OutcomesJson:
    """An action on many experiments; each succeeds or fails independently."""
    act = _act(body.verb, body.label)
    results: dict[str, OutcomeJson] = {}
    for number in dict.fromkeys(body.ids):
        try:
            act(view.service, number)
            results[str(number)] = {"ok": True, "state": _state(view, number)}
        except DeterminedError as error:
            results[str(number)] = {"ok": False, "error": str(error)}
    return {"results": results}


def _act(verb: str, label: str) -> Callable[[Service, int], None]:
    if verb in VERBS:
        return VERBS[verb]
    if not label:
        raise ApiError(422, "label: expected a label, got none.")
    return lambda service, number: service.label(number, label, remove=verb == "unlabel")


@routes.post("/experiments/{id}/{verb}")
def one(view: View, id: Id, verb: Annotated[str, OneOf(tuple(VERBS))]) -> AcceptedJson:
    """An action on an experiment."""
    view.experiment(id)
    VERBS[verb](view.service, id)
    return {"ok": True, "state": _state(view, id)}


@routes.post("/trials/{id}/kill")
def kill_trial(view: View, id: Id) -> AcceptedJson:
    """End a trial at once."""
    view.trial(id)
    view.service.kill_trial(id)
    return {"ok": True, "state": view.trial(id).state}


class NewFork(Body):
    """What to fork a trial with."""

    at: Id
    hparams: Annotated[dict[str, Any], Field(max_length=1000)] = {}
    name: _Name = ""


class ForkStartJson(TypedDict):
    """Where a fork would start, in words, and how many batches would be trained again."""

    text: str
    batches_again: int


class ForkedJson(TypedDict):
    """The experiment of a new fork."""

    experiment_id: int


@routes.get("/trials/{id}/fork")
def plan_fork(view: View, id: Id, at: Id) -> ForkStartJson:
    """Where a fork of a trial at a batch would start; nothing is created."""
    view.trial(id)
    start = Forks(view.service).plan(id, at)
    return {"text": str(start), "batches_again": start.batches_again}


@routes.post("/trials/{id}/fork")
def fork(view: View, id: Id, body: NewFork) -> ForkedJson:
    """Create an experiment with one trial, whose first batches are those of this one."""
    view.trial(id)
    number = Forks(view.service).create(id, body.at, body.hparams, name=body.name or None)
    return {"experiment_id": number}


@routes.patch("/experiments/{id}")
def change(view: View, id: Id, body: ExperimentChanges) -> AcceptedJson:
    """Set the name, description, notes or labels."""
    view.experiment(id)
    changes = body.given()
    if "labels" in changes:
        changes["labels"] = list(dict.fromkeys(changes["labels"]))
    view.service.change(id, **changes)
    return {"ok": True, "state": view.experiment(id).state}


def _state(view: View, experiment_id: int) -> str:
    found = view.reader.experiment(experiment_id)
    return "DELETED" if found is None else found.state
