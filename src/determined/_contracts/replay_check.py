"""Compare batches that were trained again with what is recorded of the first time. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from determined._contracts.replay_span import CHECKPOINT, METRICS
from determined._contracts.tensor_hashes import TensorHashes

WITH = "with "
"""How the names of callbacks begin that were not there the first time."""
_COUNTERS = ("batches", "epochs")
_SHOWN = 3


@dataclass(frozen=True)
class Row:
    """A recorded report, with the metrics of its batches where they are known."""

    metrics: Mapping[str, Any]
    batches: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class Checked:
    """How far a replay was the same as the record.

    `through` is the last batch up to which both agree; `departure` says where they part, None if
    they do not.
    """

    through: int
    rows: int
    checkpoints: int
    departure: str | None = None

    def __str__(self) -> str:
        if self.departure is None:
            compared = (
                f"{_counted(self.rows, 'row')} and {_counted(self.checkpoints, 'checkpoint')}"
            )
            return f"identical through batch {self.through} ({compared} compared)"
        return f"NOT identical: {self.departure}; identical through batch {self.through}"


def check_replay(
    start: int,
    last: int,
    replayed: Iterable[Mapping[str, Any]],
    rows: Mapping[tuple[str, int], Row],
    hashes: Mapping[int, TensorHashes],
) -> Checked:
    """Find where a replay of the batches after `start` leaves the record.

    Args:
        start: the batch of the checkpoint that it started from.
        last: the last batch that it trained.
        replayed: what it wrote down, in that order.
        rows: recorded metrics by group and step.
        hashes: of recorded checkpoints, by step.
    """
    through, num_rows, num_checkpoints = start, 0, 0
    for entry in replayed:
        departure = None
        if entry["kind"] == METRICS:
            row = rows.get((entry["group"], entry["steps"]))
            if row is None:
                continue
            num_rows += 1
            departure = _other_row(entry, row)
        elif entry["kind"] == CHECKPOINT and entry["steps"] in hashes and entry["hashes"]:
            num_checkpoints += 1
            found = TensorHashes.from_record(entry["hashes"])
            departure = _other_hashes(entry["steps"], found, hashes[entry["steps"]])
        if departure is not None:
            return Checked(through, num_rows, num_checkpoints, departure)
        through = max(through, entry.get("steps", through))
    return Checked(max(through, last), num_rows, num_checkpoints)


def different_paths(one: TensorHashes, other: TensorHashes) -> list[str]:
    """Return the paths at which two checkpoints differ, weights first.

    A callback that only one of them can have had does not count.
    """
    both = [*one.tensors, *(path for path in other.tensors if path not in one.tensors)]
    found = [
        path
        for path in both
        if one.tensors.get(path) != other.tensors.get(path)
        and not path.startswith(f"callbacks/{WITH}")
    ]
    kinds = ("models/", "optimizers/", "schedulers/", "callbacks/")
    order = {kind: number for number, kind in enumerate(kinds)}
    return sorted(found, key=lambda path: order.get(path.partition("/")[0] + "/", len(order)))


def _other_row(entry: Mapping[str, Any], row: Row) -> str | None:
    names = [name for name in row.metrics if name in entry["metrics"] and name not in _COUNTERS]
    other = [n for n in names if not _same(row.metrics[n], entry["metrics"][n])]
    if not other:
        return None
    name, place = other[0], f"the {entry['group']} row at batch {entry['steps']}"
    was, now = row.metrics[name], entry["metrics"][name]
    first = _first_batch(name, entry, row)
    since = "" if first is None else f", first in batch {first}"
    return f"{place} has {name} {now!r} where {was!r} is recorded{since}"


def _first_batch(name: str, entry: Mapping[str, Any], row: Row) -> int | None:
    """The batch, counted from 0 as `batch_idx` is, from which on a metric differs."""
    if not row.batches or not entry["batches"] or len(row.batches) != len(entry["batches"]):
        return None
    pairs = zip(row.batches, entry["batches"], strict=True)
    found = (i for i, (a, b) in enumerate(pairs) if not _same(a.get(name), b.get(name)))
    index = next(found, None)
    return None if index is None else int(entry["steps"]) - len(row.batches) + index


def _other_hashes(steps: int, found: TensorHashes, recorded: TensorHashes) -> str | None:
    # A record with very many tensors has hashes of groups of them.
    both = recorded.tensors.keys() & found.tensors.keys()
    if recorded.tensors and not both:
        return None if found.digest == recorded.digest else f"the checkpoint at batch {steps}"
    paths = different_paths(recorded, found)
    if not paths:
        return None
    rest = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return f"the checkpoint at batch {steps} has another {', '.join(paths[:_SHOWN])}{rest}"


def _same(old: Any, new: Any) -> bool:
    return bool(old == new) or json.dumps(old) == json.dumps(new)


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"
