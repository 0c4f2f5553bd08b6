"""The launcher: it calls agents on the nodes, and copies what runs write home in pieces.

In the home a run has the same folder as a local one, so all other code reads it as usual. The
files themselves show how much was copied: the next supervisor continues from there. `exit.json` is
written last.
"""

from __future__ import annotations

import asyncio
import io
import logging
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray

from determined.errors import DeterminedError
from determined.platform.homes.code_archive import write_archive
from determined.platform.homes.snapshot import load_snapshot
from determined.platform.runs.folder import RunExit, RunFolder
from determined.platform.runs.launchers.ends import combined, lost
from determined.platform.runs.launchers.local import LocalLauncher
from determined.platform.runs.launchers.protocol import (
    RunAlreadyStartedError,
    RunNotPlacedError,
    RunState,
)
from determined.platform.runs.launchers.ray.agent import Report
from determined.platform.runs.launchers.ray.cluster import Cluster, NodeGoneError
from determined.platform.runs.launchers.ray.order import TENSORBOARD_VARIABLE, order_for
from determined.platform.runs.launchers.remote import mirror, storage_probe
from determined.platform.runs.launchers.remote.merged_log import MergedLog
from determined.platform.runs.placement import Placement, load_placement

logger = logging.getLogger("determined.supervisor")

_LONG_POLL_SECONDS = 20.0
_OTHERS_GRACE_SECONDS = 10.0


class RayLauncher:
    """Runs of a cluster; also serves those that were started on this machine before."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._local = LocalLauncher()
        self._checked: dict[tuple[str, str], list[str]] = {}
        self._archives: dict[str, Any] = {}
        self._logs: dict[Path, MergedLog] = {}

    async def start(self, run: RunFolder) -> None:
        placement = load_placement(run)
        if placement is None:
            await self._local.start(run)
            return
        if run.was_started:
            raise RunAlreadyStartedError(f"{run.path} was started before.")
        for part in placement.parts:
            await self._cluster.require_room(part.node)
        key = run.spec.allocation_id
        try:
            notes = await self._check(run, placement)
            if placement.parts[0].slots:
                await self._cluster.reserve(key, _bundles(placement))
            orders = await self._orders(run, placement, notes)
        except Exception as error:
            await self._cluster.release(key)
            if isinstance(error, NodeGoneError):
                raise RunNotPlacedError(str(error)) from error
            raise
        try:
            run.mark_started()
        except FileExistsError:
            raise RunAlreadyStartedError(f"{run.path} was started before.") from None
        for part, order in zip(placement.parts, orders, strict=True):
            try:
                await self._cluster.call(part.node, "start", order)
            except RunAlreadyStartedError:
                continue  # by this call, whose response was lost: no other process may
            except NodeGoneError:
                return  # its state will be LOST
        if run.control.exists():
            await self.send_control(run)  # requests of the meantime found no folder there

    async def states(self, runs: Iterable[RunFolder]) -> list[RunState]:
        return list(await asyncio.gather(*(self._state(run) for run in runs)))

    async def _state(self, run: RunFolder) -> RunState:
        placement = load_placement(run)
        if placement is None:
            return (await self._local.states([run]))[0]
        if not run.was_started:
            return RunState.NOT_STARTED
        if run.exit is not None:
            return RunState.ENDED
        try:
            states = await self._of_all(run, placement, "state")
        except NodeGoneError:
            return RunState.LOST
        found: RunState = min(states, key=list(_WORST_FIRST).index)
        return found

    async def collect(self, run: RunFolder) -> None:
        placement = load_placement(run)
        if placement is None or run.exit is not None:
            return
        log = self._merged_log(run, placement)
        for index in range(len(placement.parts)):
            while True:
                report = await self._read(run, placement, index, wait_seconds=0.0)
                if not report.news.pieces:
                    break
        if log is not None:
            log.merge()

    async def wait(self, run: RunFolder) -> RunExit | None:
        placement = load_placement(run)
        if placement is None:
            return await self._local.wait(run)
        if run.exit is not None:
            return run.exit
        log = self._merged_log(run, placement)
        indices = range(len(placement.parts))
        tasks = [asyncio.create_task(self._follow(run, placement, index, log)) for index in indices]
        try:
            ends = await self._end_together(run, placement, tasks)
        finally:
            for task in tasks:
                task.cancel()
        if any(end is None for end in ends):
            return None
        return await self._finish(run, placement, [end for end in ends if end is not None], log)

    async def _follow(
        self, run: RunFolder, placement: Placement, index: int, log: MergedLog | None
    ) -> RunExit | None:
        """Copy home all that a part writes; return how it ended, None if it is lost."""
        while True:
            try:
                report = await self._read(run, placement, index, _LONG_POLL_SECONDS)
            except NodeGoneError:
                return None
            if log is not None and report.news.pieces:
                log.merge()
            if report.news.is_all:
                return report.end

    async def _end_together(
        self,
        run: RunFolder,
        placement: Placement,
        tasks: list[asyncio.Task[RunExit | None]],
    ) -> list[RunExit | None]:
        """Wait for all parts; when one has failed or is lost, end the others after a while."""
        waiting: set[asyncio.Task[RunExit | None]] = set(tasks)
        measures: list[tuple[float, str]] = []
        while waiting:
            timeout = max(0.0, measures[0][0] - time.monotonic()) if measures else None
            done, waiting = await asyncio.wait(
                waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            ends = [task.result() for task in done]
            if waiting and any(end is None or end.exit_code for end in ends) and not measures:
                now = time.monotonic()
                measures = [(now + _OTHERS_GRACE_SECONDS, "terminate")]
                measures.append((now + _OTHERS_GRACE_SECONDS + run.spec.stop_grace_seconds, "kill"))
            if waiting and measures and time.monotonic() >= measures[0][0]:
                await self._to_all(run, placement, measures.pop(0)[1])
        return [task.result() for task in tasks]

    async def send_control(self, run: RunFolder) -> None:
        placement = load_placement(run)
        if placement is not None and run.exit is None:
            await self._to_all(run, placement, "send_control", run.control.read_bytes())

    async def terminate(self, run: RunFolder) -> None:
        placement = load_placement(run)
        if placement is None:
            await self._local.terminate(run)
        elif run.was_started and run.exit is None:
            await self._to_all(run, placement, "terminate")

    async def kill(self, run: RunFolder) -> RunExit | None:
        placement = load_placement(run)
        if placement is None:
            return await self._local.kill(run)
        if not run.was_started:
            return None
        if run.exit is None:
            await self._to_all(run, placement, "kill")
        return await self.wait(run)

    async def declare_dead(self, run: RunFolder, why: str) -> RunExit:
        placement = load_placement(run)
        if placement is None:
            return await self._local.declare_dead(run, why)
        if run.exit is not None:
            return run.exit
        ends = []
        key = run.spec.allocation_id
        for part in placement.parts:
            try:
                ends.append(await self._cluster.call(part.node, "declare_dead", key, why))
            except NodeGoneError:
                ends.append(lost(run, f"{why} Its node {part.host} has left the cluster."))
        try:
            await self.collect(run)
        except NodeGoneError:
            logger.info("the last output of %s is lost with its node", key)
        return await self._finish(run, placement, ends, self._merged_log(run, placement))

    async def close(self) -> None:
        """Leave the cluster; runs continue."""
        await self._cluster.close()

    # What a start needs

    async def _check(self, run: RunFolder, placement: Placement) -> list[str]:
        """Refuse nodes that cannot run it, asking each once; return differences to note."""
        storage = dict(placement.storage)
        notes = []
        for part in placement.parts:
            mark = (part.node, f"{sorted(placement.expects.items())} {sorted(storage.items())}")
            if mark not in self._checked:
                where = f"node {part.host} ({part.address})"
                versions = await self._cluster.call(part.node, "versions", placement.interpreter)
                found = compare(where, versions, placement.expects)
                if storage:
                    await self._check_storage(run, placement, part.node, where)
                self._checked[mark] = found
            notes += self._checked[mark]
        return notes

    async def _check_storage(
        self, run: RunFolder, placement: Placement, node: str, where: str
    ) -> None:
        storage = dict(placement.storage)
        name = f".visible-{self._cluster.home_id}-{run.spec.allocation_id}"
        marker = await asyncio.to_thread(storage_probe.leave_marker, storage, name)
        try:
            arguments = (storage, name, run.environment, placement.interpreter)
            problem = await self._cluster.call(node, "check_storage", *arguments)
        finally:
            if marker is not None:
                marker.unlink(missing_ok=True)
        if problem:
            raise DeterminedError(f"checkpoint_storage: {where} {problem}")

    async def _orders(
        self, run: RunFolder, placement: Placement, notes: Sequence[str]
    ) -> list[Any]:
        """What each node is to start, after copying the code there. Notes are for the log."""
        ports = await self._cluster.call(placement.parts[0].node, "ports")
        orders = []
        for index, part in enumerate(placement.parts):
            if placement.code is not None:
                await self._bring_code(part.node, placement)
            devices: list[str] = []
            if placement.has_gpus and part.slots:
                count = len(part.slots) * placement.share
                devices = await self._cluster.devices(run.spec.allocation_id, index, count)
            orders.append(order_for(run, placement, index, ports, devices, notes))
        return orders

    async def _bring_code(self, node: str, placement: Placement) -> None:
        assert placement.code is not None
        if await self._cluster.call(node, "has_code", placement.code):
            return
        if placement.code not in self._archives:
            archive = await asyncio.to_thread(_archive, placement)
            self._archives = {
                placement.code: ray.put(archive)
            }  # only the last one: it will be needed again
        await self._cluster.call(node, "add_code", placement.code, self._archives[placement.code])

    # Copying home

    async def _read(
        self, run: RunFolder, placement: Placement, index: int, wait_seconds: float
    ) -> Report:
        folder, tensorboard = _home_of(run, placement, index), _tensorboard(run)
        have = mirror.known(folder, run.path, tensorboard)
        report: Report = await self._cluster.call(
            placement.parts[index].node, "read", run.spec.allocation_id, have, wait_seconds
        )
        mirror.apply(report.news, folder, run.path, tensorboard)
        return report

    def _merged_log(self, run: RunFolder, placement: Placement) -> MergedLog | None:
        """The log of a run on several nodes; one object for all callers that wait for the run."""
        count = len(placement.parts)
        if count > 1 and run.path not in self._logs:
            parts = [_home_of(run, placement, index) / "log" for index in range(count)]
            self._logs[run.path] = MergedLog(run.path, parts)
        return self._logs.get(run.path)

    async def _finish(
        self, run: RunFolder, placement: Placement, ends: list[RunExit], log: MergedLog | None
    ) -> RunExit:
        """Release the run's resources, then record how it ended: it is not checked again."""
        if run.exit is not None:
            return run.exit
        if log is not None:
            log.merge(is_last=True)
        end = combined(ends, run.log)
        await self._cluster.release(run.spec.allocation_id)
        if run.exit is None:
            run.save_exit(end)
        self._logs.pop(run.path, None)
        await self._to_all(run, placement, "forget")
        return end

    async def _to_all(self, run: RunFolder, placement: Placement, verb: str, *args: Any) -> None:
        """Call the agents of all nodes of a run that are still there."""

        async def one(node: str) -> None:
            try:
                await self._cluster.call(node, verb, run.spec.allocation_id, *args)
            except NodeGoneError:
                logger.debug("%s: %s is gone", verb, node)

        await asyncio.gather(*(one(part.node) for part in placement.parts))

    async def _of_all(self, run: RunFolder, placement: Placement, verb: str) -> list[Any]:
        key = run.spec.allocation_id
        calls: list[Awaitable[Any]] = [
            self._cluster.call(part.node, verb, key) for part in placement.parts
        ]
        return list(await asyncio.gather(*calls))


_WORST_FIRST: Iterable[RunState] = (
    RunState.LOST,
    RunState.KEEPER_SUSPENDED,
    RunState.SUSPENDED,
    RunState.RUNNING,
    RunState.NOT_STARTED,
    RunState.ENDED,
)


def compare(where: str, versions: Mapping[str, str], expects: Mapping[str, str]) -> list[str]:
    """Refuse another version of this library; note those of other packages: results may differ."""
    notes = []
    for name, expected in expects.items():
        found = versions.get(name, "no version")
        if found == expected:
            continue
        difference = f"{where} has {found} of {name}, the experiment was created with {expected}"
        if name == "determined-pytorch" or name not in versions:
            raise DeterminedError(f"{difference}. Install the same version there.")
        notes.append(f"{difference}: results may differ.")
    return notes


def _bundles(placement: Placement) -> dict[str, dict[str, float]]:
    kind = "GPU" if placement.has_gpus else "CPU"
    return {part.node: {kind: len(part.slots) * placement.share} for part in placement.parts}


def _archive(placement: Placement) -> bytes:
    assert placement.code is not None
    file = io.BytesIO()
    write_archive(load_snapshot(Path(placement.snapshots), placement.code), file)
    return file.getvalue()


def _home_of(run: RunFolder, placement: Placement, index: int) -> Path:
    """The folder in the home that a part is copied to; several parts have one each."""
    if len(placement.parts) == 1:
        return run.path
    folder = run.path / "nodes" / str(index)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _tensorboard(run: RunFolder) -> Path | None:
    named = run.environment.get(TENSORBOARD_VARIABLE)
    return None if named is None else Path(named)
