"""Run the contenders of a comparison and collect one number per contender and round."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks import suite
from benchmarks.job import Job
from benchmarks.suite import Comparison, Growth
from benchmarks.turns import Contender, user_environment

_IMPORT = """
import torch, time
began = time.perf_counter()
{line}
print(time.perf_counter() - began)
"""


def compare(comparison: Comparison, peers: Iterable[str], rounds: int | None) -> dict[str, Any]:
    """Return microseconds per batch, and memory at the end, of all contenders in turns."""
    job = suite.scaled(comparison.job, rounds)
    entries = suite.contenders(job, peers, comparison.only_defaults)
    turns, ends = _take_turns(entries, job.rounds)
    for _ in range(comparison.launches - 1 if rounds is None else 0):
        again, _ = _take_turns(entries, job.rounds)
        turns = {name: [*taken, *again[name]] for name, taken in turns.items()}
    per_batch = 1e6 / (job.turn * comparison.units)
    return {
        **_described(comparison, "µs", "ratio"),
        "values": _column(turns, "wall", per_batch),
        "cpu": _column(turns, "cpu", per_batch),
        "peak_rss_mb": {name: end["peak_rss_mb"] for name, end in ends.items()},
    }


def memory(compared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the peak memory of a comparison's processes."""
    return {
        "name": "memory",
        "title": "peak memory over the plain loop",
        "unit": "MB",
        "kind": "difference",
        "goals": dict.fromkeys(suite.OURS, 60.0),
        "values": {name: [peak] for name, peak in compared["peak_rss_mb"].items()},
    }


def stall(comparison: Comparison, peers: Iterable[str], rounds: int | None) -> dict[str, Any]:
    """Return the milliseconds for which training stands still when a checkpoint is saved."""
    job = suite.scaled(comparison.job, rounds)
    entries = suite.contenders(job, peers, comparison.only_defaults)
    turns, _ = _take_turns(entries, job.rounds, before_each=os.sync)
    for turn in itertools.chain.from_iterable(turns.values()):
        usual = (turn["wall"] - turn["saving"]) / (job.turn - 1)
        turn["stall"] = turn["saving"] - usual
    return {**_described(comparison, "ms", "ratio"), "values": _column(turns, "stall", 1e3)}


def starts(comparison: Comparison, peers: Iterable[str], rounds: int | None) -> dict[str, Any]:
    """Return the seconds from the start of a process to its first batch after a checkpoint."""
    entries = suite.contenders(comparison.job, peers, comparison.only_defaults)
    values: dict[str, list[float]] = {name: [] for name in entries}
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
        directories = {name: pathlib.Path(scratch) / str(i) for i, name in enumerate(entries)}
        for name, (module, job) in entries.items():
            directories[name].mkdir()
            _run_alone(module, job, directories[name])
        for _ in range(rounds or suite.START_ROUNDS):
            for name, (module, job) in entries.items():
                resumed = dataclasses.replace(job, is_resumed=True)
                with tempfile.TemporaryDirectory(prefix="benchmark-") as copy:
                    shutil.copytree(directories[name], copy, dirs_exist_ok=True)
                    values[name].append(_run_alone(module, resumed, pathlib.Path(copy)))
    return {**_described(comparison, "s", "difference"), "values": values}


def imports(peers: Iterable[str], rounds: int | None) -> dict[str, Any]:
    """Return the seconds that an import takes after `import torch`."""
    lines = suite.import_lines(peers)
    values: dict[str, list[float]] = {name: [] for name in lines}
    for round_idx in range((rounds or suite.IMPORT_ROUNDS) + 1):
        for name, line in lines.items():
            command = [sys.executable, "-c", _IMPORT.format(line=line)]
            output = subprocess.run(
                command, capture_output=True, check=True, text=True, env=user_environment()
            ).stdout
            if round_idx > 0:  # the first fills the file cache and compiles
                values[name].append(float(output))
    return {
        "name": "imports",
        "title": "import, over torch's",
        "unit": "s",
        "kind": "value",
        "goals": {"ours": 0.15},
        "values": values,
    }


def grow(growth: Growth, rounds: int | None) -> dict[str, Any]:
    """Return our microseconds per batch over the plain loop's, for each size."""
    job = suite.scaled(growth.job, rounds)
    entries: dict[str, tuple[str, Job]] = {}
    for point in growth.points:
        sized = suite.with_size(job, growth.field, point)
        entries[f"plain {point}"] = ("benchmarks.contenders.plain", sized)
        entries[f"ours {point}"] = ("benchmarks.contenders.ours", sized)
    if not growth.plain_grows_too:
        base = f"plain {growth.points[0]}"
        entries = {k: v for k, v in entries.items() if k.startswith("ours") or k == base}
    turns, _ = _take_turns(entries, job.rounds)
    walls = _column(turns, "wall", 1e6 / job.turn)
    values = {}
    for point in growth.points:
        plain = walls.get(f"plain {point}", walls[f"plain {growth.points[0]}"])
        ours = walls[f"ours {point}"]
        values[str(point)] = [mine - theirs for mine, theirs in zip(ours, plain, strict=True)]
    return {
        "name": growth.name,
        "title": growth.title,
        "unit": "µs",
        "kind": "growth",
        "goals": {},
        "values": values,
    }


def _described(comparison: Comparison, unit: str, kind: str) -> dict[str, Any]:
    return {
        "name": comparison.name,
        "title": comparison.title,
        "unit": unit,
        "kind": kind,
        "goals": comparison.goals,
    }


def _column(
    turns: dict[str, list[dict[str, float]]], field: str, scale: float
) -> dict[str, list[float]]:
    return {name: [turn[field] * scale for turn in taken] for name, taken in turns.items()}


def _take_turns(
    entries: Mapping[str, tuple[str, Job]],
    rounds: int,
    before_each: Callable[[], None] = lambda: None,
) -> tuple[dict[str, list[dict[str, float]]], dict[str, dict[str, float]]]:
    """Return each contender's turns, and what it said at the end of its training."""
    order = random.Random(0)
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in entries}
    with _started(entries) as processes:
        for _ in range(rounds):
            # Nobody always follows the same neighbour, nor is always far from the plain loop.
            for name in order.sample(sorted(processes), len(processes)):
                before_each()
                turns[name].append(processes[name].turn())
        ends = {name: process.finish() for name, process in processes.items()}
    return turns, ends


@contextlib.contextmanager
def _started(entries: Mapping[str, tuple[str, Job]]) -> Iterator[dict[str, Contender]]:
    """Start all contenders, two at a time, each in a directory of its own."""
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-"))

        def start(name: str) -> Contender:
            module, job = entries[name]
            directory = pathlib.Path(scratch) / str(list(entries).index(name))
            directory.mkdir()
            process = Contender(module, job, directory)
            stack.callback(process.stop)
            return process

        with ThreadPoolExecutor(2) as pool:
            processes = dict(zip(entries, pool.map(start, entries), strict=True))
        yield processes


def _run_alone(module: str, job: Job, directory: pathlib.Path) -> float:
    """Run a whole training and return how long it took to its first batch."""
    process = Contender(module, job, directory)
    try:
        for _ in range(job.rounds):
            process.turn()
        process.finish()
    finally:
        process.stop()
    return process.start_seconds
