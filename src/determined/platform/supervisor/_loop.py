"""One tick after another: commands, journals and ends in, one transaction, then the acts.

The order within a tick is fixed: what doors asked for, what runs said, which runs ended, who runs
next. All of it is committed at once; what then happens in the world follows from it. A tick that
fails changes nothing: the board is read from the store again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path

from determined import journal
from determined.platform.home import Home
from determined.platform.launchers.protocol import Launcher
from determined.platform.slots import Machine
from determined.platform.states import State
from determined.platform.supervisor._board import Board, LiveExperiment, LiveRun
from determined.platform.supervisor._commands import carry_out
from determined.platform.supervisor._decisions import Decisions
from determined.platform.supervisor._garbage import GarbageCollection
from determined.platform.supervisor._runs import Runs
from determined.platform.supervisor._scheduling import Scheduling
from determined.platform.supervisor._thinking import Thinking
from determined.store import Heard, Transaction, Trial, Writer, is_decisive

logger = logging.getLogger("determined.supervisor")

_JOURNAL_SECONDS = 0.1
_MOST_BYTES_OF_A_JOURNAL = 8 << 20
_PAUSE_AFTER_FAILURE_SECONDS = 1.0


class Supervisor:
    """Works until it has been idle for a while, or is told to stop. Runs outlive it."""

    def __init__(
        self,
        home: Home,
        writer: Writer,
        launcher: Launcher,
        machine: Machine,
        idle_seconds: float,
    ) -> None:
        self._writer = writer
        self._idle_seconds = idle_seconds
        self._changed = asyncio.Event()
        self._board = Board(home)
        self._runs = Runs(self._board, launcher, machine, self._changed)
        self._scheduling = Scheduling(self._board, tuple(slot.id for slot in machine.slots))
        self._garbage = GarbageCollection(home, self._changed)
        self._thinking = Thinking(self._board, self._changed)
        self._is_stopping = False

    def wake(self) -> None:
        """Look for commands at once."""
        self._changed.set()

    def stop(self) -> None:
        """End after the current tick."""
        self._is_stopping = True
        self._changed.set()

    async def work(self) -> None:
        """Tick until idle or stopped."""
        with self._writer.transaction() as transaction:
            self._board.load(transaction)
            self._garbage.load(transaction)
        idle_since: float | None = None
        try:
            while not self._is_stopping:
                self._changed.clear()
                self._tick_safely()
                idle_since = self._idle_since(idle_since)
                if idle_since is not None and time.monotonic() - idle_since >= self._idle_seconds:
                    return
                await self._wait(idle_since)
        finally:
            await self._runs.close()
            await self._garbage.close()
            await self._thinking.close()

    def _idle_since(self, before: float | None) -> float | None:
        is_idle = self._board.is_idle and not self._garbage.is_busy
        return (before or time.monotonic()) if is_idle else None

    async def _wait(self, idle_since: float | None) -> None:
        """Sleep until something happened, may have happened, or is due."""
        now, monotonic = time.time(), time.monotonic()
        seconds = [
            self._idle_seconds
            if idle_since is None
            else idle_since + self._idle_seconds - monotonic
        ]
        if self._board.runs:
            seconds.append(_JOURNAL_SECONDS)
        if (start := self._scheduling.next_start(now)) is not None:
            seconds.append(start - now)
        if (measure := self._runs.next_measure(monotonic)) is not None:
            seconds.append(measure - monotonic)
        try:
            await asyncio.wait_for(self._changed.wait(), max(0.001, min(seconds)))
        except asyncio.TimeoutError:
            return

    def _tick_safely(self) -> None:
        try:
            self._tick()
        except Exception:
            logger.exception("a tick failed; going on from the store")
            time.sleep(_PAUSE_AFTER_FAILURE_SECONDS)  # nothing else could be done meanwhile
            with self._writer.transaction() as transaction:
                watched = self._board.runs
                self._board.load(transaction)
                for trial_id, run in self._board.runs.items():
                    old = watched.get(trial_id)
                    if old is not None and old.run_id == run.run_id:
                        # Its task goes on; only what was read is read again.
                        self._board.runs[trial_id] = old
                        old.offsets = {}

    def _tick(self) -> None:
        said = self._listen()
        ended = [run for run in self._board.runs.values() if run.end is not None]
        now = time.time()
        is_durable = (
            any(is_decisive(record) for _, _, records, _ in said for record in records)
            or bool(ended)
            or self._scheduling.is_due(now)
            or self._has_commands()
            or self._garbage.has_results
            or self._thinking.has_answers
            or bool(self._overdue(now))
        )
        if said or is_durable:
            with self._writer.transaction(durable=is_durable) as transaction:
                self._decide(transaction, said, ended, now, is_durable)
        self._runs.act()
        self._garbage.act()
        self._thinking.act()

    def _decide(
        self,
        transaction: Transaction,
        said: list[_Said],
        ended: list[LiveRun],
        now: float,
        is_durable: bool,
    ) -> None:
        decisions = Decisions(self._board, transaction, now)
        if is_durable:
            self._thinking.record(decisions)
            for command in transaction.unanswered():
                carry_out(command, decisions, transaction)
        for run, path, records, offset in said:
            heard = transaction.read_journal(path, run.trial_id, run.run_id, records, offset)
            run.offsets[path] = offset
            run.has_reported = True
            self._hear(decisions, heard, run, records, is_durable)
        for run in ended:
            if run.end is not None and not self._has_more(run):
                decisions.run_ended(run, run.end)
        if is_durable:
            for live, trial, limit in self._overdue(now):
                decisions.end_for_time(live, trial, limit)
            self._garbage.record(transaction)
            self._scheduling.run(transaction, now)
            self._garbage.load(transaction)

    def _hear(
        self,
        decisions: Decisions,
        heard: list[Heard],
        run: LiveRun,
        records: list[journal.Record],
        is_durable: bool,
    ) -> None:
        live = self._board.experiments[run.experiment_id]
        for item in heard:
            record = item.record
            is_validation = isinstance(record, journal.Metrics) and record.group == "validation"
            if is_validation and not item.is_repeat:
                assert isinstance(record, journal.Metrics)
                decisions.validated(live, run.trial_id, record.metrics, record.steps_completed)
            elif isinstance(record, journal.EarlyExit):
                decisions.exits_early(live, run.trial_id)
        if is_durable and any(isinstance(record, journal.Progress) for record in records):
            decisions.progressed(live, run.trial_id)

    # Looking

    def _listen(self) -> list[_Said]:
        """Read what runs have appended to their journals since the last tick."""
        said = []
        for run in self._board.runs.values():
            if not run.offsets:
                known = self._writer.journals(run.trial_id, run.run_id)
                run.offsets = {path: position.offset for path, position in known.items()}
                run.has_reported = run.has_reported or bool(known)
            for path in _journals(run):
                offset = run.offsets.get(path, 0)
                if Path(path).stat().st_size > offset:
                    reader = journal.JournalReader(Path(path), offset)
                    records = list(reader.records(_MOST_BYTES_OF_A_JOURNAL))
                    if records:
                        said.append((run, path, records, reader.offset))
        return said

    def _has_more(self, run: LiveRun) -> bool:
        """Whether a run that ended left more than one tick reads; a torn tail does not count."""
        for path in _journals(run):
            reader = journal.JournalReader(Path(path), run.offsets.get(path, 0))
            if next(reader.records(), None) is not None:
                return True
        return False

    def _has_commands(self) -> bool:
        return self._writer.has_commands()

    def _overdue(self, now: float) -> list[_Overdue]:
        """Experiments and trials that have run longer than their limit."""
        found: list[_Overdue] = []
        for live in self._board.experiments.values():
            limit, started = live.record.config["max_wall_time"], live.record.started
            is_running = started is not None and live.state in (State.ACTIVE, State.PAUSED)
            if limit is not None and is_running and now - (started or now) >= limit:
                found.append((live, None, f"max_wall_time ({limit:g} s)"))
        for run in self._board.runs.values():
            live = self._board.experiments[run.experiment_id]
            trial = live.trials[run.trial_id]
            limit = live.record.config["max_trial_wall_time"]
            seconds = run.seconds_before + now - run.created  # of its runs, without pauses
            if limit is not None and trial.state == State.ACTIVE.value and seconds >= limit:
                found.append((live, trial, f"max_trial_wall_time ({limit:g} s)"))
        return found


_Said = tuple[LiveRun, str, list[journal.Record], int]
_Overdue = tuple[LiveExperiment, Trial | None, str]


def _journals(run: LiveRun) -> list[str]:
    try:
        with os.scandir(run.folder.path) as entries:
            return sorted(entry.path for entry in entries if entry.name.startswith("journal-"))
    except FileNotFoundError:
        return []
