"""What callbacks, validations and reports see on each of several ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from determined import pytorch
from determined.pytorch import Batch, Epoch, PyTorchCallback
from tests.support.ranked import (
    NetTrial,
    Results,
    fit,
    on_ranks,
    records,
)
from tests.support.trials import Recorder

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


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


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return on_ranks(2, trace, tmp_path_factory.mktemp("trace"))


def test_hooks_run_on_the_ranks_of_the_contract(traces: list[Any]) -> None:
    hooks = [[entry[1] for entry in log] for log in traces]
    assert all("state_dict" in of_rank for of_rank in hooks)  # how often is not part of it
    chief, other = ([hook for hook in of_rank if hook != "state_dict"] for of_rank in hooks)
    written = ["on_checkpoint_save_start", "on_checkpoint_write_end"]
    batch = ["on_training_workload_end", *written, "on_checkpoint_upload_end"]
    validation = ["start", "epoch_start", "epoch_end", "end"]
    assert chief == [
        "on_trial_startup",
        "on_training_start",
        "on_training_epoch_start",
        *batch,
        "on_training_epoch_end",
        *batch,
        *(f"on_validation_{name}" for name in validation),
        "on_trial_shutdown",
    ]
    assert other == [hook for hook in chief if hook not in written]


def test_all_ranks_get_the_chiefs_values(traces: list[Any]) -> None:
    chief, other = traces
    for hook in ("on_training_workload_end", "on_validation_end", "on_checkpoint_upload_end"):
        found = [[entry[2:] for entry in log if entry[1] == hook] for log in (chief, other)]
        assert repr(found[0]) == repr(found[1])


def test_validation_outputs_are_the_ranks_own(traces: list[Any]) -> None:
    outputs = [
        [entry[2] for entry in log if entry[1] == "on_validation_epoch_end"][0] for log in traces
    ]
    assert [len(of_rank) for of_rank in outputs] == [2, 2]
    assert outputs[0] != outputs[1]


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


@pytest.fixture(scope="module")
def validated(tmp_path_factory: pytest.TempPathFactory) -> list[Results]:
    return on_ranks(2, validation, tmp_path_factory.mktemp("validation"))


@pytest.mark.parametrize(("count", "mean"), [(2, 0.5), (6, 2.5), (8, 3.5)])
def test_shards_may_be_uneven_or_empty(validated: list[Results], count: int, mean: float) -> None:
    for rank in validated:
        metrics = rank[f"{count} records"]
        assert metrics["ids"] == pytest.approx(mean)
        assert metrics["in_order"] == [[i, i + 1] for i in range(0, count, 2)]


def test_all_ranks_validate_with_the_chiefs_buffers(validated: list[Results]) -> None:
    probes = {float(rank[f"{n} records"]["probe"]) for rank in validated for n in (2, 6, 8)}
    assert len(probes) == 1


def test_the_chief_evaluates_a_whole_dataset_with_batch_norm(validated: list[Results]) -> None:
    first, second = validated
    assert first["full"]["ids"] == second["full"]["ids"] == 12
    assert first["digests"] == second["digests"]


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


def test_every_kind_of_metric_is_averaged_as_on_one_rank(tmp_path: Path) -> None:
    for rank in on_ranks(2, metrics, tmp_path):
        (report,) = rank["all"]
        assert [report[name] for name in ("number", "vector", "text")] == [1.5, 2.0, None]
        assert [report[name] for name in ("sometimes", "never", "truth")] == [4.0, None, 0.5]
        assert report["per_batch"][0]["vector"].tolist() == [1.5, 2.5]
        assert rank["none"] == [{"batches": 2, "epochs": 0, "per_batch": [{}, {}]}]
