"""One tick after another: read commands, journals and ends; one transaction; then act.

The order within a tick is fixed: commands of clients, reports of runs, runs that ended, results of
background work, which trials run next. All of it is committed at once; side effects follow from
what is committed. A tick that fails changes nothing: the live state is read from the store again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from determined import journal
from determined.errors import StoreError
from determined.platform.homes.creation import sweep_creations
from determined.platform.homes.home import Home
from determined.platform.machines.slots import Machine
from determined.platform.runs.found_runs import newest_number
from determined.platform.runs.launchers.protocol import Launcher
from determined.platform.supervisor import presence
from determined.platform.supervisor.background.calls import Calls
from determined.platform.supervisor.background.deletions import FileDeletion
from determined.platform.supervisor.background.disk import DiskWatch
from determined.platform.supervisor.background.garbage import GarbageCollection
from determined.platform.supervisor.background.slow_searches import SlowSearches
from determined.platform.supervisor.background.worker import Worker
from determined.platform.supervisor.commands.commands import carry_out
from determined.platform.supervisor.commands.copies import hold_copies
from determined.platform.supervisor.decisions import Decisions
from determined.platform.supervisor.fault_isolation import (
    FaultError,
    FaultyCommand,
    FaultyItem,
    FaultyRun,
    FaultySearch,
    isolating,
)
from determined.platform.supervisor.journals import (
    NewRecords,
    has_unread,
    read_new,
    reject_reports,
)
from determined.platform.supervisor.limits import Limits, Overdue
from determined.platform.supervisor.live_state import LiveRun, LiveState
from determined.platform.supervisor.runs import Runs
from determined.platform.supervisor.scheduling import Scheduling
from determined.platform.supervisor.unmanaged.inbox import Inbox
from determined.store import Standing, Transaction, Writer, is_decisive

logger = logging.getLogger("determined.supervisor")

_JOURNAL_SECONDS = 0.1
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
        self._live_state = LiveState(home, is_copy=is_copy)
        self._runs = Runs(self._live_state, launcher, machine, self._changed)
        self._scheduling = Scheduling(self._live_state, machine)
        self._limits = Limits(self._live_state)
        self._inbox = Inbox(home)
        self._workers: tuple[Worker, ...] = (
            # First: if one of its searches fails, the results of the others are not recorded yet.
            SlowSearches(self._live_state, self._changed),
            GarbageCollection(self._live_state, self._changed),
            DiskWatch(self._live_state, self._changed),
            FileDeletion(home, self._changed, is_copy=is_copy),
            Calls(home, self._changed, is_copy=is_copy),
        )
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
            _refuse_lost_records(self._live_state.home, transaction)
            if not self._live_state.is_copy:
                sweep_creations(self._live_state.home, transaction)
                self._inbox.sweep(transaction)
            self._load(transaction)
            if self._live_state.is_copy:
                hold_copies(Decisions(self._live_state, transaction, time.time()))
        idle_since: float | None = None
        self._inbox.watch(self._changed)
        try:
            while not self._is_stopping:
                if not self._is_in_place():
                    logger.error("the home %s no longer exists: exiting", self._live_state.home)
                    self.stop()
                    return
                self._changed.clear()
                await self._tick_safely()
                if self._live_state.must_exit:
                    self.stop()
                idle_since = self._idle_since(idle_since)
                if idle_since is not None and time.monotonic() - idle_since >= self._idle_seconds:
                    return
                await self._wait(idle_since)
        finally:
            self._inbox.close()
            await self._runs.close()
            for worker in self._workers:
                await worker.close()

    @property
    def was_told_to_stop(self) -> bool:
        """Whether it was told to stop, rather than having nothing left to do."""
        return self._is_stopping

    def _load(self, transaction: Transaction) -> None:
        self._live_state.load(transaction)
        self._inbox.forget()
        self._scheduling.forget()
        Decisions(self._live_state, transaction, time.time()).fail_unrestorable()
        for worker in self._workers:
            worker.load(transaction)

    def _idle_since(self, before: float | None) -> float | None:
        is_busy = any(worker.is_busy for worker in self._workers)
        is_idle = self._live_state.is_idle and not is_busy
        return (before or time.monotonic()) if is_idle else None

    async def _wait(self, idle_since: float | None) -> None:
        """Sleep until something has happened, may have happened, or is due."""
        now, monotonic = time.time(), time.monotonic()
        seconds = [
            self._idle_seconds
            if idle_since is None
            else idle_since + self._idle_seconds - monotonic
        ]
        is_soon = self._live_state.runs or self._inbox.has_backlog
        poll = self._inbox.poll_seconds(is_idle=idle_since is not None)
        seconds.append(_JOURNAL_SECONDS if is_soon else poll)
        if (start := self._scheduling.next_start) is not None:
            seconds.append(start - now)
        if (measure := self._runs.next_measure()) is not None:
            seconds.append(measure - monotonic)
        try:
            await asyncio.wait_for(self._changed.wait(), max(0.001, min(seconds)))
        except asyncio.TimeoutError:
            return

    # One tick

    async def _tick_safely(self) -> None:
        try:
            self._tick()
        except Exception as error:
            logger.exception("a tick failed; continuing from the store")
            await self._recover(error)

    def _tick(self) -> None:
        runs = list(self._live_state.runs.values())
        reports = [new for run in runs for new in read_new(run, self._writer)]
        has_items = not self._live_state.is_copy and self._inbox.find_changes()
        ended = [run for run in runs if run.end is not None]
        now, overdue = time.time(), self._limits.overdue()
        is_durable = (
            any(self._is_decisive(new.run, record) for new in reports for record in new.records)
            or bool(ended)
            or self._scheduling.is_due(now)
            or self._writer.has_commands()
            or any(worker.has_results for worker in self._workers)
            or bool(overdue)
            or has_items
        )
        if reports or is_durable:
            with self._writer.transaction(durable=is_durable) as transaction:
                self._decide(transaction, reports, ended, overdue, now, is_durable)
        self._runs.act()
        for worker in self._workers:
            worker.act()
        self._inbox.act()

    def _is_decisive(self, run: LiveRun, record: journal.Record) -> bool:
        if isinstance(record, journal.Progress):
            live = self._live_state.experiments[run.experiment_id]
            return live.is_news(run.trial_id, record.progress)
        return is_decisive(record)

    def _decide(
        self,
        transaction: Transaction,
        reports: list[NewRecords],
        ended: list[LiveRun],
        overdue: list[Overdue],
        now: float,
        is_durable: bool,
    ) -> None:
        decisions = Decisions(self._live_state, transaction, now)
        if is_durable:
            self._inbox.record(transaction)
            for command in transaction.unanswered():
                carry_out(command, decisions, transaction)
        for new in reports:
            self._record_reports(decisions, new, is_durable)
        for run in ended:
            with isolating(FaultyRun(run.trial_id, run.run_id)):
                if run.end is not None and not has_unread(run, transaction):
                    decisions.run_ended(run, run.end)
        if is_durable:
            for live, trial_id, limit in overdue:
                decisions.end_for_time(live, trial_id, limit)
            for worker in self._workers:
                worker.record(decisions)
            self._scheduling.run(transaction, now)
            for worker in self._workers:
                worker.load(transaction)

    def _record_reports(self, decisions: Decisions, new: NewRecords, is_durable: bool) -> None:
        run, path, records, offset = new
        with isolating(FaultyRun(run.trial_id, run.run_id)):
            live = self._live_state.experiments[run.experiment_id]
            for accepted in decisions.transaction.read_journal(
                path, run.trial_id, run.run_id, records, offset
            ):
                decisions.reported(live, run.trial_id, accepted)
            if is_durable and any(isinstance(record, journal.Progress) for record in records):
                decisions.progressed(live, run.trial_id)
        run.offsets[path] = offset
        run.has_reported = True

    # After a failure

    async def _recover(self, error: Exception) -> None:
        """Continue from the store, without what caused the failure."""
        pause = _PAUSE_AFTER_FAILURE_SECONDS
        while not self._is_stopping:
            await asyncio.sleep(pause)
            try:
                with self._writer.transaction() as transaction:
                    self._load(transaction)
                    if isinstance(error, FaultError):
                        self._exclude(transaction, error)
                if pause > _PAUSE_AFTER_FAILURE_SECONDS:
                    logger.warning(presence.USES_STORE_AGAIN)
                return
            except Exception:
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
                words = f"{presence.CANNOT_USE_STORE}; trying again in %.0f s"
                logger.exception(words, pause)

    def _exclude(self, transaction: Transaction, error: FaultError) -> None:
        source, live_state = error.source, self._live_state
        decisions = Decisions(live_state, transaction, time.time())
        if isinstance(source, FaultyCommand):
            answer = (
                f"The supervisor failed to do this: {error}. See {live_state.home.supervisor_log}."
            )
            transaction.answer(source.uuid, False, {"error": answer})
        elif isinstance(source, FaultySearch):
            live = live_state.experiments.get(source.experiment_id)
            if live is not None:
                decisions.fail(live, f"its search failed: {error}")
        elif isinstance(source, FaultyItem):
            self._inbox.reject(source.name)
        else:
            run = live_state.runs.get(source.trial_id)
            if run is not None and run.fault:
                live = live_state.experiments[run.experiment_id]
                decisions.fail(live, f"trial {run.trial_id} cannot continue: {error}")
            elif run is not None:
                reject_reports(run, error, transaction)


def _refuse_lost_records(home: Home, transaction: Transaction) -> None:
    """Raise StoreError if a folder of the home is newer than the store.

    A folder is created only after its record is committed. A folder without a record means that the
    store was restored from a copy, or lost its newest part: going on would assign the same ids
    again.
    """
    _compare(home.path / "experiments", transaction.last_experiment_id)
    for record in transaction.unfinished_experiments():
        trials = transaction.trials(record.id)
        folder = home.experiment(record.id) / "trials"
        _compare(folder, max((trial.id for trial in trials), default=0))
        for trial in trials:
            _compare(folder / str(trial.id), trial.run_id)


def _compare(folder: Path, known: int) -> None:
    newest = newest_number(folder)
    if newest > known:
        raise StoreError(
            f"The records in store.db are older than the folder {folder / str(newest)}, which "
            "they do not mention. `det store rebuild` adds what is missing."
        )
