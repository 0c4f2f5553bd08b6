"""Runs in a log folder of TensorBoard: every folder with event files is one.

Folders `train` and `validation` side by side, as Keras writes them, are one run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from determined.errors import RefusedError
from determined.platform.trackers.foreign_run import ForeignRun, Point
from determined.tensorboard._reading import event_files, read_events
from determined.tensorboard._values import hparams_of, kind_of, scalar_of

_TRAINING = ("train", "training")
_VALIDATION = ("val", "valid", "validation", "eval", "test")


def find_runs(folder: Path) -> Iterator[ForeignRun]:
    """The runs below a folder, by name."""
    root = folder.absolute()
    if not root.is_dir():
        raise RefusedError(f"{folder} is no folder with event files of TensorBoard.")
    found: dict[Path, dict[Path, bool | None]] = {}
    for path, folders, _ in os.walk(root):
        folders.sort()
        place = Path(path)
        if event_files(place):
            owner, group = _run_of(place, root)
            found.setdefault(owner, {})[place] = group
    if not found:
        raise RefusedError(f"There are no event files (*tfevents*) in {folder}.")
    for owner, parts in sorted(found.items()):
        yield _run(root, owner, parts)


def _run_of(place: Path, root: Path) -> tuple[Path, bool | None]:
    """The folder of the run that a folder belongs to, and whether it holds its validation."""
    name = place.name.lower()
    if place != root and name in (*_TRAINING, *_VALIDATION):
        other = _VALIDATION if name in _TRAINING else _TRAINING
        if any(event_files(place.with_name(sibling)) for sibling in other):
            return place.parent, name in _VALIDATION
    return place, None


def _run(root: Path, owner: Path, parts: dict[Path, bool | None]) -> ForeignRun:
    def points() -> Iterator[Point]:
        for place, group in parts.items():
            for path in event_files(place):
                for event in read_events(path):
                    for value in event.values:
                        if kind_of(value) == "scalar" and value.tag:
                            number = scalar_of(value)
                            if number is not None:
                                yield Point(value.tag, event.step, event.time, number, group)

    hparams = {}
    files = []
    for place in parts:
        for path in event_files(place):
            files.append((path, str(path.relative_to(owner))))
            hparams.update(_hparams_in(path))
    name = root.name if owner == root else str(owner.relative_to(root))
    return ForeignRun(
        origin=f"tensorboard:{owner.resolve()}",
        name=name,
        project=f"tensorboard/{root.name or 'runs'}",
        points=points,
        hparams=hparams,
        metadata={"folder": str(owner)},
        files=tuple(files),
    )


def _hparams_in(path: Path) -> dict[str, object]:
    found = {}
    for event in read_events(path):
        for value in event.values:
            if value.plugin == "hparams":
                found.update(hparams_of(value))
    return found
