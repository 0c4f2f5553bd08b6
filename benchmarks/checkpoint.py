"""What a checkpoint costs, measured against a bare `torch.save` of the same state.

    python -m benchmarks.checkpoint --megabytes 300 1000 --rounds 7

Alternated rounds on the same disk, medians. `torch.save` returns when the system has taken the
file; with fsync, when it is on disk. Ours is the whole way of a trainer's save: the stall is what
the training loop waits for, durable is until the checkpoint is hashed, flushed and visible.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from determined import core
from determined.pytorch._callback import Hooks
from determined.pytorch._checkpoint.saving.job import SaveJob
from determined.pytorch._checkpoint.saving.saver import Saver
from determined.pytorch._checkpoint.state.training_state import RunRecord
from determined.pytorch._schedule import _TrialState
from determined.storage import SharedFSStorageManager


def build_state(megabytes: int) -> dict[str, Any]:
    """A model of equal layers and the two moments of Adam: a third of the bytes each."""
    count = 24
    size = megabytes * 2**20 // 4 // 3 // count
    return {
        "models_state_dict": [{f"layer{i}.weight": torch.randn(size) for i in range(count)}],
        "optimizers_state_dict": [
            {
                "state": {
                    i: {"exp_avg": torch.randn(size), "exp_avg_sq": torch.randn(size)}
                    for i in range(count)
                }
            }
        ],
    }


def build_job(state: dict[str, Any]) -> SaveJob:
    return SaveJob(
        tensors=state,
        ranks=[{}],
        state=_TrialState(),
        run=RunRecord("benchmark", 0, 1, 1),
        load_data={},
        metadata={"run_id": "benchmark"},
        is_best=False,
        is_asked_for=True,
    )


def build_saver(storage: Path) -> Saver:
    context = core.CheckpointContext(
        core.DummyDistributedContext(), SharedFSStorageManager(storage)
    )
    saver = Saver(
        context,
        {},
        Hooks({}),
        background=True,
        goes_on_after_errors=False,
        export=None,
        code=Path(__file__).parent,
        outside_code=[],
        on_saved=lambda storage_id, job: None,
    )
    saver.start()
    return saver


def settle() -> None:
    """Start every measurement with nothing left to write."""
    os.sync()


def measure(megabytes: int, rounds: int, folder: Path) -> dict[str, list[float]]:
    state = build_state(megabytes)
    times: dict[str, list[float]] = {
        name: [] for name in ("torch.save", "and fsync", "stall", "durable")
    }
    storage = SharedFSStorageManager(folder / "storage")
    saver = build_saver(folder / "storage")
    job = build_job(state)
    for _ in range(rounds):
        settle()
        began = time.perf_counter()
        torch.save(state, folder / "plain.pth")
        times["torch.save"].append(time.perf_counter() - began)
        with (folder / "plain.pth").open("rb") as file:
            os.fsync(file.fileno())
        times["and fsync"].append(time.perf_counter() - began)
        (folder / "plain.pth").unlink()

        settle()
        began = time.perf_counter()
        saver.save(job)
        times["stall"].append(time.perf_counter() - began)
        saver.wait()
        times["durable"].append(time.perf_counter() - began)
        newest = max(storage.list(), key=lambda checkpoint: checkpoint.manifest.sequence).storage_id
        for checkpoint in storage.list():  # as retention does: the one before stays until now
            if checkpoint.storage_id != newest:
                storage.delete(checkpoint.storage_id, ["**/*"])
    saver.close()
    return times


def durable(rounds: int | None = None, megabytes: int = 300) -> dict[str, Any]:
    """How long until a save is on disk, beside `torch.save`, as a row of the page."""
    with tempfile.TemporaryDirectory() as name:
        times = _in_an_empty_folder(megabytes, rounds or 7, Path(name))
    return {
        "name": "durable",
        "title": f"checkpoint of {megabytes} MB, until it is on disk, over torch.save",
        "unit": "ms",
        "kind": "ratio",
        "goals": {"ours": 1.5},
        "values": {
            "plain": [1000 * seconds for seconds in times["torch.save"]],
            "ours": [1000 * seconds for seconds in times["durable"]],
        },
    }


def _in_an_empty_folder(megabytes: int, rounds: int, folder: Path) -> dict[str, list[float]]:
    """Measure there: the working directory is copied into checkpoints as user code."""
    before = Path.cwd()
    (folder / "work").mkdir()
    os.chdir(folder / "work")
    try:
        return measure(megabytes, rounds, folder)
    finally:
        os.chdir(before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[300, 1000])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", help="where to write; default: the system's temporary folder")
    arguments = parser.parse_args()
    for megabytes in arguments.megabytes:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
            times = _in_an_empty_folder(megabytes, arguments.rounds, Path(name))
        plain = statistics.median(times["torch.save"])
        print(f"{megabytes} MB, medians of {arguments.rounds} rounds, seconds (times torch.save):")
        for what, seconds in times.items():
            middle = statistics.median(seconds)
            print(
                f"  {what:10} {middle:7.3f}  ({middle / plain:4.2f})"
                f"   from {min(seconds):.3f} to {max(seconds):.3f}, first {seconds[0]:.3f}"
            )
        durable, synced = (statistics.median(times[name]) for name in ("durable", "and fsync"))
        print(f"  durable over torch.save and fsync: {durable / synced:.2f}")


if __name__ == "__main__":
    main()
