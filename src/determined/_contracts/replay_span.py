"""What a process that trains batches again is told, and what it writes down: plain JSON.

`DET_REPLAY` names the file with the span. The process appends what it reports to `record`, one
object a line: rows of metrics, checkpoints with the hashes of their tensors, and how its
environment differs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

REPLAY_VARIABLE = "DET_REPLAY"
RECORD = "record.jsonl"
REPLAY = "replay"
"""The group of rows of replays that are kept."""

METRICS, CHECKPOINT, ENVIRONMENT, END = "metrics", "checkpoint", "environment", "end"


@dataclass(frozen=True)
class ReplaySpan:
    """The batches `first` to `last` (counted from 1), trained again from a checkpoint.

    `checkpoint` is a folder, None for the beginning; `storage` a folder for checkpoints that are
    made on the way. `callbacks` are classes, as `module:Class`, looked up in `paths` as well.
    `socket` is where two runs that are compared meet: the one with `is_leader` listens there, and
    the other one writes to `verdict` where they part. Of several ranks each does so for itself.
    """

    first: int
    last: int
    checkpoint: str | None
    storage: str
    record: str
    run_id: str | None = None
    callbacks: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    pdb: bool = False
    socket: str | None = None
    is_leader: bool = False
    verdict: str | None = None

    def starting_from(self, checkpoint: str | None) -> ReplaySpan:
        """Return the same span from another checkpoint."""
        return replace(self, checkpoint=checkpoint)

    def save(self, path: Path) -> None:
        """Write it for the process."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> ReplaySpan:
        """Read what `save` wrote."""
        values = json.loads(path.read_text())
        values |= {name: tuple(values[name]) for name in ("callbacks", "paths")}
        return cls(**values)


def asked_span() -> ReplaySpan | None:
    """Return what this process is to train again; None if it trains something new."""
    path = os.environ.get(REPLAY_VARIABLE)
    return ReplaySpan.load(Path(path)) if path else None


def verdict_path(verdict: str, rank: int) -> Path:
    """Where a rank writes down where two runs part."""
    return Path(f"{verdict}.{rank}")


def read_verdict(verdict: Path) -> dict[str, Any] | None:
    """Return the first difference that a rank has found; None if none came to a verdict."""
    paths = verdict.parent.glob(f"{verdict.name}.*[0-9]")
    found: list[dict[str, Any]] = [json.loads(path.read_text()) for path in sorted(paths)]
    parted = [one for one in found if one["parting"] is not None]
    if not parted:
        return found[0] if found else None
    return min(parted, key=lambda one: (one["parting"]["batch"], one["stages"]))


def read_record(path: Path) -> Iterator[dict[str, Any]]:
    """Yield what a process wrote down; a line that was cut off ends it."""
    try:
        lines = path.read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return
    for line in lines:
        if line.endswith("\n"):
            yield json.loads(line)
