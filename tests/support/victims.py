"""Training runs that faults must not change: four kinds of trials, and a diary of each batch.

Run as a script, it trains in a new interpreter:
`python -m tests.support.victims FOLDER '{"kind": "conv", "num_workers": 2}'`.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import multiprocessing
import os
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from determined import pytorch
from determined.pytorch import callbacks
from determined.storage import SharedFSStorageManager, _crash_points
from tests.support.forks import Child
from tests.support.resumable import digest

KINDS = ("mlp", "conv", "gan", "lstm")
INTERVAL = 2
RECORDS = 15
BATCH_SIZE = 3

Tell = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Setup:
    """One way to train, the same in every process of a run."""

    kind: str = "mlp"
    num_workers: int = 0
    async_checkpoint: bool = True
    batches: int = 10
    interval: int = INTERVAL
    keep_latest: int | None = None
    storage: str = "storage"
    batch_seconds: float = 0.0
    is_watched: bool = False


# What is trained.


class Victim(pytorch.PyTorchTrial):
    """Notes samples and loss of every batch, and every row of metrics, in the diary."""

    def __init__(
        self, context: pytorch.PyTorchTrialContext, setup: Setup, diary: Diary, tell: Tell
    ) -> None:
        self.context = context
        self.setup = setup
        self.diary = diary
        self.tell = tell
        self.models: list[nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.build()

    def build(self) -> None:
        raise NotImplementedError

    def step(self, inputs: torch.Tensor) -> torch.Tensor:
        """Train on one batch and return its loss."""
        loss = self.loss(inputs)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizers[0])
        return loss

    def loss(self, inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.models[0](inputs)
        return ((output.sum(-1) - inputs.flatten(1).sum(1)) ** 2).mean()

    def add(self, model: nn.Module, optimizer: type[torch.optim.Optimizer]) -> None:
        self.models.append(self.context.wrap_model(model))
        arguments: Any = {"params": model.parameters(), "lr": 0.01}
        self.optimizers.append(self.context.wrap_optimizer(optimizer(**arguments)))

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        watching: dict[str, pytorch.PyTorchCallback] = {"rows": _Rows(self.diary)}
        if self.setup.is_watched:
            watching["summary"] = callbacks.ModelSummary(self.context)
            watching["table"] = callbacks.CSVTracker(self.context, "table.csv")
            watching["rates"] = callbacks.LearningRateMonitor(self.context)
        return watching

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        ids, inputs = batch
        loss = self.step(inputs)
        time.sleep(self.setup.batch_seconds)  # what an accelerator would do meanwhile
        self.diary.note("batch", batch_idx, ids.tolist(), loss.item())
        self.tell()
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"error": self.loss(batch[1]) + torch.rand(())}

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return self.loader(_records(RECORDS, 4), shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(_records(4, 4), batch_size=2)

    def loader(self, dataset: Any, **options: Any) -> pytorch.DataLoader:
        return pytorch.DataLoader(
            dataset, batch_size=BATCH_SIZE, num_workers=self.setup.num_workers, **options
        )


class Perceptron(Victim):
    """Dropout."""

    def build(self) -> None:
        layers = nn.Linear(4, 8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 1)
        self.add(nn.Sequential(*layers), torch.optim.Adam)


class Convolution(Victim):
    """Batch norm, and images that are augmented with draws of three generators."""

    def build(self) -> None:
        layers = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 1)
        self.add(nn.Sequential(*layers), torch.optim.Adam)

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return self.loader(Augmented(RECORDS), shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(Augmented(4), batch_size=2)


class Adversaries(Victim):
    """Two models and two optimizers; gradients of one stay behind when the other is trained."""

    def build(self) -> None:
        self.add(nn.Linear(2, 4), torch.optim.Adam)
        self.add(nn.Linear(4, 1), torch.optim.RMSprop)

    def step(self, inputs: torch.Tensor) -> torch.Tensor:
        generate, judge = self.models
        fake = generate(torch.randn(len(inputs), 2))
        loss: torch.Tensor = nn.functional.softplus(judge(fake.detach()) - judge(inputs)).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizers[1])
        self.context.backward(nn.functional.softplus(-judge(fake)).mean())
        self.context.step_optimizer(self.optimizers[0])
        return loss

    def loss(self, inputs: torch.Tensor) -> torch.Tensor:
        judged: torch.Tensor = self.models[1](inputs)
        return judged.mean()


class Recurrent(Victim):
    """An LSTM over records that come as a stream, in an order drawn by the stream itself."""

    def build(self) -> None:
        self.lstm = nn.LSTM(1, 3, batch_first=True)
        self.add(nn.ModuleDict({"lstm": self.lstm, "head": nn.Linear(3, 1)}), torch.optim.SGD)

    def loss(self, inputs: torch.Tensor) -> torch.Tensor:
        model: Any = self.models[0]
        hidden, _ = model["lstm"](inputs.unsqueeze(-1))
        output: torch.Tensor = model["head"](hidden[:, -1])
        return ((output.sum(-1) - inputs.sum(1)) ** 2).mean()

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return self.loader(Stream(RECORDS))


TRIALS: dict[str, type[Victim]] = dict(
    zip(KINDS, (Perceptron, Convolution, Adversaries, Recurrent), strict=True)
)


def _records(count: int, width: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.arange(count), torch.randn(count, width, generator=generator))


class Augmented(Dataset[Any]):
    """Small images, turned, brightened and blurred at random."""

    def __init__(self, count: int) -> None:
        self._images = _records(count, 36).tensors[1].reshape(-1, 1, 6, 6)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        image = self._images[index]
        if random.random() < 0.5:
            image = image.flip(-1)
        return index, image * float(np.random.uniform(0.5, 2)) + torch.rand(1, 6, 6)


class Stream(IterableDataset[Any]):
    """Records in a new order each time, without a length."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __iter__(self) -> Iterator[Any]:
        ids, rows = _records(self._count, 4).tensors
        for index in random.sample(range(self._count), self._count):
            yield ids[index], rows[index] + torch.rand(())


# What is compared.


class Diary:
    """Lines in a file. Each is written at once, so a killed process leaves whole ones."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, kind: str, position: int, *what: Any) -> None:
        os.write(self._descriptor, (json.dumps([kind, position, *what]) + "\n").encode())


class _Rows(pytorch.PyTorchCallback):
    """Notes what is reported."""

    def __init__(self, diary: Diary) -> None:
        self._diary = diary

    def on_training_workload_end(self, avg_metrics: Any, batch_metrics: Any) -> None:
        metrics = {name: float(value) for name, value in avg_metrics.items()}
        rows = [{name: float(value) for name, value in row.items()} for row in batch_metrics]
        self._diary.note("training", int(metrics["batches"]), metrics, rows)

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self._diary.note("validation", 0, {name: float(value) for name, value in metrics.items()})


def read_diary(folder: Path) -> list[list[Any]]:
    path = folder / "diary"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def batches_noted(folder: Path) -> list[int]:
    return [row[1] for row in read_diary(folder) if row[0] == "batch"]


def check_diary(folder: Path, unbroken: Path, what: str) -> None:
    """Every batch and row is as in the unbroken run, however often it was done; none is missing."""
    expected, found = ({json.dumps(row) for row in read_diary(f)} for f in (unbroken, folder))
    assert not found - expected, f"{what}: {min(found - expected)} is not in the unbroken run"
    assert not expected - found, f"{what}: {min(expected - found)} never happened"


@dataclasses.dataclass(frozen=True)
class Ending:
    """What a run came to."""

    weights: str
    optimizers: str
    random: str


# Running.


def run(setup: Setup, folder: Path, tell: Tell = lambda: None) -> Ending:
    """Train to the end, from the newest checkpoint if there is one, inside of `folder`."""
    # Checkpoints copy the code of the working directory: have a small one.
    (folder / "work").mkdir(parents=True, exist_ok=True)
    os.chdir(folder / "work")
    Path("train.py").write_text("pass\n")
    multiprocessing.set_start_method("fork", force=True)
    warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores
    keep = {"checkpoint_storage": {"save_trial_latest": setup.keep_latest, "save_trial_best": 0}}
    with pytorch.init(
        seed=7,
        run_id="run",
        checkpoint_storage=folder / setup.storage,
        tensorboard_path=folder / "tensorboard",
        enable_tensorboard_logging=setup.is_watched,
        exp_conf=None if setup.keep_latest is None else keep,
    ) as context:
        diary = Diary(folder / "diary")
        trial = TRIALS[setup.kind](context, setup, diary, tell)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(setup.batches),
            checkpoint_period=pytorch.Batch(setup.interval),
            validation_period=pytorch.Batch(3),
            checkpoint_policy="none",
            latest_checkpoint="latest",
            async_checkpoint=setup.async_checkpoint,
            progress=setup.is_watched,
            profiling_enabled=setup.is_watched,
        )
        drawn = torch.rand(()).item(), random.random(), float(np.random.rand())
    return Ending(
        weights=digest([model.state_dict() for model in trial.models]),
        optimizers=digest([optimizer.state_dict() for optimizer in trial.optimizers]),
        random=digest(drawn),
    )


def crash(setup: Setup, folder: Path, point: str, hits: int, tell: Tell) -> Ending:
    """The same, up to the n-th time that a place in the saver is reached."""
    _crash_points._armed, _crash_points._hits_left = point, hits
    return run(setup, folder, tell)


class Group(Child):
    """A child in a process group of its own, together with its loader workers."""

    def __init__(self, fn: Callable[..., Any], *args: Any) -> None:
        super().__init__(fn, *args)
        os.setpgid(self.pid, self.pid)

    def kill(self) -> bool:
        """Kill all of the group at once; say whether the child was still at work."""
        os.killpg(self.pid, signal.SIGKILL)
        return self.join() == -signal.SIGKILL

    def left_alive(self, seconds: float = 10) -> list[int]:
        """Processes of the group that do not end within some seconds."""
        deadline = time.monotonic() + seconds
        while (alive := self._alive()) and time.monotonic() < deadline:
            time.sleep(0.005)
        return alive

    def _alive(self) -> list[int]:
        return [pid for pid in psutil.pids() if _group_of(pid) == self.pid and _is_alive(pid)]


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def check_storage(folder: Path) -> list[int]:
    """All that can be seen is whole to the last byte; return the steps of each checkpoint."""
    storage = folder / "storage"
    manager = SharedFSStorageManager(storage)
    found = manager.list("run")
    visible = {path.name for path in storage.glob("[!.]*") if path.name != "hang-reports"}
    assert visible == {checkpoint.storage_id for checkpoint in found}
    for checkpoint in found:
        assert manager.verify(checkpoint.storage_id)
    return [int(checkpoint.metadata["steps_completed"]) for checkpoint in found]


def leftovers(folder: Path) -> list[str]:
    """Half of a checkpoint: one that was being written or deleted."""
    return [
        path.name
        for path in (folder / "storage").glob(".*")
        if ".tmp-" in path.name or ".del-" in path.name
    ]


def preload() -> None:
    """Import once what every child would import when it builds its first optimizer.

    All that exists then is left out of later collections, which take half a second with torch.
    """
    import pathspec  # noqa: F401
    import torch._dynamo  # noqa: F401

    gc.collect()
    gc.freeze()


def main(folder: str, setup: str) -> None:
    ending = run(Setup(**json.loads(setup)), Path(folder).resolve())
    (Path(folder).resolve() / "ending").write_text(repr(ending))


if __name__ == "__main__":
    main(*sys.argv[1:])
