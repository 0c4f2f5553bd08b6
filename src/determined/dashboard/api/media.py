"""Images, texts and histograms that a trial wrote to its event files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field
from starlette.responses import Response
from typing_extensions import TypedDict

from determined.dashboard.endpoints.endpoints import ApiError, Routes
from determined.dashboard.endpoints.parameters import Id, OneOf, Text
from determined.dashboard.view import View
from determined.tensorboard._media import (
    KINDS,
    MOST_ENTRIES,
    MOST_PIXELS,
    Entry,
    ImageFacts,
    MediaIndex,
    MediaKey,
    facts_of,
    read_value,
)
from determined.tensorboard._reading import Value
from determined.tensorboard._values import histogram_of, images_of, texts_of

routes = Routes("media")

_MOST_STEPS = 500
_MOST_TAGS = 2_000
_MOST_TEXTS = 20
_MOST_CHARACTERS = 20_000
_MOST_BUCKETS = 200
_MOST_IMAGES = 50
_Kind = Annotated[str, OneOf(KINDS)]
_Folder = Annotated[Text, Field(description="Below the trial's folder of event files.")]
_Step = Annotated[int, Field(ge=-(2**53), le=2**53)]
_Index = Annotated[int, Field(ge=0, lt=_MOST_IMAGES, description="Of several images at a step.")]


class MediaTagJson(TypedDict):
    """A tag, and the steps at which there is something; of very many, some."""

    kind: str
    folder: str
    tag: str
    steps: list[int]


class MediaJson(TypedDict):
    """All tags; `complete` is false while files are still being read: ask again."""

    tags: list[MediaTagJson]
    complete: bool
    note: str


class PictureJson(TypedDict):
    """An image of a value; `problem` says why it is not shown."""

    width: int
    height: int
    problem: str


class BucketsJson(TypedDict):
    """Counts between limits, of which there is one more."""

    limits: list[float]
    counts: list[float]


class MediaValueJson(TypedDict):
    """What a tag has at a step."""

    step: int
    time: float
    images: list[PictureJson]
    texts: list[str]
    histogram: BucketsJson | None
    problem: str


@routes.get("/trials/{id}/media")
def media(view: View, id: Id) -> MediaJson:
    """The images, texts and histograms in a trial's event files, by tag."""
    view.trial(id)
    index = _index(view, id)
    index.refresh()
    tags: list[MediaTagJson] = [
        {"kind": key.kind, "folder": key.folder, "tag": key.tag, "steps": _steps(entries)}
        for key, entries in index.series().items()
        if len(key.folder) <= 500 and "\x00" not in key.folder + key.tag and len(key.tag) <= 500
    ]
    tags.sort(key=lambda tag: (KINDS.index(tag["kind"]), tag["folder"], tag["tag"]))
    note = ""
    if index.is_full or len(tags) > _MOST_TAGS:
        note = f"There is more than is shown here: at most {MOST_ENTRIES} values are listed."
    return {"tags": tags[:_MOST_TAGS], "complete": index.is_complete, "note": note}


@routes.get("/trials/{id}/media/value")
def value(
    view: View, id: Id, kind: _Kind, tag: Text, step: _Step, folder: _Folder = ""
) -> MediaValueJson:
    """What a tag has at a step; images are described, and fetched one by one."""
    entry, found = _find(view, id, MediaKey(kind, folder, tag), step)
    answer: MediaValueJson = {
        "step": entry.step,
        "time": entry.time,
        "images": [],
        "texts": [],
        "histogram": None,
        "problem": "",
    }
    if found is None:
        answer["problem"] = "This value is damaged."
    elif kind == "image":
        answer["images"] = [_picture(facts_of(image)) for image in images_of(found)[:_MOST_IMAGES]]
    elif kind == "text":
        answer["texts"] = [text[:_MOST_CHARACTERS] for text in texts_of(found)[:_MOST_TEXTS]]
    else:
        answer["histogram"] = _buckets(found)
        if answer["histogram"] is None:
            answer["problem"] = "This histogram cannot be drawn."
    return answer


@routes.get("/trials/{id}/media/image", "image/png")
def image(
    view: View, id: Id, tag: Text, step: _Step, folder: _Folder = "", index: _Index = 0
) -> Response:
    """One image: PNG, GIF or JPEG, as its first bytes say."""
    _, found = _find(view, id, MediaKey("image", folder, tag), step)
    images = [] if found is None else images_of(found)
    if index >= len(images):
        raise ApiError(404, f"There is no image {index} at step {step}.")
    facts = facts_of(images[index])
    if facts is None or (problem := _picture(facts)["problem"]):
        raise ApiError(404, problem if facts else _picture(None)["problem"])
    headers = {"Cache-Control": "private, max-age=3600", "Content-Disposition": "inline"}
    return Response(images[index], media_type=facts.media_type, headers=headers)


def _index(view: View, trial_id: int) -> MediaIndex:
    folder = _folder(view, trial_id)
    return view.remember(("media", trial_id), None, lambda: MediaIndex(folder))


def _folder(view: View, trial_id: int) -> Path:
    """Where the event files of a trial are; a script started manually has a place of its own."""
    stored = view.home.tensorboard / str(trial_id)
    experiment = view.experiment(view.trial(trial_id).experiment_id)
    own = experiment.environment.get("tensorboard")
    if experiment.unmanaged and isinstance(own, str) and own and not stored.exists():
        return Path(own)
    return stored


def _find(view: View, trial_id: int, key: MediaKey, step: int) -> tuple[Entry, Value | None]:
    view.trial(trial_id)
    index = _index(view, trial_id)
    entry = index.find(key, step)
    if entry is None:
        index.refresh()
        entry = index.find(key, step)
    if entry is None:
        raise ApiError(404, f"There is no {key.kind} {key.tag!r} at step {step}.")
    return entry, read_value(entry)


def _steps(entries: list[Entry]) -> list[int]:
    """The steps that a slider goes through: all, or evenly some of very many."""
    steps = sorted({entry.step for entry in entries if abs(entry.step) <= 2**53})
    if len(steps) <= _MOST_STEPS:
        return steps
    last = len(steps) - 1
    return [steps[round(place * last / (_MOST_STEPS - 1))] for place in range(_MOST_STEPS)]


def _picture(facts: ImageFacts | None) -> PictureJson:
    if facts is None:
        return {"width": 0, "height": 0, "problem": "Only PNG, GIF and JPEG images are shown."}
    _, width, height = facts
    problem = ""
    if not 0 < width * height <= MOST_PIXELS:
        problem = f"An image of {width} x {height} pixels is not shown."
    return {"width": width, "height": height, "problem": problem}


def _buckets(value: Value) -> BucketsJson | None:
    """A histogram with at most so many bars as a page can show: neighbours are added up."""
    found = histogram_of(value)
    if found is None:
        return None
    width = -(-len(found.counts) // _MOST_BUCKETS)
    starts = range(0, len(found.counts), width)
    counts = [sum(found.counts[start : start + width]) for start in starts]
    limits = [*(found.limits[start] for start in starts), found.limits[-1]]
    return {"limits": limits, "counts": counts}
