"""Runs a recipe with faults, start by start, and without: in this process, or in forks of it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import logging
import os
import re
import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from determined import pytorch
from determined.pytorch._checkpoint.resuming import environment
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._instrumentation.overrides import Overrides, overriding
from determined.pytorch._trial import PyTorchTrial
from determined.pytorch.verify_resume._interruptions import StopPoint, StopPoints
from determined.storage import _crash_points
from tests.exactness.comparing import Ending, differences, ending_of
from tests.exactness.parts.extras import Pair, Tally
from tests.exactness.parts.optimizers import Scaled
from tests.exactness.recipe import OnlyChanges, Recipe, RecipeTrial
from tests.support.forks import Child
from tests.support.workers import free_port

KINDS = ("stop", "signal", "error", "kill", "kill in a save")
SAVE_POINTS = ("before_tmp", "mid_write", "before_fsync", "before_manifest", "before_rename")
SCALE = 1000


@dataclasses.dataclass(frozen=True, repr=False)
class Fault(OnlyChanges):
    """What happens, how far into the run (in thousandths of its points), and to which rank.

    `threads`: how many there are by default where the run continues.
    """

    kind: str = "stop"
    at: int = 0
    rank: int = 0
    threads: int | None = None

    def stop_point_in(self, passed: list[StopPoint]) -> StopPoint:
        return passed[self.at * len(passed) // (SCALE + 1)]


class Broken(Exception):
    """What user code raises."""


class Diary:
    """Lines in a file, each written at once: a killed process leaves whole ones."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, *what: Any) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, (json.dumps(what, default=str) + "\n").encode())
        os.close(descriptor)

    def lines(self) -> list[list[Any]]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text().splitlines()]


@dataclasses.dataclass
class Start:
    """One start of a run: what became of it."""

    is_over: bool
    ending: Ending
    passed: list[StopPoint]


class _Watched(Overrides):
    def __init__(self, at: StopPoint | None, fault: Fault | None) -> None:
        self._at = at
        self._fault = fault
        self.has_acted = False

    def observer(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> StopPoints:
        def interrupt() -> None:
            self.has_acted = True
            assert self._fault is not None
            _act(self._fault.kind, context)

        at = self._at if context.distributed.rank == (self._fault or Fault()).rank else None
        self.points = StopPoints(context, at, interrupt)
        return self.points


def _act(kind: str, context: PyTorchTrialContext) -> None:
    if kind == "stop":
        context._core._backend.request_preemption()
    elif kind == "signal":
        os.kill(os.getpid(), signal.SIGTERM)
    elif kind == "error":
        raise Broken("user code raised")
    else:
        os.kill(os.getpid(), signal.SIGKILL)


# One start.


def start(
    recipe: Recipe, folder: Path, number: int, fault: Fault | None, at: StopPoint | None
) -> Start:
    """Train from the newest checkpoint, until the end or until the fault."""
    watched = _Watched(at, fault)
    os.environ.pop("OMP_NUM_THREADS", None)  # else the user would have chosen it
    (folder / "work").mkdir(parents=True, exist_ok=True)
    os.chdir(folder / "work")
    said, rank = Diary(folder / "said"), os.environ.get("RANK", "0")
    ending: Ending = {}
    # With one rank's error, each other has one of its own.
    expected = (Exception if recipe.ranks > 1 and fault is not None else Broken, SystemExit)
    with _listening(said, number), overriding(watched), contextlib.suppress(*expected):
        ending = _fit(recipe, folder, rank, watched)
    is_over = bool(ending) and not watched.has_acted
    return Start(is_over, ending, watched.points.passed)


def _fit(recipe: Recipe, folder: Path, rank: str, watched: _Watched) -> Ending:
    def period(count: int | None) -> pytorch.Batch | None:
        return None if count is None else pytorch.Batch(count)

    with pytorch.init(
        seed=7,
        run_id="run",
        checkpoint_storage=folder / "storage",
        aggregation_frequency=recipe.accumulation,
        enable_tensorboard_logging=False,
        trusted_classes=(Pair, Tally, Scaled),
    ) as context:
        diary = Diary(folder / f"diary-{rank}")
        trial = RecipeTrial(context, recipe, diary.note, lambda stage: watched.points.reach(stage))
        _note_rows(context, diary)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(recipe.batches),
            reporting_period=pytorch.Batch(recipe.report_every),
            validation_period=period(recipe.validate_every),
            checkpoint_period=period(recipe.save_every),
            checkpoint_policy="none",
            latest_checkpoint="latest",
            async_checkpoint=recipe.in_background,
            progress=False,
        )
        return ending_of(trial)


def _note_rows(context: PyTorchTrialContext, diary: Diary) -> None:
    backend: Any = context._core._backend
    report = backend.report_metrics

    def noting(group: str, steps: int, metrics: dict[str, Any], batch_metrics: Any = None) -> None:
        values = {name: float(value) for name, value in sorted(metrics.items())}
        diary.note("row", group, steps, values)
        report(group, steps, metrics, batch_metrics)

    backend.report_metrics = noting


class _Listener(logging.Handler):
    def __init__(self, said: Diary, number: int) -> None:
        super().__init__(logging.WARNING)
        self._said = said
        self._number = number

    def emit(self, record: logging.LogRecord) -> None:
        self._said.note(self._number, record.getMessage())


@contextlib.contextmanager
def _listening(said: Diary, number: int) -> Iterator[None]:
    """Write down every warning, however it is given."""
    handler, logger = _Listener(said, number), logging.getLogger("determined")
    logger.addHandler(handler)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            logger.removeHandler(handler)
    for warning in caught:
        said.note(number, str(warning.message))


# All starts of a run.


@dataclasses.dataclass
class Outcome:
    """What a run came to, on each rank, and what it said on the way."""

    endings: list[Ending]
    passed: list[StopPoint]
    rows: dict[str, str]
    said: list[str]
    faults: list[str]


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="exactness-", dir=memory if memory.is_dir() else None))
    try:
        yield folder
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)


def run(
    recipe: Recipe, faults: tuple[Fault, ...] = (), passed: list[StopPoint] | None = None
) -> Outcome:
    """Train to the end, with a fault in each start but the last."""
    forks = recipe.ranks > 1 or any(f.kind.startswith("kill") or f.threads for f in faults)
    happened = []
    remaining = list(passed or [])
    with _folder() as folder:
        for number in itertools.count():
            fault = faults[number] if number < len(faults) else None
            at = None
            if fault is not None and fault.kind != "kill in a save" and remaining:
                at = fault.stop_point_in(remaining)
                remaining = remaining[remaining.index(at) :]
            happened.append(f"{fault.kind} {at or ''}" if fault else "")
            threads = faults[number - 1].threads if 0 < number <= len(faults) else None
            starts = _start_ranks(recipe, folder, number, fault, at, threads, forks)
            if all(s is not None and s.is_over for s in starts):
                break
            assert number <= len(faults) + 1, "the run does not end"
        return Outcome(
            endings=[s.ending for s in starts if s is not None],
            passed=starts[0].passed if starts[0] is not None else [],
            rows=_rows(folder, recipe.ranks),
            said=[text for _, text in Diary(folder / "said").lines()],
            faults=[text for text in happened if text],
        )


def _start_ranks(
    recipe: Recipe,
    folder: Path,
    number: int,
    fault: Fault | None,
    at: StopPoint | None,
    threads: int | None,
    forks: bool,
) -> list[Start | None]:
    if not forks:
        return [start(recipe, folder, number, fault, at)]
    port = free_port()
    children = [
        Child(_start_rank, recipe, folder, number, fault, at, threads, rank, port)
        for rank in range(recipe.ranks)
    ]
    return _collect(children)


def _start_rank(
    recipe: Recipe,
    folder: Path,
    number: int,
    fault: Fault | None,
    at: StopPoint | None,
    threads: int | None,
    rank: int,
    port: int,
    *,
    tell: Any,
) -> Start:
    if recipe.ranks > 1:
        size = str(recipe.ranks)
        os.environ.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=size,
            LOCAL_WORLD_SIZE=size,
            GROUP_RANK="0",
            GROUP_WORLD_SIZE="1",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
        )
    if threads is not None and any((folder / "storage").glob("[!.]*")):
        torch.set_num_threads(threads)
        environment._THREADS_AT_IMPORT = threads  # as on a machine with so many cores
    if fault is not None and fault.kind == "kill in a save" and rank == 0:
        point, hits = divmod(fault.at, 4)
        _crash_points._armed = SAVE_POINTS[point % len(SAVE_POINTS)]
        _crash_points._hits_left = hits + 1
    return start(recipe, folder, number, fault, at)


def _collect(children: list[Child]) -> list[Start | None]:
    """Wait for all; when one is killed, end the others as a launcher would."""
    if len(children) == 1:
        status = children[0].join()
        return [None if status == -signal.SIGKILL else children[0].result()]
    remaining, was_killed = {child.pid: child for child in children}, False
    while remaining:
        pid, status = os.waitpid(-1, 0)
        child = remaining.pop(pid, None)
        if child is None:
            continue
        child._status = os.waitstatus_to_exitcode(status)
        os.close(child._ready)
        if child._status == -signal.SIGKILL and not was_killed:
            was_killed = True
            for other in remaining.values():
                os.kill(other.pid, signal.SIGKILL)
    if was_killed:
        return [None] * len(children)
    return [child.result() for child in children]


def _rows(folder: Path, ranks: int) -> dict[str, str]:
    """Batches and rows by name; one that was done twice, differently, has both values."""
    found: dict[str, set[str]] = {}
    for rank in range(ranks):
        for kind, *rest in Diary(folder / f"diary-{rank}").lines():
            key, value = (rest[:1], rest[1:]) if kind == "batch" else (rest[:2], rest[2:])
            name = f"{kind} {' '.join(map(str, key))} of rank {rank}"
            found.setdefault(name, set()).add(json.dumps(value))
    return {name: " and ".join(sorted(values)) for name, values in found.items()}


# The law.


# What is said of an interruption itself: what was saved, what is left to do, where it starts again.
# And whether the first updates after a start reach every weight.
HARMLESS = re.compile(
    "An error ended training|Not saved|Run run has already reached|Training starts from the beg"
    r"|After \d+ batch"
)


def problems(recipe: Recipe, faults: tuple[Fault, ...]) -> list[str]:
    """Say how the run with faults breaks the law, if it does."""
    whole = run(recipe)
    return law_broken(whole, run(recipe, faults, whole.passed))


def law_broken(whole: Outcome, broken: Outcome) -> list[str]:
    """What differs must be said, and what is equal must be silent."""
    found = differences_of(whole, broken)
    said = [s for s in broken.said if s not in whole.said and not HARMLESS.match(s)]
    happened = "; ".join(broken.faults)
    if found and not said:
        return [f"After {happened}, and not a word was said:", *found]
    if said and not found:
        return [f"After {happened}, nothing differs, but it says:", *said]
    return []


def differences_of(whole: Outcome, broken: Outcome) -> list[str]:
    """Name the rows and the state on each rank that are not the same."""
    found = differences(whole.rows, broken.rows)
    for rank, (expected, ending) in enumerate(zip(whole.endings, broken.endings, strict=True)):
        where = f"rank {rank}, " if len(whole.endings) > 1 else ""
        found += [where + text for text in differences(expected, ending)]
    return found
