"""What can be done: the verbs of the platform's service, which the supervisor carries out.

An answer comes when the supervisor has taken note. What became of it shows as changes of state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from determined.dashboard.endpoints import Refusal, Routes
from determined.dashboard.kinds import Choice
from determined.dashboard.parameters import ID
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
}
_delete: Any = getattr(Service, "delete_experiments", None)
if _delete is not None:
    VERBS["delete"] = lambda service, number: _delete(service, [number])
_LONGEST = {"name": 128, "description": 10_000, "notes": 500_000}
_LABELS = ("label", "unlabel")
_MOST_IDS = 1000
_LABEL = {"type": "string", "minLength": 1, "maxLength": 128}

_CHANGES = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": False,
    "properties": {
        **{name: {"type": "string", "maxLength": longest} for name, longest in _LONGEST.items()},
        "labels": {"type": "array", "items": _LABEL, "maxItems": 100},
    },
}
_MANY = {
    "type": "object",
    "required": ["verb", "ids"],
    "additionalProperties": False,
    "properties": {
        "verb": {"type": "string", "enum": [*VERBS, *_LABELS]},
        "ids": {"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": _MOST_IDS},
        "label": _LABEL,
    },
}


class DoneShape(TypedDict):
    """A verb was taken note of; the state is that of now."""

    ok: bool
    state: str


class OutcomeShape(TypedDict, total=False):
    ok: bool
    state: str
    error: str


class OutcomesShape(TypedDict):
    """What became of a verb on many, by id."""

    results: dict[str, OutcomeShape]


@routes.post("/experiments/verbs", body=_MANY)
def many(view: View, body: dict[str, Any]) -> OutcomesShape:
    """A verb on many experiments; each succeeds or fails by itself."""
    ids, verb = body.get("ids"), body.get("verb")
    if not isinstance(ids, list) or len(ids) > _MOST_IDS or not all(map(_is_id, ids)):
        raise Refusal(422, f"ids: expected up to {_MOST_IDS} ids of experiments.")
    if unknown := body.keys() - _MANY["properties"].keys():  # type: ignore[attr-defined]
        raise Refusal(422, f"There is no {sorted(unknown)[0]!r} here.")
    act = _act(verb, body.get("label"))
    results: dict[str, OutcomeShape] = {}
    for number in dict.fromkeys(ids):
        try:
            act(view.service, number)
            results[str(number)] = {"ok": True, "state": _state(view, number)}
        except DeterminedError as error:
            results[str(number)] = {"ok": False, "error": str(error)}
    return {"results": results}


def _act(verb: Any, label: Any) -> Callable[[Service, int], None]:
    if isinstance(verb, str) and verb in VERBS:
        return VERBS[verb]
    if verb not in _LABELS:
        raise Refusal(422, f"verb: expected one of {', '.join((*VERBS, *_LABELS))}.")
    if not _is_text(label, 128) or not label:
        raise Refusal(422, "label: expected 1 to 128 characters.")
    return lambda service, number: service.label(number, label, remove=verb == "unlabel")


@routes.post("/experiments/{id}/{verb}", id=ID, verb=Choice(tuple(VERBS)))
def one(view: View, id: int, verb: str) -> DoneShape:
    """A verb on an experiment."""
    view.experiment(id)
    VERBS[verb](view.service, id)
    return {"ok": True, "state": _state(view, id)}


@routes.post("/trials/{id}/kill", id=ID)
def kill_trial(view: View, id: int) -> DoneShape:
    """End a trial at once."""
    view.trial(id)
    view.service.kill_trial(id)
    return {"ok": True, "state": view.trial(id).state}


@routes.patch("/experiments/{id}", id=ID, body=_CHANGES)
def change(view: View, id: int, body: dict[str, Any]) -> DoneShape:
    """Set the name, description, notes or labels."""
    for name, value in body.items():
        if name in _LONGEST:
            if not _is_text(value, _LONGEST[name]):
                raise Refusal(422, f"{name}: expected up to {_LONGEST[name]} characters of text.")
        elif name != "labels":
            known = ", ".join((*_LONGEST, "labels"))
            raise Refusal(422, f"There is no {name[:60]!r} to set; there are {known}.")
        elif not isinstance(value, list) or len(value) > 100 or not all(map(_is_label, value)):
            raise Refusal(422, "labels: expected up to 100 labels of 1 to 128 characters.")
    if not body:
        raise Refusal(422, "The body: expected something to set.")
    if "labels" in body:
        body = body | {"labels": list(dict.fromkeys(body["labels"]))}
    view.experiment(id)
    view.service.change(id, **body)
    return {"ok": True, "state": view.experiment(id).state}


def _state(view: View, experiment_id: int) -> str:
    found = view.reader.experiment(experiment_id)
    return "DELETED" if found is None else found.state


def _is_id(value: Any) -> bool:
    return type(value) is int and 0 < value < 2**53


def _is_text(value: Any, longest: int) -> bool:
    if not isinstance(value, str) or len(value) > longest or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a pair: it could not be stored
        return False
    return True


def _is_label(value: Any) -> bool:
    return _is_text(value, 128) and bool(value)
