"""How fast the store takes reports in and gives curves and tables back.

    python -m benchmarks.platform.store [--points 1000000] [--seconds 5] [--folder DIR]

Every number is end to end: reports are encoded into real journal files, read from them, and
committed in ticks as the supervisor does. The last column sets the rate against plain rows in
SQLite (one INSERT per point in one transaction per tick), written here in the same process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from determined.journal import BatchColumns, JournalReader, JournalWriter, Metrics, RunStarted
from determined.store import NewExperiment, NewTrial, Order, Reader, Run, TrialFilter, Writer
from determined.store._curves import CurveKey

_BATCHES_PER_REPORT = 500


def main() -> None:
    """Measure everything and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--folder", type=Path, default=None, help="where to write; default: temp")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="det-bench-", dir=arguments.folder))
    try:
        one_run(folder / "one", arguments.points)
        many_runs(folder / "many", arguments.seconds)
        table(folder / "table")
    finally:
        shutil.rmtree(folder)


def one_run(home: Path, points: int) -> None:
    """One run reports a million batches; then its curve is drawn."""
    writer, runs = _prepare(home, 1)
    path = home / "journal-1"
    start = time.perf_counter()
    _write_points(path, points)
    wrote = time.perf_counter()
    _ingest(writer, runs[0], path)
    read = time.perf_counter()
    _say("journal: points/s encoded and written", points / (wrote - start))
    _say("store: points/s read, committed, with pyramid", points / (read - wrote))
    _say("end to end: points/s from one run", points / (read - start))
    _say("plain rows in SQLite: points/s", _plain_rows(home / "plain.db", points))
    size = sum(file.stat().st_size for file in home.glob("store.db*"))
    _say("store: bytes per point", size / points)
    reader = Reader(home)
    key = CurveKey(runs[0].trial_id, "training", "loss", per_batch=True)
    curves = [key]
    _say(f"curve of {points:,} points, 2,000 px: ms", _best_ms(lambda: reader.curves(curves)))
    zoom = _best_ms(lambda: reader.curves(curves, "steps", points / 2, points / 2 + 10_000))
    _say("zoom to 10,000 points: ms", zoom)
    _say("50 such curves: ms", _best_ms(lambda: reader.curves(curves * 50)))
    plain = _best_ms(lambda: _plain_curve(home / "plain.db"), repeat=2)
    _say("plain rows, GROUP BY 2,000 buckets: ms", plain)
    reader.close()
    writer.close()


def many_runs(home: Path, seconds: float) -> None:
    """32 runs report as fast as the store takes it, while 8 readers look on."""
    writer, runs = _prepare(home, 32)
    stop, looks = multiprocessing.Event(), multiprocessing.Value("q", 0)
    trial_ids = [run.trial_id for run in runs]
    readers = [
        multiprocessing.Process(target=_look, args=(home, trial_ids, stop, looks)) for _ in range(8)
    ]
    for process in readers:
        process.start()
    reports, ticks = 0, []
    step, begin = 0, time.perf_counter()
    draw = random.Random(0)
    while time.perf_counter() - begin < seconds:
        started = time.perf_counter()
        with writer.transaction(durable=False) as tx:
            for run in runs:
                records = [
                    Metrics("training", step + i, {f"m{n}": draw.random() for n in range(5)})
                    for i in range(8)
                ]
                tx.read_journal(f"j{run.trial_id}", run.trial_id, run.run_id, records, step)
        reports += 8 * len(runs)
        step += 8
        ticks.append(time.perf_counter() - started)
    elapsed = time.perf_counter() - begin
    stop.set()
    for process in readers:
        process.join()
    _say("32 runs, 5 metrics, 8 readers: reports/s", reports / elapsed)
    _say("  worst tick: ms", 1000 * max(ticks))
    _say("  reader's questions/s meanwhile", looks.value / elapsed)
    writer.close()


def table(home: Path, trials: int = 10_000) -> None:
    """Pages of a table with 10,000 trials."""
    writer, runs = _prepare(home, trials)
    with writer.transaction() as tx:
        for number, run in enumerate(runs):
            report = Metrics("validation", 10, {"loss": float((number * 7919) % trials)})
            tx.read_journal(f"j{number}", run.trial_id, run.run_id, [report], 1)
    reader = Reader(home)
    where, best = TrialFilter(experiment_id=1), Order("best_validation")
    middle = reader.trials(where, best, limit=5000).next
    _say(
        "first 100 of 10,000 trials by best: ms", _best_ms(lambda: reader.trials(where, best, 100))
    )
    page = _best_ms(lambda: reader.trials(where, best, 100, middle))
    _say("100 from the middle: ms", page)
    _say("all 10,000: ms", _best_ms(lambda: reader.trials(where, best)))
    reader.close()
    writer.close()


def _prepare(home: Path, count: int) -> tuple[Writer, list[Run]]:
    writer = Writer(home)
    runs = []
    with writer.transaction() as tx:
        new = NewExperiment(config={}, owner="me", name="bench", searcher_metric="loss")
        experiment = tx.create_experiment(new)
        for number in range(count):
            trial = tx.create_trial(NewTrial(experiment.id, f"r{number}", 0, {"lr": 0.1}))
            runs.append(tx.create_run(trial.id, folder="", slots=[], steps_completed=0))
    return writer, runs


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
    while True:
        records = list(reader.records(limit_bytes=200_000))
        if not records:
            return
        durable = isinstance(records[0], RunStarted)
        with writer.transaction(durable=durable) as tx:
            tx.read_journal(str(path), run.trial_id, run.run_id, records, reader.offset)


def _plain_rows(path: Path, points: int) -> float:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL")
    connection.execute(
        "CREATE TABLE p(series INT, step INT, time REAL, value REAL, PRIMARY KEY(series, step)) "
        "WITHOUT ROWID"
    )
    start = time.perf_counter()
    for first in range(0, points, 25_000):
        connection.execute("BEGIN")
        rows = ((1, step, 1.0, 0.5) for step in range(first, first + 25_000))
        connection.executemany("INSERT INTO p VALUES (?,?,?,?)", rows)
        connection.execute("COMMIT")
    connection.close()
    return points / (time.perf_counter() - start)


def _plain_curve(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute(
        "SELECT step / 500, min(value), max(value), avg(value), count(*) FROM p GROUP BY 1"
    ).fetchall()
    connection.close()


def _look(home: Path, trial_ids: list[int], stop: Any, looks: Any) -> None:
    reader = Reader(home)
    count = 0
    while not stop.wait(0.1):
        reader.trials(TrialFilter(experiment_id=1), Order("best_validation"), 20)
        reader.curves([CurveKey(trial_ids[count % len(trial_ids)], "training", "m0")])
        count += 2
    reader.close()
    with looks.get_lock():
        looks.value += count


def _best_ms(call: Callable[[], object], repeat: int = 7) -> float:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def _say(what: str, value: float) -> None:
    print(f"{what:52} {value:>14,.1f}", flush=True)


if __name__ == "__main__":
    main()
