"""The launcher: a run is one job of Slurm, and its files come home from a shared folder.

In the home a run has the same folder as a local one, so all other code reads it as usual.
`exit.json` there is written last. Files tell at once that a run has ended; what they cannot tell,
`squeue` does, asked once for all runs. A run is submitted again only if an answer was lost, and
taken at most once: by a job, or by us, so that no job ever runs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from determined._os.json_file import write_json
from determined.errors import DeterminedError
from determined.platform.homes.home import Home
from determined.platform.homes.snapshot import load_snapshot, working_copy
from determined.platform.machines.slurm import Job
from determined.platform.runs.folder import NOT_STARTED, RunExit, RunFolder
from determined.platform.runs.job_order import JobOrder, load_order
from determined.platform.runs.launchers.ends import combined, lost
from determined.platform.runs.launchers.local import LocalLauncher
from determined.platform.runs.launchers.protocol import (
    RunAlreadyStartedError,
    RunState,
    RunStillLiveError,
)
from determined.platform.runs.launchers.remote import mirror, storage_probe
from determined.platform.runs.launchers.remote.merged_log import MergedLog
from determined.platform.runs.launchers.slurm import fates, submission
from determined.platform.runs.launchers.slurm.cluster import SlurmCluster, is_live
from determined.platform.runs.launchers.slurm.commands import (
    SlurmRefusedError,
    SlurmUnansweredError,
)
from determined.platform.runs.launchers.slurm.shared import SUPERVISOR, SharedFolder

logger = logging.getLogger("determined.supervisor")

_POLL_SECONDS = 0.2
_LOOKS_PER_SECOND = 50.0  # at the files of all runs: others use the shared file system, too
_THREADS = 8
_RETRY_SECONDS = 2.0
_SETTLE_SECONDS = 4.0
_QUIT_SECONDS = 10.0
_T = TypeVar("_T")
_SCRIPT = "job.sh"
_ASKED = "asked"  # in the run's folder at home: we have asked the run to end


class SlurmLauncher:
    """Runs as jobs; also serves those that were started on this machine before."""

    def __init__(self, home: Home, cluster: SlurmCluster) -> None:
        self._cluster = cluster
        self._root = cluster.shared / cluster.table.home
        self._local = LocalLauncher()
        # Of its own: a shared file system that hangs must not keep the supervisor from its work.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="shared")
        self._waiting = 0
        self._submitting: set[Path] = set()
        self._submitted: dict[Path, float] = {}
        self._since: dict[Path, dict[str, float]] = {}
        """When something was first seen of a run, by the monotonic clock."""
        self._logs: dict[Path, MergedLog] = {}
        self._probed: set[str] = set()
        self._copying: dict[Path, threading.Lock] = {}
        self._finishing = threading.Lock()

    async def start(self, run: RunFolder) -> None:
        order = load_order(run)
        if order is None:
            await self._local.start(run)
            return
        if run.was_started:
            raise RunAlreadyStartedError(f"{run.path} was started before.")
        settings, table = self._cluster.settings, self._cluster.table
        submission.check_slots(order, settings, table)
        shared = self._shared(run)
        await self._in_thread(self._prepare, run, order, shared)
        name = self._cluster.job_name(run.spec.allocation_id)
        there = self._on_nodes(shared)
        arguments = submission.arguments(name, f"{there}/job.out", order, settings, table)
        script = submission.script(str(there), order.interpreter, settings)
        (run.path / _SCRIPT).write_text(f"# sbatch {' '.join(arguments)}\n{script}")
        try:
            run.mark_started()
        except FileExistsError:
            raise RunAlreadyStartedError(f"{run.path} was started before.") from None
        self._submitting.add(run.path)
        try:
            await self._submit(run, shared, arguments, script)
        finally:
            self._submitting.discard(run.path)

    async def _submit(
        self, run: RunFolder, shared: SharedFolder, arguments: list[str], script: str
    ) -> None:
        last = ""
        while run.exit is None:
            try:
                job_id = await asyncio.to_thread(self._cluster.submit, arguments, script)
            except SlurmRefusedError as error:
                await self._in_thread(shared.take)
                words = f"{error} (the script is {run.path / _SCRIPT})"
                run.save_exit(RunExit(1, NOT_STARTED, words, ended_at=time.time()))
                return
            except SlurmUnansweredError as error:
                if str(error) != last:
                    logger.warning("run %s: %s", run.spec.allocation_id, error)
                last, asked = str(error), time.monotonic()
                if await self._is_there(run, shared, asked):
                    break
                continue
            write_json(run.path / "submitted.json", {"version": 1, "job": job_id})
            break
        self._submitted[run.path] = time.monotonic()

    async def _is_there(self, run: RunFolder, shared: SharedFolder, asked: float) -> bool:
        """Whether a submission without an answer has happened, once Slurm answers again."""
        while run.exit is None and await self._in_thread(lambda: shared.taken_by) is None:
            look = await self._cluster.look()
            if look.find(run.spec.allocation_id, None) is not None:
                return True
            if look.began > asked:
                return False
            await asyncio.sleep(_RETRY_SECONDS)
        return True

    async def states(self, runs: Iterable[RunFolder]) -> list[RunState]:
        return list(await asyncio.gather(*(self._state(run) for run in runs)))

    async def _state(self, run: RunFolder) -> RunState:
        if load_order(run) is None:
            return (await self._local.states([run]))[0]
        if not run.was_started:
            return RunState.NOT_STARTED
        found = await self._settle(run)
        return found if isinstance(found, RunState) else RunState.ENDED

    async def wait(self, run: RunFolder) -> RunExit | None:
        if load_order(run) is None:
            return await self._local.wait(run)
        self._waiting += 1
        try:
            while True:
                found = await self._settle(run, waits=False)
                if isinstance(found, RunExit):
                    return found
                if found is RunState.LOST:
                    return None
                await asyncio.sleep(max(_POLL_SECONDS, self._waiting / _LOOKS_PER_SECOND))
        finally:
            self._waiting -= 1

    async def collect(self, run: RunFolder) -> None:
        if load_order(run) is not None and run.exit is None:
            await self._in_thread(self._copy_home, run)

    async def send_control(self, run: RunFolder) -> None:
        if load_order(run) is not None and run.exit is None:
            await self._in_thread(self._copy_control, run)

    async def terminate(self, run: RunFolder) -> None:
        if load_order(run) is None:
            await self._local.terminate(run)
        elif run.was_started and run.exit is None:
            (run.path / _ASKED).touch()
            await self._in_thread(self._shared(run).ask, "TERM")

    async def kill(self, run: RunFolder) -> RunExit | None:
        if load_order(run) is None:
            return await self._local.kill(run)
        if not run.was_started or run.exit is not None:
            return run.exit
        (run.path / _ASKED).touch()
        shared = self._shared(run)
        if await self._in_thread(shared.take):
            end = await self._finish(run, fates.killed_by_us())
            await self._cancel(run)
            return end
        await self._in_thread(shared.ask, "QUIT")
        try:
            found = await asyncio.wait_for(self.wait(run), _QUIT_SECONDS)
        except asyncio.TimeoutError:
            await self._cancel(run)
            found = await self.wait(run)
        return found or await self._finish(run, fates.killed_by_us())

    async def declare_dead(self, run: RunFolder, why: str) -> RunExit:
        if load_order(run) is None:
            return await self._local.declare_dead(run, why)
        found = await self._settle(run)
        if isinstance(found, RunExit):
            return found
        if found is not RunState.LOST:
            raise RunStillLiveError(f"The job of {run.path} lives: stop the run first.")
        shared = self._shared(run)
        await self._in_thread(shared.take)
        await self._in_thread(shared.ask, "QUIT")  # whatever is left of it on a lost node
        return await self._finish(run, lost(run, why))

    async def close(self) -> None:
        """Stop watching; jobs continue."""
        await self._cluster.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # What has become of a run

    async def _settle(self, run: RunFolder, *, waits: bool = True) -> RunExit | RunState:
        """How a run ended, recorded, once that is certain; its state until then."""
        if run.exit is not None:
            return run.exit
        taken_by, end = await self._in_thread(self._read, run)
        was_asked = (run.path / _ASKED).exists()
        if end is not None and (was_asked or not fates.is_unexplained(end)):
            return await self._finish(run, end)
        if run.path in self._submitting:
            return RunState.RUNNING
        look = await self._cluster.look(waits=waits)
        if look.began <= self._submitted.get(run.path, 0.0):
            return RunState.RUNNING  # as far as is known
        if taken_by == SUPERVISOR:
            return RunState.LOST
        job = look.find(run.spec.allocation_id, taken_by or None)
        if end is not None and look.began <= self._first(run, "end"):
            return RunState.RUNNING  # who has ended it is not known yet
        is_requeued = job is not None and job.state == "PENDING" and taken_by is not None
        if is_requeued and look.began <= self._first(run, "taken"):
            return RunState.RUNNING  # it has begun since
        if job is not None and is_live(job) and not is_requeued:
            self._forget(run, "gone")
            return RunState.SUSPENDED if job.state == "SUSPENDED" else RunState.RUNNING
        found: RunExit | RunState
        if end is not None:
            found = await self._finish(run, fates.explained(end, job))
        elif job is None and taken_by is None:
            return RunState.LOST
        # What a node wrote last may come late through a shared file system.
        elif time.monotonic() - self._first(run, "gone") < _SETTLE_SECONDS:
            return RunState.RUNNING
        elif taken_by is None and not await self._in_thread(self._shared(run).take):
            return RunState.RUNNING  # by another job, just now
        else:
            is_known = taken_by is not None
            found = await self._after_job(run, job, was_taken=is_known, was_asked=was_asked)
        if is_requeued:
            await self._cancel(run)  # not by us: the trial goes on in a new job
        return found

    def _read(self, run: RunFolder) -> tuple[str | None, RunExit | None]:
        """Bring home what is new; return which job has the run, and how it ended if it has."""
        shared = self._shared(run)
        taken_by = shared.taken_by
        if taken_by is None:
            if (run.path / _SCRIPT).exists() and not self._root.is_dir():
                raise DeterminedError(
                    f"{self._root} is not there: is the file system that nodes share mounted? Runs "
                    "are waited for until it is back."
                )
            return None, None
        self._first(run, "taken")
        self._copy_home(run)
        end = self._end_of_parts(run, shared)
        if end is not None:
            self._first(run, "end")
        return taken_by, end

    def _first(self, run: RunFolder, what: str) -> float:
        return self._since.setdefault(run.path, {}).setdefault(what, time.monotonic())

    def _forget(self, run: RunFolder, what: str) -> None:
        self._since.get(run.path, {}).pop(what, None)

    async def _after_job(
        self, run: RunFolder, job: Job | None, *, was_taken: bool, was_asked: bool
    ) -> RunExit | RunState:
        """How a run ended that left no record."""
        shared = self._shared(run)
        await self._in_thread(shared.ask, "QUIT")  # whatever is left of it on a lost node
        if was_asked:
            return await self._finish(run, fates.killed_by_us())
        if job is None:
            return RunState.LOST
        if job.state == "CANCELLED":
            return await self._finish(run, fates.canceled(job))
        end = fates.without_record(
            job,
            was_taken=was_taken,
            problem=await self._in_thread(lambda: shared.problem),
            folder=str(self._on_nodes(shared)),
        )
        known = lost(run, "")
        lines = end.last_lines or (known.last_lines if end.reason != NOT_STARTED else ())
        return await self._finish(run, end._replace(last_lines=lines, matches=known.matches))

    def _end_of_parts(self, run: RunFolder, shared: SharedFolder) -> RunExit | None:
        parts = shared.parts()
        ends = [part.exit for part in parts]
        if not ends or any(end is None for end in ends):
            return None
        self._copy_home(run)  # none of their files grows after that
        if len(parts) > 1:
            self._merged_log(run, len(parts)).merge(is_last=True)
        return combined([end for end in ends if end is not None], run.log)

    async def _finish(self, run: RunFolder, end: RunExit) -> RunExit:
        """Record how a run ended: it is not looked at again."""
        return await self._in_thread(self._record, run, end)

    def _record(self, run: RunFolder, end: RunExit) -> RunExit:
        shared = self._shared(run)
        has_record = self._has_record(shared)
        with self._finishing:
            if run.exit is not None:
                return run.exit
            end = run.save_exit(end)
        for known in (self._logs, self._since, self._submitted, self._copying):
            known.pop(run.path, None)
        self._remove_marker(run)
        if has_record:
            shared.remove()  # else a job may still look for it
        return end

    async def _in_thread(self, function: Callable[..., _T], *given: Any) -> _T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, functools.partial(function, *given))

    @staticmethod
    def _has_record(shared: SharedFolder) -> bool:
        parts = shared.parts()
        return bool(parts) and all(part.exit is not None for part in parts)

    async def _cancel(self, run: RunFolder) -> None:
        try:
            await asyncio.to_thread(self._cluster.cancel, run.spec.allocation_id)
        except DeterminedError as error:  # its job finds it taken, or is asked to end already
            logger.warning("run %s: %s", run.spec.allocation_id, error)

    # Files

    def _shared(self, run: RunFolder) -> SharedFolder:
        return SharedFolder(self._root / run.spec.allocation_id)

    def _on_nodes(self, shared: SharedFolder) -> Path:
        settings = self._cluster.settings
        if not settings.shared_dir_on_nodes:
            return shared.path
        there = shared.path.relative_to(settings.shared_dir)
        return Path(settings.shared_dir_on_nodes) / there

    def _prepare(self, run: RunFolder, order: JobOrder, shared: SharedFolder) -> None:
        """Write all that a job needs; nobody else looks at it before the submission."""
        settings, table = self._cluster.settings, self._cluster.table
        nodes = submission.count_nodes(order, settings, table)
        slots = max(1, order.slots // nodes)
        storage = dict(order.storage)
        key = repr(sorted(storage.items(), key=str))
        marker = self._leave_marker(run, storage)
        shared.create(
            {
                "expects": dict(order.expects),
                "storage": storage,
                "marker": marker,
                "probes": key not in self._probed,
                "has_gpus": table.has_gpus,
            }
        )
        self._probed.add(key)
        info, environment = run.read_info(), run.environment
        if "rendezvous" in info:
            info["rendezvous"]["container_slot_counts"] = [slots] * nodes
        numbers = list(range(slots if order.slots else 0))
        if "cluster" in info:
            info["cluster"]["slot_ids"] = numbers
        environment["DET_SLOT_IDS"] = str(numbers)
        for index in range(nodes):
            part = shared.part(index)
            part.path.mkdir(mode=0o700)
            if order.code is not None:
                snapshot = load_snapshot(Path(order.snapshots), order.code)
                working_copy(snapshot, part.workdir)
            part.create(run.spec, environment, info)
            if run.control.exists():
                (part.path / "control").write_bytes(run.control.read_bytes())

    def _leave_marker(self, run: RunFolder, storage: dict[str, object]) -> str:
        name = f".visible-{self._cluster.table.home}-{run.spec.allocation_id}"
        if storage:
            storage_probe.leave_marker(storage, name)
        return name

    def _remove_marker(self, run: RunFolder) -> None:
        order = load_order(run)
        if order is not None and order.storage.get("type") in storage_probe.FOLDERS:
            name = f".visible-{self._cluster.table.home}-{run.spec.allocation_id}"
            with contextlib.suppress(OSError):
                storage_probe.marker_path(dict(order.storage), name).unlink(missing_ok=True)

    def _copy_home(self, run: RunFolder) -> None:
        with self._copying.setdefault(run.path, threading.Lock()):
            if run.exit is None:
                self._copy_news(run)

    def _copy_news(self, run: RunFolder) -> None:
        shared = self._shared(run)
        parts = shared.parts()
        named = run.environment.get("DET_TENSORBOARD_DIR")
        tensorboard = None if named is None else Path(named)
        for index, part in enumerate(parts):
            folder = run.path
            if len(parts) > 1:
                folder = run.path / "nodes" / str(index)
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            while True:
                news = mirror.read_news(part.path, mirror.known(folder, run.path, tensorboard))
                mirror.apply(news, folder, run.path, tensorboard)
                if not news.pieces:
                    break
        if len(parts) > 1:
            self._merged_log(run, len(parts)).merge()

    def _copy_control(self, run: RunFolder) -> None:
        content = run.control.read_bytes()
        for part in self._shared(run).parts():
            draft = part.path / ".control.draft"
            draft.write_bytes(content)
            draft.replace(part.control)

    def _merged_log(self, run: RunFolder, count: int) -> MergedLog:
        if run.path not in self._logs:
            logs = [run.path / "nodes" / str(index) / "log" for index in range(count)]
            self._logs[run.path] = MergedLog(run.path, logs)
        return self._logs[run.path]
