"""Metrics in the form of torchmetrics as reducers: states are merged over ranks."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
import torch

from determined import pytorch
from determined.core._distributed import DistributedContext
from determined.pytorch import PyTorchTrialContext
from determined.pytorch._metrics.metric_object import MetricObjectReducer
from determined.pytorch._metrics.reducer_state import dump_reducers, load_reducers, slot_values
from determined.pytorch._metrics.wrapped_reducers import _PyTorchReducerContext
from determined.pytorch._ranks.lockstep import kept_as_they_are
from tests.support.trials import LineTrial
from tests.support.workers import run_threads, run_workers


class Accuracy:
    """The share of hits, with the interface of `torchmetrics.Metric` and all kinds of state."""

    def __init__(self) -> None:
        self._reductions: dict[str, Callable[[Any], Any] | None] = {
            "hits": lambda stacked: stacked.sum(0),
            "largest": lambda stacked: stacked.max(0).values,
            "seen": torch.cat,
            "per_rank": None,
        }
        self.reset()

    def reset(self) -> None:
        self.hits = torch.tensor(0)
        self.largest = torch.tensor(-1)
        self.seen: list[torch.Tensor] = []
        self.per_rank = torch.tensor(0)
        self._update_count = 0
        self._computed: Any = None

    @property
    def update_count(self) -> int:
        return self._update_count

    def update(self, predicted: torch.Tensor, truth: torch.Tensor) -> None:
        self._computed = None
        self._update_count += 1
        self.hits = self.hits + (predicted == truth).sum()
        self.largest = torch.maximum(self.largest, truth.max())
        self.seen.append(truth)
        self.per_rank = self.per_rank + len(truth)

    def compute(self) -> torch.Tensor:
        if self._computed is None:
            seen = self.seen if isinstance(self.seen, torch.Tensor) else torch.cat(self.seen)
            assert len(seen) == self.per_rank.sum()
            assert seen.max() == self.largest
            self._computed = self.hits / len(seen)
        result: torch.Tensor = self._computed
        return result


TRUTH = torch.tensor([0, 1, 2, 1, 0, 2, 1])
PREDICTED = torch.tensor([0, 2, 2, 1, 0, 0, 0])
SHARDS: tuple[list[slice], ...] = (
    [slice(0, 3), slice(3, 4)],
    [slice(4, 7)],
    [],
)  # uneven, and one without data
EXACT = 4 / 7


def _real() -> Any:
    torchmetrics: Any = importlib.import_module("torchmetrics")
    return torchmetrics.Accuracy(task="multiclass", num_classes=3, average="micro")


KINDS = [Accuracy, *([_real] if importlib.util.find_spec("torchmetrics") else [])]


@pytest.mark.parametrize("make", KINDS)
def test_metric_over_uneven_ranks_is_that_of_all_samples(make: Callable[[], Any]) -> None:
    def reduce(distributed: DistributedContext) -> Any:
        context = _PyTorchReducerContext(distributed.allgather)
        metric = context.wrap_reducer(make(), name="accuracy")
        context.reset_reducers()
        for part in SHARDS[distributed.rank]:
            metric.update(PREDICTED[part], TRUTH[part])
        mine = metric.update_count
        result = context.reduce_metrics(for_training=False)
        assert metric.update_count == mine  # this rank's own states are back
        return result

    results = run_threads((1, 3), reduce)
    assert [result["accuracy"].item() for result in results] == [pytest.approx(EXACT)] * 3


def _trained_on_two_ranks() -> Any:
    class Trial(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.accuracy = context.wrap_reducer(Accuracy(), name="accuracy")

        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            truth = batch[0].long().flatten()  # the records are 1 to 6
            self.accuracy.update(torch.where(truth < 5, truth, 0), truth)
            return {"records": len(truth)}

    with pytorch.init() as context:
        trainer = pytorch.Trainer(Trial(context), context)
        trainer.fit(max_length=pytorch.Batch(1))
    return trainer.latest_metrics["accuracy"]


def test_metric_is_right_on_real_ranks() -> None:
    assert run_workers(2, _trained_on_two_ranks) == [pytest.approx(4 / 6)] * 2


def test_a_metric_that_saw_no_data_is_not_reported() -> None:
    context = _PyTorchReducerContext()
    metric = context.wrap_reducer(Accuracy(), name="accuracy")
    assert context.reduce_metrics(for_training=True) == {}
    metric.update(PREDICTED, TRUTH)
    assert context.reduce_metrics(for_training=True)["accuracy"].item() == pytest.approx(EXACT)


def test_the_trial_gets_its_own_metric_back_and_wraps_it_once() -> None:
    context, metric = _PyTorchReducerContext(), Accuracy()
    assert context.wrap_reducer(metric, name="a") is metric
    with pytest.raises(AssertionError, match="already wrapped"):
        context.wrap_reducer(metric, name="b")


def test_an_object_without_states_is_refused() -> None:
    class Stateless:
        def update(self) -> None: ...
        def compute(self) -> None: ...
        def reset(self) -> None: ...

    with pytest.raises(AssertionError, match="torchmetrics"):
        _PyTorchReducerContext().wrap_reducer(Stateless(), name="a")


def test_errors_of_a_metric_name_its_class() -> None:
    context = _PyTorchReducerContext()
    metric = context.wrap_reducer(Accuracy(), name="accuracy")
    metric.update(PREDICTED, TRUTH)
    metric.largest = torch.tensor(9)
    with pytest.raises(ValueError, match=r"Accuracy\.cross_slot_reduce of metric 'accuracy'"):
        context.reduce_metrics(for_training=True)


@pytest.mark.parametrize("make", KINDS)
def test_states_are_kept_and_continued(make: Callable[[], Any]) -> None:
    reducer, other = MetricObjectReducer(make()), MetricObjectReducer(make())
    reducer.metric.update(PREDICTED[:4], TRUTH[:4])
    saved = dump_reducers([reducer])
    other.metric.update(PREDICTED[4:], TRUTH[4:])
    with kept_as_they_are([other]):
        other.metric.update(PREDICTED, TRUTH)
    slots = [*slot_values([other], saved, "cpu"), other.per_slot_reduce()]
    assert other.cross_slot_reduce(slots).item() == pytest.approx(EXACT)
    load_reducers([other], saved, "cpu")
    assert other.metric.compute().item() == pytest.approx(3 / 4)


class Pair:
    """A collection of two metrics, with the interface of `torchmetrics.MetricCollection`."""

    def __init__(self) -> None:
        self.members = {"first": Accuracy(), "second": Accuracy()}

    def modules(self) -> list[Any]:
        return [self, *self.members.values()]

    def update(self, predicted: torch.Tensor, truth: torch.Tensor) -> None:
        self.members["first"].update(predicted, truth)
        self.members["second"].update(truth, truth)

    def compute(self) -> dict[str, Any]:
        return {name: member.compute() for name, member in self.members.items()}

    def reset(self) -> None:
        for member in self.members.values():
            member.reset()


def test_a_collection_reports_each_member() -> None:
    def reduce(distributed: DistributedContext) -> Any:
        context = _PyTorchReducerContext(distributed.allgather)
        pair = context.wrap_reducer(Pair())
        for part in SHARDS[distributed.rank]:
            pair.update(PREDICTED[part], TRUTH[part])
        return context.reduce_metrics(for_training=False)

    for result in run_threads((1, 3), reduce):
        assert result == {"first": pytest.approx(EXACT), "second": 1.0}


def test_a_collection_of_torchmetrics_reports_each_member() -> None:
    torchmetrics = pytest.importorskip("torchmetrics")

    def reduce(distributed: DistributedContext) -> Any:
        context = _PyTorchReducerContext(distributed.allgather)
        options: Any = {"task": "multiclass", "num_classes": 3, "average": "macro"}
        members = [torchmetrics.F1Score(**options), torchmetrics.Recall(**options)]
        metrics = context.wrap_reducer(torchmetrics.MetricCollection(members))
        results = []
        for _ in range(2):  # members share their states from the second time on
            context.reset_reducers()
            for part in SHARDS[distributed.rank]:
                metrics.update(PREDICTED[part], TRUTH[part])
            results.append(context.reduce_metrics(for_training=False))
        at_once = metrics.clone()
        at_once.reset()
        at_once.update(PREDICTED, TRUTH)
        return results, at_once.compute()

    for results, expected in run_threads((1, 3), reduce):
        for result in results:
            assert result == {name: pytest.approx(value.item()) for name, value in expected.items()}
