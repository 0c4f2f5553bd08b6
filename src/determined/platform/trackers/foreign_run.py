"""A run of another tracker, as far as it can be kept here."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from determined import journal
from determined._contracts.metric_groups import is_of_validation

_LARGEST_STEP = 2**63 - 1
_LATEST = 253_402_300_799.0  # the end of the year 9999


class Point(NamedTuple):
    """One value of a metric; `is_validation` is None where only its name can say."""

    name: str
    step: int
    time: float
    value: float
    is_validation: bool | None = None


def point_of(name: Any, step: Any, time: Any, value: Any) -> Point | None:
    """A point from values that a file may have in any form; None if they are none."""
    try:
        return Point(str(name), int(step), max(float(time), 0.0), float(value))
    except (TypeError, ValueError, OverflowError):
        return None


@dataclass(frozen=True)
class ForeignRun:
    """`origin` identifies it for good: an import of the same origin is the same run."""

    origin: str
    name: str
    project: str
    points: Callable[[], Iterable[Point]]
    owner: str = ""
    description: str = ""
    labels: tuple[str, ...] = ()
    hparams: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    state: str = "COMPLETED"
    reason: str = ""
    started: float | None = None
    ended: float | None = None
    files: tuple[tuple[Path, str], ...] = ()
    """Event files, and their paths in the folder of a trial."""


@dataclass(frozen=True)
class Rows:
    """What a run reported, by step: of several values for one step, the last counts."""

    records: list[journal.Metrics]
    first: float
    last: float
    num_left_out: int
    """Points at a step that no report can have."""

    def signature(self, run: ForeignRun) -> str:
        """Changes whenever anything changes that an import would bring."""
        told = [run.name, run.state, run.reason, run.hparams, run.metadata, list(run.labels)]
        digest = hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode())
        for record in self.records:
            row = [record.group, record.steps_completed, record.time, record.metrics]
            digest.update(json.dumps(row).encode())
        return digest.hexdigest()


def rows_of(run: ForeignRun, metric: str | None) -> Rows:
    """Read all points of a run and put those of one step and group together."""
    found: dict[tuple[int, str], tuple[float, dict[str, float]]] = {}
    first, last, left_out = math.inf, 0.0, 0
    for point in run.points():
        if not 0 <= point.step <= _LARGEST_STEP:
            left_out += 1
            continue
        is_validation = point.is_validation
        if is_validation is None:
            is_validation = is_of_validation(point.name, metric)
        key = (point.step, "validation" if is_validation else "training")
        time, values = found.get(key, (0.0, {}))
        values[point.name] = point.value
        found[key] = (max(time, min(point.time, _LATEST)), values)
        if 0 < point.time < _LATEST:
            first, last = min(first, point.time), max(last, point.time)
    records = [
        journal.Metrics(group, step, dict(sorted(values.items())), time=time)
        for (step, group), (time, values) in sorted(found.items(), key=lambda item: item[0])
    ]
    return Rows(records, first if math.isfinite(first) else 0.0, last, left_out)


def plain_value(text: str) -> Any:
    """A parameter that a tracker keeps as text: a number or a boolean if it looks like one."""
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else text
    return text


def each_once(runs: Iterable[ForeignRun]) -> Iterator[ForeignRun]:
    """Runs without those whose origin was there before."""
    known: set[str] = set()
    for run in runs:
        if run.origin not in known:
            known.add(run.origin)
            yield run
