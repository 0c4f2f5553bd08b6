"""How fast reports come into the store, how soon they can be read, and how curves come back.

From one run: reports are encoded into a real journal, read from it, and committed in ticks as the
supervisor does. trackio and MLflow take their points in the way that is quickest for them.
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.dashboard.served import Dashboard
from benchmarks.platform import peers, stores
from benchmarks.platform.figure import Figure, in_turns, ratio
from benchmarks.platform.site import open_site
from determined.journal import BatchColumns, JournalReader, JournalWriter, Metrics, RunStarted
from determined.store import Order, Reader, Run, TrialFilter, Writer
from determined.store.series.curves import CurveKey

_BATCHES_PER_REPORT = 500
_RUNS, _READERS = 32, 8
_PIXELS = 1200  # of a chart that fills the window


def measure(is_quick: bool) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="det-bench-") as name:
        folder = Path(name)
        return [
            *one_run(folder / "one", 1_000_000),
            *many_runs(folder / "many", 30_000 if is_quick else 1_000_000),
            *_against_peers(folder, 10_000 if is_quick else 100_000),
            *_lag(3.0 if is_quick else 20.0),
            table(folder / "table"),
        ]


def one_run(home: Path, points: int) -> list[Figure]:
    """One run reports every batch; then the dashboard is asked for its curve."""
    seconds = _into_store(home, points)
    reader = Reader(home)
    key = CurveKey(1, "training", "loss", per_batch=True)
    reading = _milliseconds(lambda: reader.metrics.curves([key] * 50, pixels=_PIXELS))
    reader.close()
    dashboard = Dashboard(home)
    try:
        keys = ";".join(["1:training:loss:batches"] * 50)
        path = f"/api/series?keys={keys}&px={_PIXELS}"
        answering = _milliseconds(lambda: dashboard.fetch(path))
    finally:
        dashboard.close()
    samples = {f"the store alone, {_PIXELS:,} buckets each": [reading]}
    what = f"the dashboard answers with 50 curves of {points:,} points"
    return [
        Figure("points from one run into the store", points / seconds, "a second", 200_000, True),
        Figure(what, answering, "ms", goal=100, samples=samples),
    ]


def _into_store(home: Path, points: int) -> float:
    writer, (run,) = stores.trials(home, 1)
    began = time.perf_counter()
    _write_points(home / "journal-1", points)
    _ingest(writer, run, home / "journal-1")
    seconds = time.perf_counter() - began
    writer.close()
    return seconds


def _write_points(path: Path, points: int) -> None:
    journal = JournalWriter(path)
    draw = random.Random(0)
    values = [draw.random() for _ in range(_BATCHES_PER_REPORT)]
    batches = [{"loss": value} for value in values]
    journal.append([RunStarted(1, 0)])
    for step in range(_BATCHES_PER_REPORT, points + 1, _BATCHES_PER_REPORT):
        columns = BatchColumns.of(batches)
        journal.append([Metrics("training", step, {"loss": values[step % 100]}, columns)])
    journal.sync()
    journal.close()


def _ingest(writer: Writer, run: Run, path: Path) -> None:
    reader = JournalReader(path)
    while records := list(reader.records(limit_bytes=200_000)):
        durable = isinstance(records[0], RunStarted)
        with writer.transaction(durable=durable) as tx:
            tx.read_journal(str(path), run.trial_id, run.run_id, records, reader.offset)


def many_runs(home: Path, reports: int) -> list[Figure]:
    """32 runs report five metrics each as fast as the store takes them, while 8 readers look on."""
    writer, runs = stores.trials(home, _RUNS)
    stop = multiprocessing.Event()
    trial_ids = [run.trial_id for run in runs]
    readers = [
        multiprocessing.Process(target=_look, args=(home, trial_ids, stop)) for _ in range(_READERS)
    ]
    for process in readers:
        process.start()
    draw, ticks, began = random.Random(0), [], time.perf_counter()
    for step in range(0, reports // _RUNS, 8):
        started = time.perf_counter()
        with writer.transaction(durable=False) as tx:
            for run in runs:
                records = [
                    Metrics("training", step + i, {f"m{n}": draw.random() for n in range(5)})
                    for i in range(8)
                ]
                tx.read_journal(f"j{run.trial_id}", run.trial_id, run.run_id, records, step)
        ticks.append(time.perf_counter() - started)
    seconds = time.perf_counter() - began
    stop.set()
    for process in readers:
        process.join()
    writer.close()
    failed = sum(process.exitcode != 0 for process in readers)
    what = f"reports from {_RUNS} runs with {_READERS} readers"
    samples = {"longest tick (s)": [max(ticks)]}
    return [
        Figure(what, reports / seconds, "a second", 5000, is_floor=True, samples=samples),
        Figure(f"readers that failed during {reports:,} of them", failed, "", goal=0),
    ]


def _look(home: Path, trial_ids: list[int], stop: Any) -> None:
    reader = Reader(home)
    count = 0
    while not stop.wait(0.1):
        reader.trials(TrialFilter(experiment_id=1), Order("best_validation"), 20)
        reader.metrics.curves([CurveKey(trial_ids[count % len(trial_ids)], "training", "m0")])
        count += 1
    reader.close()


def _against_peers(folder: Path, points: int) -> list[Figure]:
    """The same points from one run, one after the other, into other trackers."""
    names = [name for name in ("trackio", "mlflow") if peers.is_installed(name)]
    contenders: dict[str, Callable[[], float]] = {
        name: lambda name=name: points / peers.run("trackers", name, points)["seconds"]  # type: ignore[misc]
        for name in names
    }
    count = iter(range(1000))
    contenders["ours"] = lambda: points / _into_store(folder / f"peer-{next(count)}", points)
    samples = in_turns(1 if points <= 10_000 else 3, **contenders)
    return [
        Figure(
            f"{points:,} points from one run, a second, over {name}",
            ratio(samples, "ours", name),
            "times",
            goal=1.0,
            is_floor=True,
            samples={"ours": samples["ours"], name: samples[name]},
        )
        for name in names
    ]


def _lag(seconds: float) -> list[Figure]:
    """From a report in a trial to where readers see it, through a real supervisor."""
    found: list[float] = []
    with open_site() as site:
        variables = {"PAUSE": "0.02", "REPORTS": str(10**6)}
        experiment_id = site.create("reports", variables=variables)
        reader = site.service.reader
        site.until(reader.metrics.last_report_id)
        (run,) = site.runs(experiment_id)
        last, over = reader.metrics.last_report_id(), time.monotonic() + seconds
        while time.monotonic() < over:
            for report in reader.metrics.reports_since([run.trial_id], last):
                found.append(time.time() - report.time)
                last = report.id
            time.sleep(0.002)
    worst = statistics.quantiles(found, n=100)[98]
    samples = {"median (s)": [statistics.median(found)]}
    return [Figure("from a report to its readers, 99 of 100", worst, goal=0.5, samples=samples)]


def table(home: Path, count: int = 10_000) -> Figure:
    """A page of a table with 10,000 trials."""
    writer, runs = stores.trials(home, count)
    with writer.transaction() as tx:
        for number, run in enumerate(runs):
            report = Metrics("validation", 10, {"loss": float((number * 7919) % count)})
            tx.read_journal(f"j{number}", run.trial_id, run.run_id, [report], 1)
    writer.close()
    reader = Reader(home)
    where, best = TrialFilter(experiment_id=1), Order("best_validation")
    middle = reader.trials(where, best, limit=count // 2).next
    milliseconds = _milliseconds(lambda: reader.trials(where, best, 100, middle))
    reader.close()
    return Figure(
        f"100 of {count:,} trials by their best, from the middle", milliseconds, "ms", 100
    )


def _milliseconds(call: Callable[[], object], repeat: int = 7) -> float:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)
