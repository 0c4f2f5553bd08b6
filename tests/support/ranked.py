"""Training runs for several ranks: small trials, and what each rank saw of them."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch
from determined.pytorch import Batch, DataLoader, Epoch, PyTorchCallback, PyTorchTrialContext
from tests.support import resumable
from tests.support.trials import Recorder, one_weight

Results = dict[Any, Any]


def fit(
    trial_class: Callable[[PyTorchTrialContext], Any],
    init: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Train for 4 batches unless told otherwise; return the trial."""
    settings: dict[str, Any] = {"seed": 3, "enable_tensorboard_logging": False}
    with pytorch.init(**{**settings, **(init or {})}) as context:
        trial = trial_class(context)
        options = {"max_length": Batch(4), "checkpoint_policy": "none", **options}
        pytorch.Trainer(trial, context).fit(**options)
    return trial


def sgd(trial: Any, lr: float = 0.1, **options: Any) -> Any:
    return trial.context.wrap_optimizer(
        torch.optim.SGD(trial.model.parameters(), lr=lr, momentum=0.9), **options
    )


class NetTrial(pytorch.PyTorchTrial):
    """Classifies 40 records, in global batches of 8; notes the weights after every batch."""

    validation_records = 12

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.seen: list[int] = []
        self.digests: list[str] = []
        self.metrics: list[dict[str, Any]] = []
        self.validated: dict[str, Any] = {}
        self.model = context.wrap_model(self.build_model())
        self.optimizer = sgd(self)
        self.reducer = context.wrap_reducer(list, "in_order", for_training=False)

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"notes": _Notes(self)}

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(records(40), self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(records(self.validation_records), batch_size=2)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        ids, x, y = batch
        self.seen += ids.tolist()
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        ids, x, y = batch
        self.reducer.update(ids.tolist())  # type: ignore[attr-defined]  # of the function's reducer
        return {"validation_loss": nn.functional.cross_entropy(self.model(x), y)}

    def weights(self) -> list[np.ndarray]:
        return [p.detach().numpy().copy() for p in self.model.parameters()]


class _Notes(PyTorchCallback):
    def __init__(self, trial: NetTrial) -> None:
        self.trial = trial

    def on_training_batch_end(
        self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
    ) -> None:
        self.trial.digests.append(resumable.digest(list(self.trial.model.parameters())))

    def on_training_workload_end(
        self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]
    ) -> None:
        self.trial.metrics.append({**avg_metrics, "per_batch": batch_metrics})

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.trial.validated = dict(metrics)


def records(length: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(5)
    ids = torch.arange(length)
    return TensorDataset(ids, torch.randn(length, 4, generator=generator), ids % 3)


def equivalence(storage: Path, aggregation: int = 1) -> Results:
    """Train ten global batches of eight records, on however many ranks there are."""
    trial = fit(
        NetTrial,
        {
            "hparams": {"global_batch_size": 8},
            "aggregation_frequency": aggregation,
            "checkpoint_storage": storage / f"equivalence-{aggregation}",
        },
        max_length=Batch(10),
        reporting_period=Batch(5),
    )
    return {
        "weights": trial.weights(),
        "digests": trial.digests,
        "seen": trial.seen,
        "per_slot": trial.context.get_per_slot_batch_size(),
        "losses": [report["loss"] for report in trial.metrics],
        "validated": trial.validated,
    }


def aggregated(storage: Path) -> Results:
    return equivalence(storage, aggregation=2)


class GradientTrial(NetTrial):
    """Micro-batch gradients are 1 and 3 on rank 0, 5 and 7 on rank 1."""

    def build_model(self) -> nn.Module:
        return one_weight()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        rank = self.context.distributed.rank
        gradient = [[1.0, 3.0], [5.0, 7.0]][rank][batch_idx % 2]
        loss = self.model(torch.full((1, 1), gradient)).sum()
        self.context.backward(loss)
        applied: list[float] = []

        def note(parameters: Iterator[torch.Tensor]) -> None:
            applied.extend(p.grad.item() for p in parameters if p.grad is not None)

        before = self.weights()[0].item()
        self.context.step_optimizer(self.optimizer, clip_grads=note)
        return {"applied": applied[0] if applied else None, "before": before}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {}


def gradients(storage: Path) -> Results:
    trial = fit(
        GradientTrial,
        {"hparams": {"global_batch_size": 8}, "aggregation_frequency": 2},
        reporting_period=Batch(2),
    )
    return {"metrics": trial.metrics, "digests": trial.digests}


class TracedTrial(NetTrial):
    """Records every hook; validates with as many batches on each rank."""

    validation_records = 8

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        self.log: list[Any] = []
        return {"A": Recorder("A", self.log)}


def trace(storage: Path) -> list[Any]:
    trial = fit(
        TracedTrial,
        {"hparams": {"global_batch_size": 20}, "checkpoint_storage": storage / "trace"},
        max_length=Epoch(1),
        checkpoint_period=Batch(1),
    )
    log: list[Any] = trial.log
    return log


class BatchNormTrial(NetTrial):
    """Has buffers; the ranks' shards of the validation set differ."""

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        ids, x, y = batch
        self.reducer.update(ids.tolist())  # type: ignore[attr-defined]  # of the function's reducer
        mean = self.model.get_buffer("1.running_mean")
        # Of the first records, so that it is the same number wherever the chief's buffers are.
        logits = self.model(records(2)[:][1])
        return {"probe": logits.sum() + mean.sum(), "ids": ids.float().mean()}


class FullDatasetTrial(BatchNormTrial):
    """Evaluates on the chief alone, with and without gradients."""

    evaluate_batch = pytorch.PyTorchTrial.evaluate_batch

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        ids = []
        for batch in data_loader:
            ids += batch[0].tolist()
            self.model(batch[1])
            with torch.enable_grad():
                self.model(batch[1]).sum().backward()
        self.optimizer.zero_grad()
        return {"ids": len(ids)}


def validation(storage: Path) -> Results:
    found: Results = {}
    for records_to_validate in (2, 6, 8):
        chosen = type("Chosen", (BatchNormTrial,), {"validation_records": records_to_validate})
        options = {"hparams": {"global_batch_size": 8}, "aggregation_frequency": 2}
        trial = fit(chosen, options, max_length=Batch(3), validation_period=Batch(1))
        found[f"{records_to_validate} records"] = trial.validated
    trial = fit(
        FullDatasetTrial,
        {"hparams": {"global_batch_size": 8}},
        validation_period=Batch(1),
    )
    found["full"] = trial.validated
    found["digests"] = trial.digests
    return found


class MetricsTrial(NetTrial):
    """Returns every kind of metric, each rank its own."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        super().train_batch(batch, epoch_idx, batch_idx)
        rank = self.context.distributed.rank
        return {
            "number": 1 + rank,
            "vector": torch.tensor([1.0, 2.0]) + rank,
            "text": f"rank {rank}",
            "sometimes": None if rank == 0 else 4,
            "never": None,
            "truth": rank == 0,
        }


class SilentTrial(NetTrial):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        super().train_batch(batch, epoch_idx, batch_idx)
        return {}


def metrics(storage: Path) -> Results:
    options = {"hparams": {"global_batch_size": 8}}
    return {
        "all": fit(MetricsTrial, options, max_length=Batch(2)).metrics,
        "none": fit(SilentTrial, options, max_length=Batch(2)).metrics,
    }


class WrappedTrial(NetTrial):
    """A frozen teacher, an unused layer, an attribute of the inner module, float16 gradients."""

    def build_model(self) -> nn.Module:
        model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3))
        model.temperature = 2.0  # type: ignore[assignment]  # any attribute
        return model

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.digests = []
        self.seen = []
        self.metrics = []
        # Ranks start from different weights, which must not matter.
        torch.manual_seed(context.distributed.rank)
        teacher = nn.Linear(4, 3).requires_grad_(False)
        teacher.register_buffer("mask", torch.tensor([context.distributed.rank == 0]))
        self.teacher = context.wrap_model(teacher)
        self.model = context.wrap_model(self.build_model(), find_unused_parameters=True)
        self.optimizer = sgd(self, fp16_compression=True)
        self.second = sgd(self, fp16_compression=True)
        self.reducer = context.wrap_reducer(list, "in_order", for_training=False)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        ids, x, y = batch
        student: Any = self.model
        loss = nn.functional.mse_loss(student[0](x), self.teacher(x))
        logits = self.model(x) / self.model.temperature
        self.context.backward(nn.functional.cross_entropy(logits, y) + 0 * loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}


def wrapping(storage: Path) -> Results:
    trial = fit(WrappedTrial, {"hparams": {"global_batch_size": 8}})
    return {
        "teacher": resumable.digest(trial.teacher.state_dict()),
        "teacher_type": type(trial.teacher).__name__,
        "digests": trial.digests,
        "names": list(trial.model.state_dict()),
    }


class CountingTrial(NetTrial):
    """Counts the bytes of gradients that go to the other ranks."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.sent: list[int] = []

        def count(state, bucket):  # type: ignore[no-untyped-def]  # torch reads annotations, not text
            self.sent.append(bucket.buffer().nbytes)
            work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
            return work.get_future().then(lambda future: future.value()[0])

        model: Any = self.model
        model.register_comm_hook(None, count)


def communication(storage: Path) -> Results:
    found = {}
    for aggregation in (1, 4):
        trial = fit(
            CountingTrial,
            {"hparams": {"global_batch_size": 8}, "aggregation_frequency": aggregation},
            max_length=Batch(8),
        )
        found[aggregation] = (len(trial.sent), sum(trial.sent))
    return found


class StoppingTrial(NetTrial):
    """Asks to stop, or is sent a signal, on some ranks."""

    number = 0
    ranks: tuple[int, ...] = (1,)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx == 2 and self.context.distributed.rank in self.ranks:
            if self.number:
                os.kill(os.getpid(), self.number)
            else:
                self.context.set_stop_requested(True)
        return super().train_batch(batch, epoch_idx, batch_idx)


def stopping(storage: Path) -> Results:
    options = {"hparams": {"global_batch_size": 8}, "checkpoint_storage": storage / "stopping"}
    trial = fit(StoppingTrial, options, max_length=Batch(500))
    found: Results = {"asked": len(trial.digests)}
    options["run_id"] = "stopped"
    for ranks in ((1,), (0, 1)):
        chosen = type("Chosen", (StoppingTrial,), {"number": signal.SIGTERM, "ranks": ranks})
        try:
            fit(chosen, options, max_length=Batch(500))
        except SystemExit as end:
            found[ranks] = end.code
    found["resumed"] = fit(
        NetTrial, options, max_length=Batch(400), latest_checkpoint="latest"
    ).digests
    return found


class _Memory(nn.Module):
    """Has a buffer that training reads and changes, so that it drifts apart between ranks."""

    memory: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("memory", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x) + self.memory
        if self.training:
            self.memory.mul_(0.9).add_(y.detach().mean(0))
        return y


class MemoryTrial(NetTrial):
    def build_model(self) -> nn.Module:
        return _Memory()


def buffers(storage: Path) -> Results:
    """Cut a run inside an aggregation window, where each rank has buffers of its own."""
    found = {}
    for cut in (None, 3):
        options = {
            "hparams": {"global_batch_size": 8},
            "aggregation_frequency": 4,
            "run_id": f"cut at {cut}",
            "checkpoint_storage": storage / "buffers",
        }
        if cut is not None:
            fit(MemoryTrial, options, max_length=Batch(cut))
        trial = fit(MemoryTrial, options, max_length=Batch(12), latest_checkpoint="latest")
        found[cut] = (trial.digests[-1], resumable.digest(trial.model.state_dict()))
    return found


def without_launcher(storage: Path) -> Results:
    """Train over a group that the script made, without the variables of torchrun."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR")
    launched = {name: os.environ.pop(name) for name in names}
    try:
        trial = fit(NetTrial, {"hparams": {"global_batch_size": 8}})
    finally:
        os.environ.update(launched)
    ranks = trial.context.distributed
    return {
        "ranks": (ranks.rank, ranks.size, ranks.local_rank, ranks.local_size, ranks.cross_size),
        "digests": trial.digests,
    }


def resuming(storage: Path) -> Results:
    """Cut runs in the middle of an epoch and of an aggregation window; compare bit for bit."""
    found: Results = {}
    rank = os.environ.get("RANK", "0")
    for aggregation in (1, 2):
        place = storage / f"resuming-{aggregation}"
        options: dict[str, Any] = {"aggregation": aggregation}
        found[f"unbroken {aggregation}"] = resumable.train(place / "whole", 7, **options)
        resumable.train(place / "cut", 3, **options, checkpoint_period=Batch(1))
        found[f"resumed {aggregation}"] = resumable.train(
            place / "cut", 7, **options, latest_checkpoint="latest"
        )
    found["rank"] = rank
    return found


def across_sizes(storage: Path) -> Results:
    """Continue what one rank has trained, and leave something for one and for four."""
    options: dict[str, Any] = {"hparams": {"global_batch_size": 8}, "run_id": "sizes"}
    there = fit(
        NetTrial,
        {**options, "checkpoint_storage": storage / "from-one"},
        max_length=Batch(9),
        latest_checkpoint="latest",
    )
    for aggregation in (1, 2):
        fit(
            NetTrial,
            {
                **options,
                "checkpoint_storage": storage / f"from-two-{aggregation}",
                "aggregation_frequency": aggregation,
            },
            max_length=Batch(3),
        )
    return {"weights": there.weights(), "seen": there.seen}


def continued(storage: Path, source: str, aggregation: int = 1) -> Results:
    """Continue the run that others left in `source` to nine batches."""
    trial = fit(
        NetTrial,
        {
            "hparams": {"global_batch_size": 8},
            "run_id": "sizes",
            "checkpoint_storage": storage / source,
            "aggregation_frequency": aggregation,
        },
        max_length=Batch(9 - 9 % aggregation),
        latest_checkpoint="latest",
    )
    return {"weights": trial.weights(), "seen": trial.seen, "digests": trial.digests}


SCENARIOS: dict[str, Callable[[Path], Any]] = {
    function.__name__: function
    for function in (
        equivalence,
        aggregated,
        gradients,
        trace,
        validation,
        metrics,
        wrapping,
        communication,
        stopping,
        without_launcher,
        resuming,
        buffers,
        across_sizes,
    )
}


def run_all(storage: Path, work: Path) -> Results:
    """Run every scenario on this rank; one that fails leaves its traceback instead."""
    os.chdir(work)
    found: Results = {}
    for name, scenario in SCENARIOS.items():
        try:
            found[name] = scenario(storage)
        except BaseException:
            found[name] = traceback.format_exc()
    return found
