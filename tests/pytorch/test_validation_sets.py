"""Several validation sets: one loader each, metrics with their names."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch
from determined.pytorch import Batch, DataLoader, Reducer
from tests.support.lab import Lab, lab
from tests.support.ranked import on_ranks

__all__ = ["lab"]  # a fixture

SETS = {"even": [2.0, 4.0, 6.0], "odd/first": [1.0]}


def numbers(values: list[float]) -> TensorDataset:
    return TensorDataset(torch.tensor(values))


class SetsTrial(pytorch.PyTorchTrial):
    """Validates the mean and the largest number of each set, and notes what it is called with."""

    sets: Any = SETS

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))
        self.count: Any = context.wrap_reducer(sum, "count", for_training=False)
        self.asked: list[tuple[str | None, int]] = []
        self.validated: list[dict[str, Any]] = []

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(numbers([1.0, 2.0]), 1)

    def build_validation_data_loader(self) -> Any:
        if not isinstance(self.sets, dict):
            return DataLoader(numbers(self.sets), 1)
        return {name: DataLoader(numbers(values), 1) for name, values in self.sets.items()}

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        trial = self

        class Notes(pytorch.PyTorchCallback):
            def on_validation_end(self, metrics: dict[str, Any]) -> None:
                trial.validated.append(dict(metrics))

        return {"notes": Notes()}

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> torch.Tensor:
        loss: torch.Tensor = self.model(batch[0].unsqueeze(1)).square().sum()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return loss

    def evaluate_batch(  # type: ignore[override]  # asks for the set
        self, batch: Any, set_name: str | None, batch_idx: int
    ) -> dict[str, Any]:
        self.asked.append((set_name, batch_idx))
        self.count.update(1)
        own = {"first": batch[0][0]} if set_name == "odd/first" else {}
        return {"mean": batch[0].mean(), "largest": batch[0].max(), **own}

    def evaluation_reducer(self) -> dict[str, Reducer]:
        both = {"mean": Reducer.AVG, "largest": Reducer.MAX}
        return {**both, "first": Reducer.SUM} if isinstance(self.sets, dict) else both


def fit(trial_class: type[SetsTrial], storage: Path, **options: Any) -> tuple[Any, Any]:
    with pytorch.init(
        seed=0, checkpoint_storage=storage, enable_tensorboard_logging=False
    ) as context:
        trial = trial_class(context)
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(max_length=Batch(2), **{"checkpoint_policy": "none", **options})
    return trial, trainer


WANTED = {
    "even/mean": 4.0,
    "even/largest": 6.0,
    "even/count": 3,
    "odd/first/mean": 1.0,
    "odd/first/largest": 1.0,
    "odd/first/first": 1.0,
    "odd/first/count": 1,
}


def test_metrics_carry_the_names_of_sets(tmp_path: Path) -> None:
    trial, trainer = fit(
        SetsTrial, tmp_path, metric="even/mean", checkpoint_policy="best", sanity_validation=1
    )
    found = trainer.latest_metrics
    assert {name: found[name] for name in WANTED} == WANTED
    assert trial.asked[-4:] == [("even", 0), ("even", 1), ("even", 2), ("odd/first", 0)]
    assert trainer.latest_checkpoint is not None
    with pytest.raises(RuntimeError, match=r"The metrics are .*even/mean"):
        fit(SetsTrial, tmp_path, metric="mean", checkpoint_policy="best")


def test_a_set_alone_has_no_name(tmp_path: Path) -> None:
    class Alone(SetsTrial):
        sets = [3.0, 5.0]

    trial, trainer = fit(Alone, tmp_path)
    assert trainer.latest_metrics["mean"] == 4.0
    assert trial.asked == [(None, 0), (None, 1)]


def _on_ranks(storage: Path) -> dict[str, Any]:
    trial, _ = fit(SetsTrial, storage)
    return dict(trial.validated[-1])


@pytest.mark.multiprocess
def test_ranks_validate_sets_in_step(tmp_path: Path) -> None:
    for found in on_ranks(2, _on_ranks, tmp_path):
        assert {name: found[name] for name in WANTED} == WANTED


def test_a_full_dataset_is_asked_for_each_set(tmp_path: Path) -> None:
    class Full(SetsTrial):
        evaluate_batch = pytorch.PyTorchTrial.evaluate_batch  # type: ignore[assignment]  # not this way

        def evaluate_full_dataset(  # type: ignore[override]  # asks for the set
            self, data_loader: Any, set_name: str | None
        ) -> dict[str, Any]:
            return {"sum": sum(float(x) for (x,) in data_loader), "name": len(set_name or "")}

    _, trainer = fit(Full, tmp_path)
    metrics = trainer.latest_metrics
    assert [metrics[f"{name}/sum"] for name in SETS] == [12.0, 1.0]
    assert [metrics[f"{name}/name"] for name in SETS] == [4, 9]


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ({}, "without any loader: return None"),
        ({"": [1.0]}, "must be names of validation sets, got ''"),
        ({3: [1.0]}, "must be names of validation sets, got 3"),
        ({"a": [1.0], "b": []}, "The validation loader of 'b' gave no batches"),
    ],
)
def test_bad_sets_are_refused(sets: Any, message: str, tmp_path: Path) -> None:
    trial_class = type("Bad", (SetsTrial,), {"sets": sets})
    with pytest.raises((ValueError, RuntimeError), match=message):
        fit(trial_class, tmp_path)


@settings(max_examples=15)
@given(sets=st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 9), min_size=1)))
def test_sets_together_are_sets_alone(sets: dict[str, list[int]]) -> None:
    if not sets:
        return

    def validated(of: Any) -> dict[str, Any]:
        with pytorch.init(seed=0, enable_tensorboard_logging=False) as context:
            trial_class = type("Drawn", (SetsTrial,), {"sets": of})
            return pytorch.Trainer(trial_class(context), context).validate()

    together = validated({name: [float(v) for v in values] for name, values in sets.items()})
    for name, values in sets.items():
        alone = validated([float(v) for v in values])
        assert {metric: together[f"{name}/{metric}"] for metric in alone} == alone


class Cached(nn.Module):
    """Sums what it sees, as a model that generates keeps keys and values."""

    class Cache:
        def __init__(self) -> None:
            self.kept: list[torch.Tensor] = []

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, cache: Any = None) -> dict[str, Any]:
        cache = cache or self.Cache()
        cache.kept.append(self.layer(x))
        return {"logits": torch.stack(cache.kept).sum(0), "cache": cache}


def test_caches_pass_through_mixed_precision_as_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytorch.init(seed=0, enable_tensorboard_logging=False) as context:
        context.experimental.use_amp(torch.bfloat16)
        model = context.wrap_model(Cached())
        first = model(torch.ones(4))
        with torch.no_grad():
            second = model(torch.ones(4), first["cache"])
    assert second["logits"].dtype == torch.float32
    assert [kept.dtype for kept in second["cache"].kept] == [torch.bfloat16] * 2
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


SEARCHED = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from determined import get_cluster_info, pytorch


class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))

    def build_training_data_loader(self):
        return pytorch.DataLoader(TensorDataset(torch.ones(4)), 1)

    def build_validation_data_loader(self):
        return {name: self.build_training_data_loader() for name in ("wiki", "code")}

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = self.model(batch[0]).square().sum()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return loss

    def evaluate_batch(self, batch, set_name):
        quality = self.context.get_hparam("quality")
        return {"loss": quality if set_name == "wiki" else -quality}


with pytorch.init(hparams=get_cluster_info().trial.hparams) as context:
    pytorch.Trainer(Trial(context), context).fit(max_length=pytorch.Batch(4))
"""


@pytest.mark.slow
def test_a_search_goes_by_the_metric_of_one_set(lab: Lab) -> None:
    experiment = lab.create(
        SEARCHED,
        searcher={"name": "grid", "metric": "code/loss", "smaller_is_better": True},
        hyperparameters={"quality": {"type": "categorical", "vals": [1, 3, 2]}},
    )
    lab.wait(experiment)
    found = {trial.hparams["quality"]: trial.best_validation for trial in lab.trials(experiment)}
    assert found == {1: -1.0, 2: -2.0, 3: -3.0}
