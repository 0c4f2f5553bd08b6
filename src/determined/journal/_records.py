"""The records of a journal, and how each becomes bytes.

A payload is one byte for the kind, the fields as JSON (NaN and infinities included), and, for
per-batch metrics, the columns. Readers skip kinds and fields that they do not know, so an older
supervisor can read what a newer library writes.
"""

from __future__ import annotations

import dataclasses
import json
import math
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from determined._contracts.checkpoint_layout import is_storage_id
from determined.errors import JournalError
from determined.journal._columns import BatchColumns

_HEAD = struct.Struct("<BI")  # kind, length of the JSON part
KIND_BYTES = _HEAD.size


@dataclass(frozen=True, kw_only=True)
class Record:
    """Something that a training process reported, and when (seconds since the epoch)."""

    kind: ClassVar[int]
    time: float = field(default_factory=time.time)


@dataclass(frozen=True)
class RunStarted(Record):
    """A process of a run starts at `steps_completed`."""

    kind: ClassVar[int] = 1
    run_id: int
    steps_completed: int
    rank: int = 0


@dataclass(frozen=True)
class Metrics(Record):
    """Metrics of a group at a step, and the per-batch metrics before it."""

    kind: ClassVar[int] = 2
    group: str
    steps_completed: int
    metrics: dict[str, Any]
    batches: BatchColumns | None = None


@dataclass(frozen=True)
class Progress(Record):
    """Progress, from 0 to 1."""

    kind: ClassVar[int] = 3
    progress: float


@dataclass(frozen=True)
class Status(Record):
    """A short text such as `validating`."""

    kind: ClassVar[int] = 4
    status: str


@dataclass(frozen=True)
class Checkpoint(Record):
    """A checkpoint was published."""

    kind: ClassVar[int] = 5
    uuid: str
    steps_completed: int
    resources: dict[str, int]
    metadata: dict[str, Any]
    hashes: str = ""  # of its tensors, as `TensorHashes.to_record` writes them


@dataclass(frozen=True)
class CheckpointDeleted(Record):
    """The training code deleted a checkpoint."""

    kind: ClassVar[int] = 6
    uuid: str


@dataclass(frozen=True)
class EarlyExit(Record):
    """The trial ends early; the first reason of a run counts."""

    kind: ClassVar[int] = 7
    reason: str
    rank: int = 0


@dataclass(frozen=True)
class PreemptionAcknowledged(Record):
    """The process is about to save a checkpoint and exit because it was preempted."""

    kind: ClassVar[int] = 8


@dataclass(frozen=True)
class Metadata(Record):
    """The free-form metadata of the trial, replaced as a whole."""

    kind: ClassVar[int] = 9
    metadata: dict[str, Any]


@dataclass(frozen=True)
class Alert(Record):
    """A message from the user's code for people to see."""

    kind: ClassVar[int] = 10
    title: str | None
    description: str | None
    level: str


@dataclass(frozen=True)
class SystemSamples(Record):
    """System metrics of a machine: a profiler group and its values by agent."""

    kind: ClassVar[int] = 11
    group: str
    samples: dict[str, Any]


@dataclass(frozen=True)
class TaskUsing(Record):
    """The task uses a stored checkpoint or model version."""

    kind: ClassVar[int] = 12
    what: str
    identifier: str


@dataclass(frozen=True)
class Heartbeat(Record):
    """The process is alive."""

    kind: ClassVar[int] = 13


@dataclass(frozen=True)
class CheckpointAnnounced(Record):
    """A checkpoint is about to be published: look for it if no `Checkpoint` follows."""

    kind: ClassVar[int] = 14
    uuid: str
    steps_completed: int


@dataclass(frozen=True)
class Introduction(Record):
    """Identifies a process that the platform did not start; the first record of its journal.

    `run_id` names the run as in checkpoints, `continues` the checkpoint that it resumes from. A run
    that branches off from the run of that checkpoint does so at the batch `forked_at`; 0: none.
    `project` may be `workspace/project`. Event files are in the folder `tensorboard`.
    """

    kind: ClassVar[int] = 15
    name: str
    command: list[str]
    folder: str
    owner: str
    host: str
    boot_id: str
    pid: int
    storage: dict[str, Any]
    hparams: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    run_id: str | None = None
    continues: str | None = None
    steps_completed: int = 0
    metric: str | None = None
    smaller_is_better: bool = True
    project: str = ""
    labels: list[str] = field(default_factory=list)
    description: str = ""
    forked_at: int = 0
    tensorboard: str = ""


@dataclass(frozen=True)
class Ended(Record):
    """How the training of a process that the platform did not start ended."""

    kind: ClassVar[int] = 16
    state: str
    reason: str


@dataclass(frozen=True)
class Environment(Record):
    """What a run computes with, and how that differs from where its checkpoint was saved."""

    kind: ClassVar[int] = 17
    environment: dict[str, Any]
    differences: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Unknown(Record):
    """A record of a kind that only newer versions know."""

    kind: ClassVar[int] = 0
    number: int


_KINDS: dict[int, type[Record]] = {
    cls.kind: cls
    for cls in (
        RunStarted,
        Metrics,
        Progress,
        Status,
        Checkpoint,
        CheckpointDeleted,
        EarlyExit,
        PreemptionAcknowledged,
        Metadata,
        Alert,
        SystemSamples,
        TaskUsing,
        Heartbeat,
        CheckpointAnnounced,
        Introduction,
        Ended,
        Environment,
    )
}
_FIELDS = {cls: tuple(f.name for f in dataclasses.fields(cls)) for cls in _KINDS.values()}

_LATEST = 253_402_300_799.0  # the last second that a date can represent: the end of the year 9999
_LARGEST = 2**63 - 1


def _is_whole(value: Any) -> bool:
    return type(value) is int and -_LARGEST <= value <= _LARGEST


def _is_real(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


_FITS: dict[str, Callable[[Any], bool]] = {
    "int": _is_whole,
    "float": _is_real,
    "bool": lambda value: type(value) is bool,
    "str": lambda value: type(value) is str,
    "str | None": lambda value: value is None or type(value) is str,
    "dict[str, Any]": lambda value: type(value) is dict,
    "dict[str, int]": lambda value: type(value) is dict and all(map(_is_whole, value.values())),
    "list[str]": lambda value: type(value) is list and all(type(item) is str for item in value),
    "BatchColumns | None": lambda value: True,  # no JSON: it was made here
}
_CHECKS = {
    cls: tuple((f.name, _FITS[str(f.type)]) for f in dataclasses.fields(cls))
    for cls in _KINDS.values()
}


def encode(record: Record) -> bytes:
    """Return the payload of a record; TypeError if a value cannot be written as JSON."""
    columns = b""
    values = {name: getattr(record, name) for name in _FIELDS[type(record)]}
    batches = values.pop("batches", None)
    if batches is not None:
        columns = batches.to_bytes()
    text = json.dumps(values, separators=(",", ":")).encode()
    return b"".join((_HEAD.pack(record.kind, len(text)), text, columns))


def decode(payload: bytes | memoryview) -> Record:
    """Return the record of a payload; ValueError if it is not one.

    JournalError if its values make no sense: something else wrote to the file.
    """
    view = memoryview(payload)
    try:
        kind, length = _HEAD.unpack(view[: _HEAD.size])
        end = _HEAD.size + length
        cls = _KINDS.get(kind)
        if cls is None:
            return Unknown(kind)
        values: dict[str, Any] = json.loads(bytes(view[_HEAD.size : end]))
        known = {name: values[name] for name in _FIELDS[cls] if name in values}
        if cls is Metrics and end < len(view):
            known["batches"] = BatchColumns.from_bytes(view[end:])
        record = cls(**known)
    except (struct.error, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"A journal record cannot be read: {error}.") from error
    _check(record)
    return record


def _check(record: Record) -> None:
    for name, fits in _CHECKS[type(record)]:
        if not fits(getattr(record, name)):
            value = repr(getattr(record, name))
            raise JournalError(
                f"a {type(record).__name__} record has {value[:100]} for `{name}`, which no "
                "version of this library writes"
            )
    if not 0 <= record.time <= _LATEST:
        raise JournalError(f"a {type(record).__name__} record has no valid time: {record.time!r}")
    uuid = getattr(record, "uuid", None)
    if uuid is not None and not is_storage_id(uuid):
        raise JournalError(f"{uuid[:100]!r} cannot be the name of a checkpoint")
