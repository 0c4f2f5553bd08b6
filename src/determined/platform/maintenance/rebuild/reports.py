"""Journals, read again from their beginning."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from determined.errors import DeterminedError
from determined.journal import JournalReader, Metrics
from determined.platform.runs.found_runs import FoundRun
from determined.store import Restoration, Run

_BYTES_AT_ONCE = 8 << 20


def read_again(
    restoration: Restoration,
    trial_id: int,
    runs: Collection[tuple[Run, FoundRun]],
    known_steps: Collection[int],
) -> None:
    """Write all that the runs of a trial reported.

    Of a run that has not ended, only what the supervisor has read: up to the recorded offset, else
    to the last validation, of `known_steps`, that the search has processed. The supervisor
    continues from there.
    """
    known = {str(path): restoration.offset(str(path)) for _, f in runs for path in f.journals}
    restoration.forget_reports(trial_id)
    for run, found in runs:
        restoration.begin_run(run)
        for path in found.journals:
            limit = None
            if run.ended is None:
                offset = known[str(path)]
                limit = _offset_after(path, known_steps) if offset is None else offset
            _read(restoration, run, path, limit)


def _read(restoration: Restoration, run: Run, path: Path, limit: int | None) -> None:
    reader, records = JournalReader(path), []
    try:
        for record in reader.records(limit):
            records.append(record)
            if len(records) == 10_000:
                restoration.read(str(path), run, records, reader.offset)
                records = []
    except DeterminedError:
        pass  # of another format: keep what was understood
    restoration.read(str(path), run, records, reader.offset)


def _offset_after(path: Path, known_steps: Collection[int]) -> int:
    """The offset after the last validation that the search has processed; 0 if there is none."""
    reader, offset = JournalReader(path), 0
    for record in reader.records(only=[Metrics]):
        assert isinstance(record, Metrics)
        if record.group == "validation" and record.steps_completed in known_steps:
            offset = reader.offset
    return offset
