"""Jobs and partitions, as Slurm listed them last. One `squeue` serves all runs of a home."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from determined.platform.homes.home import Home
from determined.platform.machines.slots import Machine
from determined.platform.machines.slurm import (
    Job,
    Partition,
    SlurmSettings,
    SlurmTable,
    load_table,
)
from determined.platform.runs.launchers.slurm.commands import (
    SlurmRefusedError,
    SlurmUnansweredError,
    call,
)

logger = logging.getLogger("determined.supervisor")

_POLL_SECONDS = 2.0
_PARTITIONS_SECONDS = 60.0
_REST = 10.0
"""A slow answer is followed by a pause of so many times its length: others use Slurm, too."""
_LONGEST_REST_SECONDS = 30.0
_LEAST_FREE_BYTES = 1 << 20
_JOBS = ("squeue", "--me", "--states=all", "--noheader", "--format=%i|%j|%T|%r|%N|%P|%S")
_PARTITIONS = ("sinfo", "--noheader", "--format=%R|%P|%D|%t|%c|%G")
_OVER = (
    *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL"),
    *("DEADLINE", "OUT_OF_MEMORY", "REVOKED"),
)


class Look(NamedTuple):
    """The jobs of this home as of `began`, by the monotonic clock; -1 before the first answer."""

    began: float = -1.0
    jobs: tuple[Job, ...] = ()

    def find(self, allocation_id: str, job_id: str | None) -> Job | None:
        """The job of a run: the one that has taken it, else one that still can."""
        ours = [job for job in self.jobs if job.allocation_id == allocation_id]
        if job_id is not None:
            return next((job for job in ours if job.id == job_id), None)
        return min(ours, key=lambda job: not is_live(job), default=None)


def is_live(job: Job) -> bool:
    return job.state not in _OVER


class SlurmCluster:
    """Asks Slurm, from any thread, and publishes the answers for clients."""

    def __init__(self, home: Home, settings: SlurmSettings) -> None:
        self.settings = settings
        self._home = home
        table = load_table(home.slurm) or SlurmTable(settings.address)
        self._table = replace(
            table,
            address=settings.address,
            slot_type=settings.slot_type,
            max_jobs=settings.max_jobs,
        )
        self._table.save(home.slurm)  # the name of the home must not change
        self._machine = self._table.machine
        self._lock = threading.Lock()
        self._last = Look()
        self._next_poll = 0.0
        self._next_partitions = 0.0
        self._watching: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self.shared = Path(settings.shared_dir or home.path / "slurm")
        """What this machine and the nodes share, as it is called here."""

    @property
    def table(self) -> SlurmTable:
        return self._table

    def machine(self) -> Machine:
        """What there is to schedule on; the same object until that changes."""
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        return self._machine

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    def job_name(self, allocation_id: str) -> str:
        return f"det-{self._table.home}-{allocation_id}"

    async def look(self, *, waits: bool = True) -> Look:
        """The jobs as they were listed last; `waits` for a list that is due.

        One question serves all callers, so that none of them keeps a thread busy.
        """
        if time.monotonic() >= self._next_poll:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(asyncio.to_thread(self._ask))
            if waits:
                await asyncio.shield(self._asking)
        return self._last

    def submit(self, arguments: Sequence[str], script: str) -> str:
        """Submit a job and return its id."""
        answer = call(("sbatch", "--parsable", *arguments), script)
        return answer.strip().splitlines()[-1].partition(";")[0]

    def cancel(self, allocation_id: str) -> None:
        """End the jobs of a run, however many were submitted."""
        call(("scancel", "--me", f"--name={self.job_name(allocation_id)}"))

    async def _watch(self) -> None:
        while True:
            try:
                await self.look()
            except Exception:
                logger.exception("the cluster's state cannot be read")
            await asyncio.sleep(_POLL_SECONDS)

    def _ask(self) -> None:
        with self._lock:
            began = time.monotonic()
            if began < self._next_poll:
                return
            try:
                jobs = tuple(self._list_jobs())
                partitions = self._list_partitions(began)
                trouble = self._no_room()
            except (SlurmUnansweredError, SlurmRefusedError) as error:
                self._publish(
                    replace(self._table, trouble=f"Slurm does not answer: {error} Trials wait.")
                )
                rest = 0.0  # the time until it was given up was a pause, too
            else:
                self._last = Look(began, jobs)
                shown = tuple(job for job in jobs if is_live(job))
                self._publish(
                    replace(self._table, jobs=shown, partitions=partitions, trouble=trouble)
                )
                rest = min(_REST * (time.monotonic() - began), _LONGEST_REST_SECONDS)
            self._next_poll = time.monotonic() + max(_POLL_SECONDS, rest)

    def _no_room(self) -> str:
        with contextlib.suppress(OSError):  # it is made with the first run, and may be away
            if shutil.disk_usage(self.shared).free < _LEAST_FREE_BYTES:
                return f"{self.shared}, which nodes share, is full: trials wait until it has room."
        return ""

    def _list_jobs(self) -> Iterator[Job]:
        prefix = self.job_name("")
        for line in call(_JOBS).splitlines():
            words = line.split("|")
            if len(words) == 7 and words[1].startswith(prefix):
                number, name, state, reason, nodes, partition, starts = words
                # Steps and arrays are none of ours. While a job ends, its final state is unknown.
                starts = starts if state == "PENDING" and starts != "N/A" else ""
                allocation_id = name.removeprefix(prefix)
                yield Job(number, allocation_id, state, reason, nodes, partition, starts)

    def _list_partitions(self, now: float) -> tuple[Partition, ...]:
        if now < self._next_partitions and self._table.partitions:
            return self._table.partitions
        self._next_partitions = now + _PARTITIONS_SECONDS
        found: dict[str, Partition] = {}
        for line in call(_PARTITIONS).splitlines():
            name, marked, count, state, cpus, resources = line.split("|")
            old = found.get(name, Partition(name))
            nodes, word = int(count), state.rstrip("*~#!%$@^-+")
            found[name] = replace(
                old,
                is_default=marked.endswith("*"),
                nodes=old.nodes + nodes,
                idle=old.idle + (nodes if word == "idle" else 0),
                down=old.down + (nodes if word in ("down", "drain", "drng", "fail") else 0),
                cpus=max(old.cpus, int(cpus.rstrip("+"))),
                gpus=max(old.gpus, _count_gpus(resources)),
            )
        return tuple(found.values())

    def _publish(self, table: SlurmTable) -> None:
        if table == self._table:
            return
        before, self._table = self._table, table
        if table.trouble and table.trouble != before.trouble:
            logger.warning("%s", table.trouble)
        table.save(self._home.slurm)
        if replace(before, jobs=()) != replace(table, jobs=()):
            self._machine = table.machine


def _count_gpus(resources: str) -> int:
    """The GPUs in a list of resources such as `gpu:a100:4(S:0-1),lustre:1`."""
    total = 0
    for resource in resources.split(","):
        words = resource.partition("(")[0].split(":")
        if words[0] == "gpu":
            total += int(words[-1]) if words[-1].isdigit() else 1
    return total
