"""What gets slower as experiments and checkpoints pile up: ratios of a full home to a new one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

from benchmarks.platform import stores
from benchmarks.platform.commands import seconds_of
from benchmarks.platform.figure import Figure, in_turns, ratio
from benchmarks.platform.site import SCRIPTS, Site, open_site
from determined.platform.supervisor import presence

_GOAL = 1.2
_PAGE = 200  # what `det e list` shows at most


def measure(is_quick: bool) -> list[Figure]:
    rounds = 2 if is_quick else 5
    return [
        *_experiments(1_000 if is_quick else 10_000, rounds),
        *_checkpoints(1_000 if is_quick else 20_000, rounds),
    ]


def _experiments(count: int, rounds: int) -> list[Figure]:
    with open_site() as few, open_site() as many:
        for site, number in ((few, _PAGE), (many, count)):
            stores.finished_experiments(site.home.path, number)
        listing = in_turns(rounds, many=lambda: _list(many), few=lambda: _list(few))
        whole = in_turns(rounds, many=lambda: _one_more(many), few=lambda: _one_more(few))
        waking = in_turns(rounds, many=lambda: _wake(many), few=lambda: _wake(few))
        memory = {
            name: [site.supervisor.memory_info().rss / 1e6]
            for name, site in (("many", many), ("few", few))
        }
    among = f"with {count:,} finished experiments over {_PAGE}"
    measured = {
        "`det e list`": listing,
        "an experiment that only reports, create to end": whole,
        "the same with no supervisor running": waking,
        "memory of the supervisor": memory,
    }
    return [
        Figure(f"{what}, {among}", ratio(samples, "many", "few"), "times", _GOAL, samples=samples)
        for what, samples in measured.items()
    ]


def _list(site: Site) -> float:
    det = str(Path(sys.executable).with_name("det"))
    return seconds_of([det, "e", "list"], {"DET_HOME": str(site.home.path)})


def _one_more(site: Site) -> float:
    began = time.perf_counter()
    site.finish(site.create("reports"))
    return time.perf_counter() - began


def _wake(site: Site) -> float:
    presence.stop(site.home)
    return _one_more(site)


def _checkpoints(count: int, rounds: int) -> list[Figure]:
    with open_site() as few, open_site() as many:
        for site in (few, many):
            _train(site)  # loads the helper, and leaves a checkpoint to copy
            site.until(lambda site=site: not site.service.reader.has_chores())  # type: ignore[misc]
        _multiply(many.home.checkpoints, count)
        managed = in_turns(rounds, many=lambda: _train(many), few=lambda: _train(few))
        alone = in_turns(rounds, many=lambda: _train_alone(many), few=lambda: _train_alone(few))
    among = f"with {count:,} checkpoints in the storage over a few"
    return [
        Figure(f"{what}, {among}", ratio(samples, "many", "few"), "times", _GOAL, samples=samples)
        for what, samples in {
            "a trial with 10 saves": managed,
            "the same off the platform": alone,
        }.items()
    ]


def _multiply(storage: Path, count: int) -> None:
    """Fill a storage with copies of a checkpoint in it."""
    original = next(path for path in storage.iterdir() if (path / "metadata.json").exists())
    for _ in range(count):
        shutil.copytree(original, storage / str(uuid.uuid4()), copy_function=os.link)


def _train(site: Site) -> float:
    variables = {"SAVE_EVERY": "2"}
    began = time.perf_counter()
    site.finish(site.create("net", variables=variables, hyperparameters={"lr": 0.1}))
    return time.perf_counter() - began


def _train_alone(site: Site) -> float:
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, str(SCRIPTS / "net.py")],
        env={**os.environ, "SAVE_EVERY": "2", "DET_STORAGE": str(site.home.checkpoints)},
        cwd=site.folder,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - began
