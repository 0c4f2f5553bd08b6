"""One tick after another: read commands, journals and ends; one transaction; then act.

The order within a tick is fixed: commands of clients, reports of runs, runs that ended, which
trials run next. All of it is committed at once; side effects follow from what is committed. A tick
that fails changes nothing: the board is read from the store again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from determined import journal
from determined.errors import JournalError
from determined.platform.homes.home import Home
from determined.platform.machines.slots import Machine
from determined.platform.runs.launchers.protocol import Launcher
from determined.platform.supervisor import presence
from determined.platform.supervisor.background.calls import Calls
from determined.platform.supervisor.background.deletions import FileDeletion
from determined.platform.supervisor.background.disk import DiskWatch
from determined.platform.supervisor.background.garbage import GarbageCollection
from determined.platform.supervisor.background.slow_searches import Thinking
from determined.platform.supervisor.background.unmanaged import Unmanaged
from determined.platform.supervisor.commands.commands import carry_out
from determined.platform.supervisor.commands.copies import hold_copies
from determined.platform.supervisor.commands.creations import sweep
from determined.platform.supervisor.decisions import Decisions
from determined.platform.supervisor.fault_isolation import (
    BadCommand,
    BadItem,
    BadRun,
    BadSearch,
    BlamedError,
    blaming,
)
from determined.platform.supervisor.limits import Limits, Overdue
from determined.platform.supervisor.live_state import Board, LiveRun
from determined.platform.supervisor.lost_records import refuse_lost_records
from determined.platform.supervisor.runs import Runs
from determined.platform.supervisor.scheduling import Scheduling
from determined.store import AcceptedRecord, Standing, Transaction, Writer, is_decisive

logger = logging.getLogger("determined.supervisor")

_JOURNAL_SECONDS = 0.1
_MOST_BYTES_OF_A_JOURNAL = 8 << 20
_PAUSE_AFTER_FAILURE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 30.0


class Supervisor:
    """Works until it has been idle for a while, or is told to stop. Runs outlive it."""

    def __init__(
        self,
        home: Home,
        writer: Writer,
        launcher: Launcher,
        machine: Callable[[], Machine],
        idle_seconds: float,
        is_in_place: Callable[[], bool] = lambda: True,
    ) -> None:
        """Call `machine` before every decision for what there is to schedule on."""
        is_copy = writer.standing is Standing.COPY
        self._writer = writer
        self._idle_seconds = idle_seconds
        self._is_in_place = is_in_place
        self._changed = asyncio.Event()
        self._board = Board(home, is_copy=is_copy)
        self._runs = Runs(self._board, launcher, machine, self._changed)
        self._scheduling = Scheduling(self._board, machine)
        self._garbage = GarbageCollection(self._board, self._changed)
        self._deletions = FileDeletion(home, self._changed, is_copy=is_copy)
        self._calls = Calls(home, self._changed, is_copy=is_copy)
        self._thinking = Thinking(self._board, self._changed)
        self._unmanaged = Unmanaged(home)
        self._limits = Limits(self._board)
        self._disk = DiskWatch(self._board, self._changed)
        self._is_stopping = False

    def wake(self) -> None:
        """Check for commands at once."""
        self._changed.set()

    def stop(self) -> None:
        """End after the current tick."""
        self._is_stopping = True
        self._changed.set()

    async def work(self) -> None:
        """Tick until idle or stopped."""
        with self._writer.transaction() as transaction:
            refuse_lost_records(self._board.home, transaction)
            if not self._board.is_copy:
                sweep(self._board.home, transaction)
                self._unmanaged.sweep(transaction)
            self._load(transaction)
            if self._board.is_copy:
                hold_copies(Decisions(self._board, transaction, time.time()))
        idle_since: float | None = None
        self._unmanaged.watch(self._changed)
        try:
            while not self._is_stopping:
                if not self._is_in_place():
                    logger.error("the home %s no longer exists: exiting", self._board.home)
                    self.stop()
                    return
                self._changed.clear()
                await self._tick_safely()
                if self._board.has_left:
                    self.stop()
                idle_since = self._idle_since(idle_since)
                if idle_since is not None and time.monotonic() - idle_since >= self._idle_seconds:
                    return
                await self._wait(idle_since)
        finally:
            self._unmanaged.close()
            await self._runs.close()
            await self._garbage.close()
            await self._disk.close()
            await self._deletions.close()
            await self._thinking.close()
            await self._calls.close()

    @property
    def was_told_to_stop(self) -> bool:
        """Whether it was told to stop, rather than having nothing left to do."""
        return self._is_stopping

    def _load(self, transaction: Transaction) -> None:
        self._board.load(transaction)
        self._unmanaged.forget()
        self._scheduling.forget()
        Decisions(self._board, transaction, time.time()).fail_what_cannot_go_on()
        self._garbage.load(transaction)
        self._deletions.load(transaction)
        self._calls.load(transaction)

    def _idle_since(self, before: float | None) -> float | None:
        is_busy = self._garbage.is_busy or self._deletions.is_busy or self._calls.is_busy
        is_idle = self._board.is_idle and not is_busy
        return (before or time.monotonic()) if is_idle else None

    async def _wait(self, idle_since: float | None) -> None:
        """Sleep until something has happened, may have happened, or is due."""
        now, monotonic = time.time(), time.monotonic()
        seconds = [
            self._idle_seconds
            if idle_since is None
            else idle_since + self._idle_seconds - monotonic
        ]
        is_soon = self._board.runs or self._unmanaged.has_backlog
        poll = self._unmanaged.poll_seconds(is_idle=idle_since is not None)
        seconds.append(_JOURNAL_SECONDS if is_soon else poll)
        if (start := self._scheduling.next_start) is not None:
            seconds.append(start - now)
        if (measure := self._runs.next_measure(monotonic)) is not None:
            seconds.append(measure - monotonic)
        try:
            await asyncio.wait_for(self._changed.wait(), max(0.001, min(seconds)))
        except asyncio.TimeoutError:
            return

    async def _tick_safely(self) -> None:
        try:
            self._tick()
        except Exception as error:
            logger.exception("a tick failed; continuing from the store")
            await self._recover(error)

    async def _recover(self, error: Exception) -> None:
        """Continue from the store, without what caused the failure."""
        pause = _PAUSE_AFTER_FAILURE_SECONDS
        while not self._is_stopping:
            await asyncio.sleep(pause)
            try:
                with self._writer.transaction() as transaction:
                    self._load(transaction)
                    if isinstance(error, BlamedError):
                        self._exclude(transaction, error)
                if pause > _PAUSE_AFTER_FAILURE_SECONDS:
                    logger.warning(presence.USES_STORE_AGAIN)
                return
            except Exception:
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
                words = f"{presence.CANNOT_USE_STORE}; trying again in %.0f s"
                logger.exception(words, pause)

    def _exclude(self, transaction: Transaction, error: BlamedError) -> None:
        culprit, decisions = error.culprit, Decisions(self._board, transaction, time.time())
        if isinstance(culprit, BadCommand):
            words = (
                f"The supervisor failed to do this: {error}. See {self._board.home.supervisor_log}."
            )
            transaction.answer(culprit.uuid, False, {"error": words})
        elif isinstance(culprit, BadSearch):
            live = self._board.experiments.get(culprit.experiment_id)
            if live is not None:
                decisions.fail(live, f"its search failed: {error}")
        elif isinstance(culprit, BadItem):
            self._unmanaged.reject(culprit.name)
        else:
            run = self._board.runs.get(culprit.trial_id)
            if run is not None and run.fault:
                live = self._board.experiments[run.experiment_id]
                decisions.fail(live, f"trial {run.trial_id} cannot continue: {error}")
            elif run is not None:
                self._blame(transaction, run, _unrecorded(error))

    def _blame(self, transaction: Transaction, run: LiveRun, fault: str) -> None:
        run.fault = fault
        transaction.note(
            "damaged_journal",
            f"{fault}; the run counts as failed",
            level="error",
            experiment_id=run.experiment_id,
            trial_id=run.trial_id,
            run_id=run.run_id,
        )

    def _tick(self) -> None:
        said = self._listen()
        has_mail = not self._board.is_copy and self._unmanaged.look()
        ended = [run for run in self._board.runs.values() if run.end is not None]
        now, overdue = time.time(), self._limits.overdue()
        is_durable = (
            any(self._is_decisive(run, record) for run, _, records, _ in said for record in records)
            or bool(ended)
            or self._scheduling.is_due(now)
            or self._has_commands()
            or self._garbage.has_results
            or self._disk.is_collection_due
            or self._deletions.has_results
            or self._thinking.has_answers
            or self._calls.has_results
            or bool(overdue)
            or has_mail
        )
        if said or is_durable:
            with self._writer.transaction(durable=is_durable) as transaction:
                self._decide(transaction, said, ended, overdue, now, is_durable)
        self._runs.act()
        self._garbage.act()
        self._disk.act()
        self._deletions.act()
        self._thinking.act()
        self._calls.act()
        self._unmanaged.act()

    def _is_decisive(self, run: LiveRun, record: journal.Record) -> bool:
        if isinstance(record, journal.Progress):
            live = self._board.experiments[run.experiment_id]
            return live.is_news(run.trial_id, record.progress)
        return is_decisive(record)

    def _decide(
        self,
        transaction: Transaction,
        said: list[_Said],
        ended: list[LiveRun],
        overdue: list[Overdue],
        now: float,
        is_durable: bool,
    ) -> None:
        decisions = Decisions(self._board, transaction, now)
        if is_durable:
            self._thinking.record(decisions)
            self._unmanaged.record(transaction)
            for command in transaction.unanswered():
                carry_out(command, decisions, transaction)
        for run, path, records, offset in said:
            with blaming(BadRun(run.trial_id, run.run_id)):
                heard = transaction.read_journal(path, run.trial_id, run.run_id, records, offset)
                self._hear(decisions, heard, run, records, is_durable)
            run.offsets[path] = offset
            run.has_reported = True
        for run in ended:
            with blaming(BadRun(run.trial_id, run.run_id)):
                if run.end is not None and not self._has_more(transaction, run):
                    decisions.run_ended(run, run.end)
        if is_durable:
            for live, trial_id, limit in overdue:
                decisions.end_for_time(live, trial_id, limit)
            self._garbage.record(transaction)
            self._disk.record(decisions, transaction)
            self._deletions.record(transaction)
            self._calls.record(transaction)
            self._scheduling.run(transaction, now)
            self._garbage.load(transaction)
            self._deletions.load(transaction)
            self._calls.load(transaction)

    def _hear(
        self,
        decisions: Decisions,
        heard: list[AcceptedRecord],
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
            elif isinstance(record, journal.Checkpoint):
                if live.record.config["checkpoint_storage"]["gc"] == "continuous":
                    decisions.collect_garbage(live)
            elif isinstance(record, journal.EarlyExit):
                decisions.exits_early(live, run.trial_id)
        if is_durable and any(isinstance(record, journal.Progress) for record in records):
            decisions.progressed(live, run.trial_id)

    # Reading

    def _listen(self) -> list[_Said]:
        """Read what runs have appended to their journals since the last tick."""
        said = []
        for run in self._board.runs.values():
            if run.fault:
                continue
            if not run.offsets:
                known = self._writer.journals(run.trial_id, run.run_id)
                run.offsets = {path: position.offset for path, position in known.items()}
                run.has_reported = run.has_reported or bool(known)
            for path in _journals(run):
                offset = run.offsets.get(path, 0)
                if _size(path) > offset:
                    reader = journal.JournalReader(Path(path), offset)
                    with blaming(BadRun(run.trial_id, run.run_id)):
                        records = list(reader.records(_MOST_BYTES_OF_A_JOURNAL))
                        if not records and reader.is_damaged():
                            raise _corrupt(reader)
                    if records:
                        said.append((run, path, records, reader.offset))
        return said

    def _has_more(self, transaction: Transaction, run: LiveRun) -> bool:
        """Whether a run that ended has more in its journals than one tick reads.

        A torn tail does not count: its writer was killed. Bytes that no writer left do: what was
        there is lost, so the run has failed, whatever its exit code.
        """
        if run.fault:  # its reports no longer count
            return False
        for path in _journals(run):
            reader = journal.JournalReader(Path(path), run.offsets.get(path, 0))
            if next(reader.records(), None) is not None:
                return True
            damage = reader.diagnose()
            if damage is not journal.Damage.NONE:
                transaction.set_damage(path, damage.value)
            if damage is journal.Damage.CORRUPT:
                # Not raised: what it said before the damage is recorded in this transaction.
                self._blame(transaction, run, _unrecorded(_corrupt(reader)))
                return False
        return False

    def _has_commands(self) -> bool:
        return self._writer.has_commands()


_Said = tuple[LiveRun, str, list[journal.Record], int]


def _corrupt(reader: journal.JournalReader) -> JournalError:
    return JournalError(f"{reader.path} is corrupt at byte {reader.offset}")


def _unrecorded(error: Exception) -> str:
    return f"its reports cannot be recorded: {error}"


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
