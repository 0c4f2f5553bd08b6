"""How fast the dashboard answers when there is much, and what it holds and sends meanwhile.

    python -m benchmarks.dashboard HOME [--rounds 15] [--requests 1000] [--json FILE]

HOME is made by `python -m benchmarks.dashboard.make_store HOME --full`. Every answer is fetched
over HTTP from a dashboard in its own process, by one client that keeps its connection; the first
answer is told apart, for it fills caches. CPU is that of the server alone, which says more where
other programs run. Live updates are written into HOME by the store's writer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

from determined import journal
from determined.store import NewTrial, Reader, Run, TableFilter, Writer
from determined.store import Slice as Page


class Dashboard:
    """A dashboard in a process of its own, and a client of it."""

    def __init__(self, home: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "determined.cli", "dashboard", "--no-browser", "--port", "0"],
            env={**os.environ, "DET_HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        found = re.search(r"(http://\S+/)\?token=\S+", said)
        assert found is not None, said
        self.client = httpx.Client(base_url=found[1], timeout=120, follow_redirects=True)
        self.client.get(found[0])
        self.usage = psutil.Process(self.process.pid)

    def fetch(self, path: str) -> tuple[float, int, int]:
        """Milliseconds, bytes on the wire, bytes of content."""
        begin = time.perf_counter()
        with self.client.stream("GET", path) as answer:
            raw = b"".join(answer.iter_raw())
        took = (time.perf_counter() - begin) * 1e3
        assert answer.status_code == 200, f"{path}: {answer.status_code} {raw[:300]!r}"
        length = len(raw)
        if answer.headers.get("content-encoding") == "gzip":
            import gzip

            raw = gzip.decompress(raw)
        return took, length, len(raw)

    def megabytes(self) -> float:
        return self.usage.memory_info().rss / 1e6

    def cpu_seconds(self) -> float:
        times = self.usage.cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        self.client.close()
        self.process.terminate()
        self.process.communicate(timeout=30)


def questions(home: Path) -> dict[str, str]:
    """What the pages ask, by what they show; the large things are found by their names."""
    reader = Reader(home)
    try:
        by_name = {
            row.name: row.id
            for row, _ in reader.tables.experiments(TableFilter(), Page(limit=100_000))[1]
        }
        first = {
            name: reader.tables.trials(by_name[name], None, Page(limit=1))[1][0].id
            for name in ("long-curves", "hundred-metrics", "long-log")
        }
        curves = reader.tables.trials(by_name["long-curves"], None, Page(limit=50))[1]
    finally:
        reader.close()
    search, log = by_name["ten-thousand"], first["long-log"]
    keys = ";".join(f"{trial.id}:training:loss:batches" for trial in curves)
    one = f"{first['long-curves']}:training:loss:batches"
    hundred = first["hundred-metrics"]
    many = ";".join(f"{hundred}:validation:metric_{n:03}" for n in range(100))
    return {
        "session": "/api/session",
        "1,000 experiments, first page": "/api/experiments?archived=0&limit=100",
        "experiments by a hyperparameter": "/api/experiments?sort=hparam:lr&limit=100",
        "experiments by a metric, with columns": (
            "/api/experiments?sort=metric:validation.accuracy&columns=hparam:lr,hparam:seed,"
            "metric:validation.accuracy&limit=100"
        ),
        "experiment with 10,000 trials": f"/api/experiments/{search}",
        "its trials, first page": f"/api/experiments/{search}/trials",
        "its trials by a hyperparameter": f"/api/experiments/{search}/trials?sort=hparam:lr",
        "its trials by a metric, page 90": (
            f"/api/experiments/{search}/trials?sort=metric:validation.accuracy&offset=9000"
        ),
        "its trials for parallel coordinates": f"/api/experiments/{search}/points",
        "its rungs": f"/api/experiments/{search}/rungs",
        "its importance": f"/api/experiments/{search}/importance",
        "its contour": f"/api/experiments/{search}/contour?x=lr&y=net.units",
        "50 curves of 1,000,000 points": f"/api/series?keys={keys}&px=1200",
        "... smoothed": f"/api/series?keys={keys}&px=1200&smooth=0.99",
        "... by time": f"/api/series?keys={keys}&px=1200&x=relative",
        "... zoomed to 10,000 steps": f"/api/series?keys={keys}&px=1200&from=500000&to=510000",
        "1 curve of 1,000,000 points": f"/api/series?keys={one}&px=1200",
        "... zoomed to exact points": f"/api/series?keys={one}&px=1200&from=500000&to=501000",
        "trial with 100 metrics": f"/api/trials/{hundred}",
        "all 100 curves": f"/api/series?keys={many}&px=400",
        "log of 200 MB, first page": f"/api/trials/{log}/logs",
        "... in the middle": f"/api/trials/{log}/logs?from_line=2400000",
        "... the end": f"/api/trials/{log}/logs?tail=1",
        "... a text in 200 MB, at its end": f"/api/trials/{log}/logs?search=out+of+memory",
        "queue": "/api/queue",
        "the page's shell": "/",
    }


def answers(dashboard: Dashboard, home: Path, rounds: int) -> list[dict[str, Any]]:
    """Measure every question."""
    rows = []
    for name, path in questions(home).items():
        first, _, _ = dashboard.fetch(path)
        begin = dashboard.cpu_seconds()
        taken = [dashboard.fetch(path) for _ in range(rounds)]
        cpu = (dashboard.cpu_seconds() - begin) / rounds
        rows.append(
            {
                "what": name,
                "path": path if len(path) < 120 else f"{path[:117]}...",
                "first_ms": round(first, 1),
                "median_ms": round(statistics.median(ms for ms, _, _ in taken), 1),
                "cpu_ms": round(1e3 * cpu, 1),
                "wire_kb": round(taken[-1][1] / 1e3, 1),
                "content_kb": round(taken[-1][2] / 1e3, 1),
            }
        )
    return rows


def memory(dashboard: Dashboard, home: Path, requests: int) -> dict[str, Any]:
    """What the server holds after so many requests of all kinds, and in between."""
    paths = list(questions(home).values())
    held = [round(dashboard.megabytes(), 1)]
    for number in range(requests):
        dashboard.fetch(paths[number % len(paths)])
        if (number + 1) % max(1, requests // 5) == 0:
            held.append(round(dashboard.megabytes(), 1))
    return {"requests": requests, "megabytes": held}


@contextlib.contextmanager
def a_live_run(home: Path) -> Iterator[tuple[Writer, Run]]:
    """A new trial in the experiment with the long curves, and its run."""
    writer = Writer(home)
    try:
        with writer.transaction() as tx:
            owner = next(e for e in _experiments(home) if e[1] == "long-curves")[0]
            new = NewTrial(owner, f"live-{time.time_ns()}", 1, {"lr": 0.1})
            trial = tx.create_trial(new)
            run = tx.create_run(trial.id, folder=str(home / "live"), slots=[0], steps_completed=0)
        yield writer, run
        with writer.transaction() as tx:
            tx.end_run(run.trial_id, run.run_id, 0)
            tx.update_trial(run.trial_id, state="COMPLETED")
    finally:
        writer.close()


def _experiments(home: Path) -> list[tuple[int, str]]:
    reader = Reader(home)
    try:
        rows = reader.tables.experiments(TableFilter(), Page(limit=100_000))[1]
        return [(row.id, row.name) for row, _ in rows]
    finally:
        reader.close()


def live(dashboard: Dashboard, home: Path, ticks: int = 20) -> dict[str, Any]:
    """What a tick costs: a report with 100 batches, to a page that shows its curve."""
    with a_live_run(home) as (writer, run):
        key = f"{run.trial_id}:training:loss:batches"
        arrived: list[tuple[float, int]] = []
        ready = threading.Event()

        def listen() -> None:
            with dashboard.client.stream("GET", "/api/events", params={"series": key}) as answer:
                size = 0
                event = ""
                for line in answer.iter_lines():
                    size += len(line) + 1
                    if line.startswith("event: "):
                        event = line[7:]
                    if not line:
                        ready.set()
                        if event == "points":
                            arrived.append((time.perf_counter(), size))
                            size = 0
                        if len(arrived) == ticks:
                            return

        listener = threading.Thread(target=listen)
        listener.start()
        ready.wait(60)
        time.sleep(2)
        idle = dashboard.cpu_seconds()
        time.sleep(5)
        idle = (dashboard.cpu_seconds() - idle) / 10  # per tick of half a second
        begin, waits = dashboard.cpu_seconds(), []
        for number in range(ticks):
            batches = journal.BatchColumns.of([{"loss": n / 7} for n in range(100)])
            record = journal.Metrics(
                "training", 100 * (number + 1), {"loss": 1.0}, batches, time=time.time()
            )
            with writer.transaction(durable=False) as tx:
                tx.read_journal("live", run.trial_id, run.run_id, [record], number + 1)
            sent = time.perf_counter()
            while len(arrived) <= number:
                time.sleep(0.002)
            waits.append(arrived[number][0] - sent)
        used = (dashboard.cpu_seconds() - begin) / ticks
        listener.join(60)
    return {
        "ticks": ticks,
        "new_points": 100,
        "bytes": statistics.median(size for _, size in arrived),
        "milliseconds_to_arrive": round(1e3 * statistics.median(waits), 1),
        "server_cpu_ms": round(1e3 * used, 2),
        "server_cpu_ms_idle": round(1e3 * idle, 2),
    }


def show(result: dict[str, Any]) -> None:
    """Print the numbers as a table."""
    print(f"| {'what':38} | first ms | median ms | CPU ms | wire kB | content kB |")
    print(f"|{'-' * 40}|---------:|----------:|-------:|--------:|-----------:|")
    for row in result["answers"]:
        print(
            f"| {row['what']:38} | {row['first_ms']:8.1f} | {row['median_ms']:9.1f} "
            f"| {row['cpu_ms']:6.1f} | {row['wire_kb']:7.1f} | {row['content_kb']:10.1f} |"
        )
    for name in ("memory", "live"):
        if name in result:
            print(f"\n{name}: {json.dumps(result[name])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("home", type=Path, metavar="HOME")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    dashboard = Dashboard(options.home)
    try:
        result: dict[str, Any] = {
            "machine": {"cores": os.cpu_count(), "load": [round(n, 1) for n in os.getloadavg()]},
            "answers": answers(dashboard, options.home, options.rounds),
        }
        if options.requests:
            result["memory"] = memory(dashboard, options.home, options.requests)
        result["live"] = live(dashboard, options.home)
    finally:
        dashboard.close()
    show(result)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
