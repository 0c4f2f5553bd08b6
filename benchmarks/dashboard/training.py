"""What training feels of a dashboard: time per batch with one that is visited, and without any.

One trial trains all the while on one core. In turns no dashboard runs, and one that is followed (a
client without a screen reads every live stream: the changes, the curves of single batches, the log)
or flooded by unauthorized clients.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.dashboard.served import Dashboard
from benchmarks.dashboard.stream import Follower
from determined.config import Completion, load
from determined.platform.homes.home import Home
from determined.platform.service import Service
from determined.platform.supervisor import presence
from determined.store import TrialFilter

_CODE = Path(__file__).parent / "followed"
_DEADLINE_SECONDS = 120.0


class Turn(NamedTuple):
    """From when to when, and how many messages came meanwhile."""

    begin: float
    end: float
    messages: int = 0


def measure_training(rounds: int, seconds: float) -> dict[str, Any]:
    """What a dashboard costs that is followed."""
    return _measure(rounds, seconds, _followed_turn, "followed")


def measure_flood(rounds: int, seconds: float) -> dict[str, Any]:
    """What a dashboard costs that unauthorized clients flood; their answers count as messages."""
    return _measure(rounds, seconds, _flooded_turn, "flooded")


def _measure(
    rounds: int, seconds: float, visited_turn: Callable[[Home, int, float], Turn], name: str
) -> dict[str, Any]:
    """Pairs of turns, without and with; the median of their ratios, in time and in CPU time."""
    with tempfile.TemporaryDirectory(prefix="followed-") as folder:
        stamps = Path(folder, "stamps")
        with _a_trial_that_trains(Path(folder, "home"), stamps) as (home, trial_id):
            alone, visited = [], []
            for _ in range(rounds):
                alone.append(_turn(seconds))
                visited.append(visited_turn(home, trial_id, seconds))
        data = np.fromfile(stamps, "<f8")
    batches = data[: len(data) // 2 * 2].reshape(-1, 2)
    pairs = [
        (_per_batch(batches, without), _per_batch(batches, with_it))
        for without, with_it in zip(alone, visited, strict=True)
    ]
    return {
        "rounds": rounds,
        "seconds": seconds,
        "messages_per_turn": statistics.median(turn.messages for turn in visited),
        "ms_per_batch": {
            "without": round(statistics.median(1e3 * one.wall for one, _ in pairs), 3),
            name: round(statistics.median(1e3 * one.wall for _, one in pairs), 3),
        },
        "ratio": _median_ratio(pairs, "wall"),
        "ratio_of_median_batches": _median_ratio(pairs, "median"),
        "ratio_of_cpu": _median_ratio(pairs, "cpu"),
        "ratios": [round(b.wall / a.wall, 3) for a, b in pairs],
    }


class _Cost(NamedTuple):
    """Seconds per batch of a turn: on average, of the median batch, and of CPU time."""

    wall: float
    median: float
    cpu: float


def _per_batch(batches: np.ndarray, turn: Turn) -> _Cost:
    seen = batches[(batches[:, 0] >= turn.begin) & (batches[:, 0] <= turn.end)]
    assert len(seen) > 10, f"only {len(seen)} batches in a turn"
    wall, cpu = (seen[-1] - seen[0]) / (len(seen) - 1)
    return _Cost(float(wall), float(np.median(np.diff(seen[:, 0]))), float(cpu))


def _median_ratio(pairs: list[tuple[_Cost, _Cost]], name: str) -> float:
    ratios: list[float] = [getattr(b, name) / getattr(a, name) for a, b in pairs]
    return round(statistics.median(ratios), 4)


def _turn(seconds: float) -> Turn:
    begin = time.monotonic()
    time.sleep(seconds)
    return Turn(begin, time.monotonic())


def _followed_turn(home: Home, trial_id: int, seconds: float) -> Turn:
    keys = f"{trial_id}:training:loss:batches;{trial_id}:training:loss"
    with contextlib.closing(Dashboard(home.path)) as dashboard:
        follower = Follower(dashboard, series=keys, log=trial_id)
        turn = _turn(seconds)
        messages = len(follower.messages)
        follower.close()
        follower.join()
    return turn._replace(messages=messages)


def _flooded_turn(home: Home, trial_id: int, seconds: float) -> Turn:
    with contextlib.closing(Dashboard(home.path)) as dashboard:
        words = [
            sys.executable,
            "-m",
            "benchmarks.dashboard.unauthorized_clients",
            str(dashboard.port),
        ]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as clients:
            time.sleep(1.0)  # until all of them are there
            turn = _turn(seconds)
            clients.terminate()
            said, _ = clients.communicate(timeout=60)
    return turn._replace(messages=int(said))


@contextlib.contextmanager
def _a_trial_that_trains(path: Path, stamps: Path) -> Iterator[tuple[Home, int]]:
    home = Home(path)
    service = Service(home)
    try:
        experiment_id = _create(service, stamps)
        try:
            _until(lambda: stamps.exists() and stamps.stat().st_size > 0)
            time.sleep(2.0)  # the first batches take longer
            yield home, service.reader.trials(TrialFilter(experiment_id=experiment_id)).rows[0].id
        finally:
            service.kill(experiment_id)
            _until(lambda: service.experiment(experiment_id).ended is not None)
    finally:
        presence.stop(home)
        service.close()


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "the trial did not begin or end"
        time.sleep(0.1)


def _create(service: Service, stamps: Path) -> int:
    config = {
        "name": "followed",
        "entrypoint": "python3 train.py",
        "hyperparameters": {"stamps": str(stamps), "global_batch_size": 64},
        "searcher": {"name": "single", "metric": "validation_loss"},
        "environment": {"environment_variables": ["OMP_NUM_THREADS=1"]},
        "max_restarts": 0,
    }
    storage = {"type": "shared_fs", "host_path": str(service.home.checkpoints)}
    loaded = load(config, completion=Completion(created=1, checkpoint_storage=storage))
    return service.create(loaded, service.take_snapshot(_CODE), _CODE)
