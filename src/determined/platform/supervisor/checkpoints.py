"""Checkpoints in their storage: whether it is usable, and which ones a run did not report."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from determined import journal
from determined._contracts.checkpoint_layout import HASHES
from determined._contracts.tensor_hashes import TensorHashes
from determined.errors import CheckpointNotFound, DeterminedError
from determined.platform.supervisor.live_state import LiveRun
from determined.storage import StorageManager, build

logger = logging.getLogger("determined.supervisor")

_LOCAL = ("shared_fs", "directory")


def check_storage(section: dict[str, Any]) -> None:
    """Raise unless checkpoints can be saved there.

    Object stores are left to the trial, which has the credentials.
    """
    base = build(section).base_path if section["type"] in _LOCAL else None
    if base is None:
        return
    try:
        base.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeterminedError(f"checkpoint_storage: {base}: {error.strerror}.") from error
    if not os.access(base, os.W_OK | os.X_OK):
        raise DeterminedError(f"checkpoint_storage: {base} is not writable.")


def find_unrecorded(run: LiveRun, section: dict[str, Any]) -> list[journal.Checkpoint]:
    """The complete checkpoints that a run published, but could not report before it was killed.

    Only what it announced is looked for: the storage is never listed.
    """
    announced = unreported(sorted(run.folder.path.glob("journal-*")))
    if not announced:
        return []
    try:
        storage = build(section)
        found = (_published(storage, record) for record in announced)
        return [record for record in found if record is not None]
    except Exception:  # the run continues from an older one
        logger.exception("unreported checkpoints of %s cannot be looked up", run.allocation_id)
        return []


def find_local_unrecorded(path: Path, section: dict[str, Any]) -> list[journal.Checkpoint]:
    """The same for one journal and a local storage; fast, because no file is read to verify it."""
    announced = unreported([path]) if section.get("type") in _LOCAL else []
    if not announced:
        return []
    try:
        storage = build(section)
        found = (_published(storage, record, verify=False) for record in announced)
        return [record for record in found if record is not None]
    except Exception:
        logger.exception("unreported checkpoints of %s cannot be looked up", path)
        return []


def unreported(paths: Iterable[Path]) -> list[journal.CheckpointAnnounced]:
    """The checkpoints that journals announce, but neither report nor delete."""
    announced: dict[str, journal.CheckpointAnnounced] = {}
    for record in _about_checkpoints(paths):
        if isinstance(record, journal.CheckpointAnnounced):
            announced[record.uuid] = record
        elif isinstance(record, (journal.Checkpoint, journal.CheckpointDeleted)):
            announced.pop(record.uuid, None)
    return list(announced.values())


def _about_checkpoints(paths: Iterable[Path]) -> Iterator[journal.Record]:
    types = (journal.CheckpointAnnounced, journal.Checkpoint, journal.CheckpointDeleted)
    for path in paths:
        try:
            yield from journal.JournalReader(path).records(only=types)
        except DeterminedError as error:
            logger.warning("%s", error)


def _published(
    storage: Any, record: journal.CheckpointAnnounced, *, verify: bool = True
) -> journal.Checkpoint | None:
    try:
        if verify and not storage.verify(record.uuid):
            return None
        resources, metadata = storage.resources(record.uuid), storage.get_metadata(record.uuid)
        hashes = _hashes_of(storage, record.uuid)
    except (CheckpointNotFound, DeterminedError, OSError):
        return None
    return journal.Checkpoint(
        record.uuid, record.steps_completed, resources, metadata, hashes, time=record.time
    )


def _hashes_of(storage: StorageManager, uuid: str) -> str:
    """The hashes in a checkpoint, as its record would have had them."""
    text = storage.read_text(uuid, HASHES)
    try:
        return "" if text is None else TensorHashes.from_json(text).to_record()
    except ValueError:
        return ""
