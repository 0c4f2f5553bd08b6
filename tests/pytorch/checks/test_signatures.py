"""Methods of a trial may name their parameters as they like; what cannot work is told first."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from determined import pytorch
from determined.errors import InvalidExperimentException
from determined.pytorch import Reducer
from determined.pytorch._checks.signatures import evaluate_call, returned_names, train_call
from tests.support.messages import documented
from tests.support.trials import LineTrial, checkpoints, train


def other_names(b: Any, e: Any, i: Any) -> Any:
    return b, e, i


def other_order(batch_idx: Any, batch: Any, epoch_idx: Any) -> Any:
    return batch, epoch_idx, batch_idx


def keywords(*, batch: Any, epoch_idx: Any, batch_idx: Any) -> Any:
    return batch, epoch_idx, batch_idx


def anything(*args: Any) -> Any:
    return args


def with_kwargs(batch: Any, **kwargs: Any) -> Any:
    return batch, kwargs["epoch_idx"], kwargs["batch_idx"]


def with_default(batch: Any, epoch_idx: Any, batch_idx: Any, extra: int = 0) -> Any:
    return batch, epoch_idx, batch_idx


FORMS = [other_names, other_order, keywords, anything, with_kwargs, with_default]


@pytest.mark.parametrize("method", FORMS)
def test_train_batch_gets_its_arguments_whatever_their_names(method: Any) -> None:
    assert tuple(train_call(method)("a", 1, 2)) == ("a", 1, 2)


@pytest.mark.parametrize(
    "method",
    [
        lambda batch, batch_idx: (batch, batch_idx),
        lambda batch_idx, batch: (batch, batch_idx),
        lambda data, number: (data, number),
        lambda batch: (batch, 3),
        lambda data: (data, 3),
        lambda *args: args,
        lambda **kwargs: (kwargs["batch"], kwargs["batch_idx"]),
    ],
)
def test_evaluate_batch_gets_its_arguments_whatever_their_names(method: Any) -> None:
    assert tuple(evaluate_call(method)("a", 3)) == ("a", 3)


def test_trials_with_names_of_their_own_train_alike() -> None:
    class Short(LineTrial):
        def train_batch(self, b: Any, e: int, i: int) -> Any:
            return super().train_batch(b, e, i)

        def evaluate_batch(self, data: Any) -> Any:  # type: ignore[override]  # without a number
            return super().evaluate_batch(data, 0)

    assert train(Short).weight == train(LineTrial).weight


class TooFew(LineTrial):
    def train_batch(self, batch: Any) -> Any:  # type: ignore[override]  # that is the mistake
        raise AssertionError


class TooMany(LineTrial):
    def evaluate_batch(self, batch: Any, model: Any, extra: Any) -> Any:  # type: ignore[override]  # that is the mistake
        raise AssertionError


class NoSelf(LineTrial):
    def build_training_data_loader(self, split: str) -> Any:  # type: ignore[override]  # that is the mistake
        raise AssertionError


class OtherReducers(LineTrial):
    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        if batch_idx == 0:
            return {"loss": 1.0, "accuracy": 0.5}
        return {"accuracy": 0.5, "loss": 1.0}

    def evaluation_reducer(self) -> Any:
        return {"loss": Reducer.AVG, "acuracy": Reducer.MAX}


@pytest.mark.parametrize(
    ("situation", "trial_class"),
    [
        ("`train_batch` takes too few parameters", TooFew),
        ("`evaluate_batch` takes too many parameters", TooMany),
        ("another method takes a parameter", NoSelf),
        ("`evaluation_reducer` names other metrics than `evaluate_batch`", OtherReducers),
    ],
)
def test_methods_that_cannot_work_are_told_before_training(
    situation: str, trial_class: type[LineTrial]
) -> None:
    with pytest.raises(InvalidExperimentException) as raised:
        train(trial_class)
    documented(situation, str(raised.value))
    assert checkpoints() == {}


def test_only_sources_that_show_all_names_are_compared() -> None:
    def literal() -> Any:
        return {"a": 1, "b": 2}

    def computed() -> Any:
        return {"a": 1, **{"b": 2}}

    def nested() -> Any:
        def inner() -> Any:
            return {"x": 1}

        return {"a": inner()}

    def either(flag: bool) -> Any:
        if flag:
            return {"a": 1}
        return {"b": 1}

    assert returned_names(literal) == {"a", "b"}
    assert returned_names(nested) == {"a"}
    assert [returned_names(f) for f in (computed, either, len, torch.nn.Linear)] == [None] * 4


class FirstGeneration(pytorch.PyTorchTrial):
    def __init__(self, context: Any) -> None:
        self.context = context

    def build_model(self) -> Any:
        return torch.nn.Linear(1, 1)

    def optimizer(self, model: Any) -> Any:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def train_batch(self, batch: Any, model: Any, epoch_idx: int, batch_idx: int) -> Any:  # type: ignore[override]  # as it was then
        raise AssertionError

    def evaluate_batch(self, batch: Any, model: Any) -> Any:
        raise AssertionError

    def build_training_data_loader(self) -> Any:
        raise AssertionError

    def build_validation_data_loader(self) -> Any:
        raise AssertionError


def test_trials_from_before_wrapping_are_told_their_generation() -> None:
    with pytest.raises(InvalidExperimentException) as raised:
        train(FirstGeneration)
    documented("the trial has `build_model` and `optimizer` methods", str(raised.value))
