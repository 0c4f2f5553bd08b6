"""Several ranks train to the weights of one; gradients are averaged over ranks and batches."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from determined import pytorch
from determined.pytorch import Batch, PyTorchTrialContext
from tests.support import resumable
from tests.support.ranked import (
    TOLERANCE,
    NetTrial,
    Results,
    assert_close,
    fit,
    on_ranks,
    sgd,
)
from tests.support.trials import checkpoints, one_weight

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


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


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return equivalence(tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def two(storage: Path) -> list[Results]:
    return on_ranks(2, equivalence, storage)


def test_two_ranks_train_to_the_weights_of_one(one: Results, two: list[Results]) -> None:
    for rank in two:
        assert_close(rank["weights"], one["weights"])


def test_four_ranks_train_to_the_weights_of_one(one: Results, tmp_path: Path) -> None:
    for rank in on_ranks(4, equivalence, tmp_path):
        assert_close(rank["weights"], one["weights"])


def test_accumulated_gradients_give_the_weights_of_one_rank(tmp_path: Path) -> None:
    wanted = equivalence(tmp_path / "one", aggregation=2)
    first, second = on_ranks(2, equivalence, tmp_path / "two", 2)
    assert_close(first["weights"], wanted["weights"])
    assert first["digests"] == second["digests"]


class CompiledNet(NetTrial):
    """The same net, with its forward pass traced; the backend runs the graph as it is."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        compiling = functools.partial(context.wrap_model, compile={"backend": "eager"})
        context.wrap_model = compiling  # type: ignore[method-assign]  # as the trial calls it
        super().__init__(context)


def compiled(storage: Path) -> Results:
    init = {"hparams": {"global_batch_size": 8}, "checkpoint_storage": storage / "compiled"}
    trial = fit(CompiledNet, init, max_length=Batch(10), reporting_period=Batch(5))
    return {"weights": trial.weights()}


def test_compiled_models_of_two_ranks_train_to_the_weights_of_one(
    one: Results, tmp_path: Path
) -> None:
    for rank in on_ranks(2, compiled, tmp_path):
        assert_close(rank["weights"], one["weights"])


def test_weights_are_equal_on_all_ranks_after_every_batch(two: list[Results]) -> None:
    first, second = two
    assert first["digests"] == second["digests"]
    assert len(set(first["digests"])) > 1


def test_metrics_are_those_of_one_rank(one: Results, two: list[Results]) -> None:
    for rank in two:
        np.testing.assert_allclose(rank["losses"], one["losses"], atol=TOLERANCE)
        np.testing.assert_allclose(
            rank["validated"]["validation_loss"],
            one["validated"]["validation_loss"],
            atol=TOLERANCE,
        )


def test_ranks_share_the_records_of_every_global_batch(one: Results, two: list[Results]) -> None:
    assert [rank["per_slot"] for rank in (one, *two)] == [8, 4, 4]
    for batch in range(10):
        shares = [rank["seen"][4 * batch : 4 * batch + 4] for rank in two]
        assert shares[0] + shares[1] == one["seen"][8 * batch : 8 * batch + 8]


def test_one_of_two_ranks_loads_without_ranks(two: list[Results], storage: Path) -> None:
    (path,) = checkpoints(storage / "equivalence-1")[10]
    trial = pytorch.load_trial_from_checkpoint_path(str(path), trial_class=NetTrial)
    assert isinstance(trial, NetTrial)
    assert_close(trial.weights(), two[0]["weights"])


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


def test_a_window_applies_the_mean_over_ranks_and_batches(tmp_path: Path) -> None:
    first, second = on_ranks(2, gradients, tmp_path)
    for rank in (first, second):
        assert [report["applied"] for report in rank["metrics"]] == [4.0, 4.0]
    assert first["digests"] == second["digests"]


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


def test_only_update_batches_send_gradients(tmp_path: Path) -> None:
    for rank in on_ranks(2, communication, tmp_path):
        (calls, sent), (fewer_calls, less_sent) = rank[1], rank[4]
        assert (calls, fewer_calls) == (8, 2)
        assert sent == 4 * less_sent


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


def test_frozen_models_are_equal_and_not_distributed(tmp_path: Path) -> None:
    first, second = on_ranks(2, wrapping, tmp_path)
    assert first["teacher"] == second["teacher"]
    assert first["teacher_type"] == "Linear"
    assert first["digests"] == second["digests"]
