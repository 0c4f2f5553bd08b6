"""Every promise of the README, tried on this machine: `make proof`, within ten minutes.

    python -m benchmarks.proof [--folder FOLDER]

Runs the demo, a search whose processes are killed, a fork, a replay, a diff, an export and the
self-test, and prints one table. Exit status 1: a promise does not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import psutil

_TRIALS = 4
_KILLS = 6
_LENGTH = 900
_SEARCH = f"""
name: proof
entrypoint: python3 train.py
hyperparameters:
  dropout: {{type: double, minval: 0.0, maxval: 0.6}}
  learning_rate: {{type: log, base: 10, minval: -4, maxval: -1}}
searcher: {{name: random, metric: accuracy, smaller_is_better: false, max_trials: {_TRIALS}}}
reproducibility: {{experiment_seed: 7}}
max_restarts: 50
"""


@dataclass(frozen=True)
class Promise:
    """What is promised, what was measured, and whether that is as promised."""

    text: str
    measured: str
    holds: bool


class Place:
    """A folder with a home, checkpoints and the script of the demo."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code = folder / "code"
        self.code.mkdir(parents=True)
        for name in ("train.py", "digits.npz"):
            source = files("determined.demo") / "files" / name
            (self.code / name).write_bytes(source.read_bytes())
        (self.code / "search.yaml").write_text(_SEARCH)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("DET_")}
        home, storage = str(folder / "home"), str(folder / "checkpoints")
        self.environment = {**kept, "DET_HOME": home, "DET_STORAGE": storage, "DET_SLOTS": "2"}

    def det(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "determined.cli", *words],
            cwd=self.code,
            env=self.environment,
            capture_output=True,
            text=True,
        )

    def data(self, *words: str) -> object:
        """What a command answers as JSON."""
        done = self.det(*words, "--json")
        if done.returncode != 0:
            raise RuntimeError(f"det {' '.join(words)} failed:\n{done.stderr}")
        return json.loads(done.stdout)

    def search(self) -> int:
        """Create the search; return its id."""
        created = self.data("experiment", "create", "search.yaml", ".")
        assert isinstance(created, dict)
        return int(created["experiment_id"])

    def fork(self, *changes: str) -> str:
        """Fork the first trial in its middle and wait for the end; return the new trial's id."""
        words = ("trial", "fork", "1", "--at", str(_LENGTH // 2), *changes)
        created = self.data(*words)
        assert isinstance(created, dict)
        experiment = str(created["experiment_id"])
        self.det("experiment", "wait", experiment)
        (row,) = csv.DictReader(
            self.det("experiment", "list-trials", experiment, "--csv").stdout.splitlines()
        )
        return row["Trial ID"]

    def results(self, experiment: int) -> list[tuple[object, ...]]:
        """The best values of all trials, as exact as they are stored."""
        rows = self.data("experiment", "compare", str(experiment))
        assert isinstance(rows, list)
        names = ("best_validation", "best_validation_steps", "total_batches")
        return sorted(tuple(str(row[name]) for name in names) for row in rows)

    def processes(self) -> Iterator[int]:
        """All that work for this home: supervisor, keepers, trials."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("DET_HOME") == self.environment["DET_HOME"]:
                    yield process.pid


def demo(place: Place) -> Promise:
    """The demo holds what it says, or fails."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "determined.demo", "--folder", str(place.folder / "demo")],
        capture_output=True,
        text=True,
    )
    found = re.search(r"bit for bit: (\w+)", done.stdout)
    measured = f"{found[1] if found else 'weights differ'}, {time.monotonic() - began:.0f} s"
    return Promise("three kills, the same weights (demo)", measured, done.returncode == 0)


def killed_search(place: Place) -> Promise:
    """A search whose processes are killed ends like one that nobody disturbed."""
    quiet = place.search()
    place.det("experiment", "wait", str(quiet))
    killed = place.search()
    kills = 0
    command = [sys.executable, "-m", "determined.cli", "experiment", "wait", str(killed)]
    with subprocess.Popen(
        command, cwd=place.code, env=place.environment, stdout=subprocess.DEVNULL
    ) as waiting:  # which also starts the supervisor again
        while waiting.poll() is None:
            time.sleep(2.0)
            found = [pid for pid in place.processes() if pid != waiting.pid]
            if found and kills < _KILLS:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(found[kills % len(found)], signal.SIGKILL)
                    kills += 1
    first, second = place.results(quiet), place.results(killed)
    same = sum(a == b for a, b in zip(first, second, strict=False))
    measured = f"{kills} kills, {same} of {len(first)} trials the same"
    return Promise("a search survives kills, with the same results", measured, first == second)


def fork(place: Place) -> Promise:
    """A fork without a change is its parent."""
    done = place.det("trial", "diff", "1", place.fork())
    last = (done.stdout.strip().splitlines() or [done.stderr.strip()])[-1]
    return Promise("a fork without a change is its parent", last[:60], done.returncode == 0)


def replay(place: Place) -> Promise:
    """Batches trained again are those that were trained."""
    done = place.det("trial", "replay", "1", "--batches", "440:460")
    last = (done.stdout.strip().splitlines() or [done.stderr.strip()])[-1]
    return Promise("batches can be trained again, exactly", last[:60], done.returncode == 0)


def diff(place: Place) -> Promise:
    """A diff finds the batch where a changed fork leaves its parent."""
    other = place.fork("--set", "learning_rate=0.5", "--max-length", str(_LENGTH // 2 + 45))
    done = place.det("trial", "diff", "1", other)
    text = re.sub(r"\s+", " ", done.stdout)
    found = re.search(r"different at batch \d+", text)
    holds = done.returncode == 1 and found is not None
    return Promise("a diff finds where runs part", found[0] if found else text[:60], holds)


def export(place: Place) -> Promise:
    """Everything can be taken elsewhere."""
    target = place.folder / "tables"
    done = place.det("export", "csv", "1", str(target))
    with (target / "metrics.csv").open(newline="") as file:
        count = sum(1 for _ in csv.DictReader(file))
    return Promise("metrics can be exported", f"{count} rows", done.returncode == 0 and count > 0)


def selftest(place: Place) -> Promise:
    """The self-test of this machine's devices."""
    command = [sys.executable, "-m", "determined.selftest"]
    done = subprocess.run(command, env=place.environment, capture_output=True, text=True)
    counted = [line for line in done.stdout.splitlines() if re.match(r"\d+ of \d+ hold", line)]
    measured = (counted or done.stderr.splitlines() or ["it said nothing"])[-1]
    return Promise("the self-test passes", measured[:60], done.returncode == 0)


_PARTS: tuple[Callable[[Place], Promise], ...] = (
    *(demo, killed_search, fork, replay, diff, export, selftest),
)


def main() -> int:
    """Try all of them; 1 if one does not hold."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proof", description=__doc__)
    parser.add_argument("--folder", type=Path, help="an empty folder to keep what was run")
    chosen = parser.parse_args().folder
    began = time.monotonic()
    holds = True
    with contextlib.ExitStack() as stack:
        folder = chosen or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        place = Place(folder.resolve() / "proof")
        stack.callback(place.det, "supervisor", "stop")
        print(f"{'promise':<47} {'measured':<61} holds  seconds")
        for part in _PARTS:
            before = time.monotonic()
            found = part(place)
            holds = holds and found.holds
            word = "yes" if found.holds else "NO"
            took = time.monotonic() - before
            print(f"{found.text:<47} {found.measured:<61} {word:<5}  {took:7.0f}", flush=True)
    print(f"\n{'All hold' if holds else 'Not all hold'}, in {time.monotonic() - began:.0f} s.")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
