"""Read what live runs have appended to their journals."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from determined.errors import JournalError
from determined.journal import Damage, JournalReader, Record
from determined.platform.supervisor.fault_isolation import FaultyRun, isolating
from determined.platform.supervisor.live_state import LiveRun
from determined.store import Transaction, Writer

_MOST_BYTES_OF_A_JOURNAL = 8 << 20


class NewRecords(NamedTuple):
    """What a run appended to one of its journals, and where that ends."""

    run: LiveRun
    path: str
    records: list[Record]
    offset: int


def read_new(run: LiveRun, writer: Writer) -> list[NewRecords]:
    """Read what a run has appended since the last tick; a limited part of it at a time."""
    if run.fault:
        return []
    if not run.offsets:
        known = writer.journals(run.trial_id, run.run_id)
        run.offsets = {path: position.offset for path, position in known.items()}
        run.has_reported = run.has_reported or bool(known)
    found = []
    for path in _journals(run):
        offset = run.offsets.get(path, 0)
        if _size(path) > offset:
            reader = JournalReader(Path(path), offset)
            with isolating(FaultyRun(run.trial_id, run.run_id)):
                records = list(reader.records(_MOST_BYTES_OF_A_JOURNAL))
                if not records and reader.is_damaged():
                    raise _corrupt(reader)
            if records:
                found.append(NewRecords(run, path, records, reader.offset))
    return found


def has_unread(run: LiveRun, transaction: Transaction) -> bool:
    """Whether a run that ended has more in its journals than one tick reads.

    A torn tail does not count: its writer was killed. Bytes that no writer left do: what was there
    is lost, so the run has failed, whatever its exit code.
    """
    if run.fault:  # its reports no longer count
        return False
    for path in _journals(run):
        reader = JournalReader(Path(path), run.offsets.get(path, 0))
        if next(reader.records(), None) is not None:
            return True
        damage = reader.diagnose()
        if damage is not Damage.NONE:
            transaction.set_damage(path, damage.value)
        if damage is Damage.CORRUPT:
            # Not raised: what it reported before the damage is recorded in this transaction.
            reject_reports(run, _corrupt(reader), transaction)
            return False
    return False


def reject_reports(run: LiveRun, error: Exception, transaction: Transaction) -> None:
    """Read no more of a run's reports, and count it as failed."""
    run.fault = f"its reports cannot be recorded: {error}"
    transaction.note(
        "damaged_journal",
        f"{run.fault}; the run counts as failed",
        level="error",
        experiment_id=run.experiment_id,
        trial_id=run.trial_id,
        run_id=run.run_id,
    )


def _corrupt(reader: JournalReader) -> JournalError:
    return JournalError(f"{reader.path} is corrupt at byte {reader.offset}")


def _journals(run: LiveRun) -> list[str]:
    try:
        with os.scandir(run.folder.path) as entries:
            return sorted(entry.path for entry in entries if entry.name.startswith("journal-"))
    except FileNotFoundError:
        return []


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116  # of every live run in every tick
    except FileNotFoundError:  # deleted by somebody
        return 0
