"""Training and evaluation modes: set once, and put back after each validation.

Weights must not depend on how often a run reports or validates, also if parts of a model are in
evaluation mode while others are trained.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from determined import pytorch
from determined.pytorch import Batch, DataLoader, PyTorchCallback
from determined.pytorch._evaluate import begin_training, in_evaluation
from tests.support.trials import LineTrial, line, train


class FreezeStatistics(PyTorchCallback):
    """Puts batch norm into evaluation mode at the start of each epoch, as fine-tuning does."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        for module in self.model.modules():
            if isinstance(module, torch.nn.BatchNorm1d):
                module.eval()


class Frozen(LineTrial):
    """A model with frozen statistics, taught by a frozen reference with dropout."""

    num_batches = 6

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context)
        torch.manual_seed(1)
        layers = torch.nn.Sequential(
            torch.nn.Linear(1, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)
        )
        self.model = context.wrap_model(layers)
        teacher = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Dropout(0.5))
        self.teacher = context.wrap_model(teacher.requires_grad_(False).eval())
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))
        self.callbacks = {"freeze": FreezeStatistics(self.model)}
        self.differences: list[float] = []
        self.modes: list[list[bool]] = []

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.modes.append([module.training for module in self.model.children()])
        x, y = batch
        once, again = self.teacher(x), self.teacher(x)
        self.differences.append(float((once - again).abs().max()))
        loss = ((self.model(x) - y - once.mean()) ** 2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(line(2), batch_size=2)


PERIODS: list[dict[str, Any]] = [
    {},
    {"reporting_period": Batch(1)},
    {"validation_period": Batch(2)},
    {"checkpoint_period": Batch(3)},
]


def test_weights_do_not_depend_on_periods_if_parts_are_in_evaluation_mode() -> None:
    results = []
    for periods in PERIODS:
        options = {"max_length": Batch(6), "checkpoint_policy": "none", **periods}
        trial = train(Frozen, {"seed": 1}, **options)
        results.append([tensor.clone() for tensor in trial.model.state_dict().values()])
        assert trial.differences == [0.0] * 6  # the reference has no dropout
        assert trial.modes == [[True, False, True]] * 6
        assert not trial.model.training  # ready to be used
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


def test_a_pretrained_model_is_put_into_training_mode() -> None:
    seen = []

    class Pretrained(LineTrial):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            super().__init__(context)
            self.model.eval()

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            seen.append(self.model.training)
            return super().train_batch(batch, epoch_idx, batch_idx)

    train(Pretrained)
    assert set(seen) == {True}


def test_a_frozen_model_keeps_its_mode() -> None:
    trainable, frozen, bare = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1), torch.nn.Dropout()
    frozen.requires_grad_(False)
    for model in (trainable, frozen, bare):
        model.eval()
    begin_training([trainable, frozen, bare])
    assert [m.training for m in (trainable, frozen, bare)] == [True, False, True]


def test_a_models_own_train_method_is_respected() -> None:
    class KeepsFrozen(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.head = torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1)

        def train(self, mode: bool = True) -> KeepsFrozen:
            super().train(mode)
            self.norm.eval()
            return self

    model = KeepsFrozen()
    begin_training([model])
    assert (model.training, model.norm.training, model.head.training) == (True, False, True)


def test_modes_are_put_back_even_if_the_block_fails_or_sets_them() -> None:
    model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.BatchNorm1d(1).eval())

    def validate() -> None:
        with in_evaluation([model]):
            assert not any(module.training for module in model.modules())
            model.train()
            raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        validate()
    assert [module.training for module in model.modules()] == [True, True, False]
