"""Which part of the supervisor would be full first, at sizes that this machine does not have.

    python -m benchmarks.platform.scale [--nodes 1000] [--trials 10000]

The scheduler and the search are pure, so they run here as they would there. What runs report goes
through real journals and a real store (`python -m benchmarks.platform reports` has more of that).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.search import decisions
from determined.journal import JournalReader, JournalWriter, Metrics
from determined.platform.homes.home import Home
from determined.platform.machines.slurm import SlurmSettings
from determined.platform.rules.scheduler import Request, Running, SlotLocation, decide
from determined.platform.runs.launchers.remote import mirror
from determined.platform.runs.launchers.slurm.cluster import SlurmCluster

_SLOTS_PER_NODE = 8
_REPORTS = 20_000


def main() -> None:
    """Measure everything and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=10_000)
    arguments = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    scheduler(arguments.nodes, arguments.trials)
    search(arguments.nodes * _SLOTS_PER_NODE, arguments.trials)
    jobs(arguments.nodes * _SLOTS_PER_NODE, arguments.trials)
    journals()
    files_home()


def jobs(most: int, trials: int) -> None:
    """Slurm: one decision with as many jobs as may be submitted, and one look at all of them.

    `squeue` is a stand-in that prints as many lines; the real one asks Slurm's controller.
    """
    waiting = [Request(key, key % 50, key, priority=50) for key in range(trials)]
    first = _timed("all jobs free", lambda: decide(waiting, [], range(most), {}))
    left = waiting[len(first.starts) :]
    running = list(first.starts)
    _timed("one job free", lambda: decide(left, running[1:], range(most), {}))
    with tempfile.TemporaryDirectory(prefix="det-bench-") as name:
        home = Home(Path(name))
        cluster = SlurmCluster(home, SlurmSettings(max_jobs=most))
        row = "{0}|" + cluster.job_name("{0}.1") + "|RUNNING|None|n1|main|N/A\n"
        _command(Path(name, "squeue"), "".join(row.format(number) for number in range(most)))
        _command(Path(name, "sinfo"), "main|main*|1000|alloc|8|(null)\n")
        os.environ["PATH"] = f"{name}:{os.environ['PATH']}"
        begin = time.perf_counter()
        seen = asyncio.run(cluster.look())
        seconds = (time.perf_counter() - begin) * 1e3
        print(f"{'a look at all jobs':32} {seconds:8.1f} ms, {len(seen.jobs)} jobs")


def _command(path: Path, output: str) -> None:
    (path.parent / f"{path.name}.out").write_text(output)
    path.write_text(f"#!/bin/sh\ncat {path}.out\n")
    path.chmod(0o755)


def scheduler(nodes: int, trials: int) -> None:
    """One decision each: how much is free, what is asked for."""
    slots = range(nodes * _SLOTS_PER_NODE)
    places = {slot: SlotLocation(str(slot // _SLOTS_PER_NODE)) for slot in slots}
    waiting = [Request(key, key % 50, key, priority=50) for key in range(trials)]
    first = _timed("all slots free", lambda: decide(waiting, [], slots, places))
    started = {start.request.key for start in first.starts}
    left = [request for request in waiting if request.key not in started]
    running = list(first.starts)
    _timed("no slot free", lambda: decide(left, running, slots, places))
    _timed("one slot free", lambda: decide(left, running[1:], slots, places))
    large = Request(trials, 99, trials, slots=4 * _SLOTS_PER_NODE, priority=1)
    _timed("preempt for 4 nodes", lambda: decide([large, *left], running, slots, places))
    four = [Request(key, key % 50, key, slots=4, priority=50) for key in range(trials // 100)]
    _timed("trials of 4 slots", lambda: decide(four, list[Running](), slots, places))


def search(slots: int, trials: int) -> None:
    """What a decision costs while as many trials run as there are slots."""
    for name in ("random", "adaptive_asha"):
        print(f"{'search, ' + name:24} {decisions.measure({'name': name}, trials, slots)}")


def journals() -> None:
    """How fast one process reads what many have reported."""
    with tempfile.TemporaryDirectory(prefix="det-bench-") as name:
        path = Path(name, "journal-1")
        writer = JournalWriter(path)
        writer.append(
            [
                Metrics("validation", step, {"loss": 1.0, "accuracy": 0.5})
                for step in range(_REPORTS)
            ]
        )
        writer.close()
        begin = time.perf_counter()
        count = sum(1 for _ in JournalReader(path, 0).records())
        seconds = time.perf_counter() - begin
        print(f"{'journal reading':24} {count / seconds:12,.0f} reports a second")


def files_home() -> None:
    """How fast one process brings small pieces of many runs home."""
    with tempfile.TemporaryDirectory(prefix="det-bench-") as name:
        node, home = Path(name, "node"), Path(name, "home")
        node.mkdir()
        home.mkdir()
        count = 2000
        begin = time.perf_counter()
        for _ in range(count):
            with (node / "journal-1").open("ab") as file:
                file.write(b"x" * 100)
            news = mirror.read_news(node, mirror.known(home, home, None))
            mirror.apply(news, home, home, None)
        seconds = time.perf_counter() - begin
        print(f"{'pieces brought home':24} {count / seconds:12,.0f} a second, both ends")


def _timed(name: str, function):  # type: ignore[no-untyped-def]  # any decision
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - begin)
    middle = statistics.median(seconds) * 1e3
    print(f"{'scheduler, ' + name:32} {middle:8.1f} ms, {len(result.starts)} starts")
    return result


if __name__ == "__main__":
    main()
