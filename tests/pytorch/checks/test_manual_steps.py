"""Optimizers that are stepped by hand: what goes wrong is told in the first batches."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

from determined import pytorch
from tests.support.messages import documented
from tests.support.trials import LineTrial, one_weight, train


class Long(LineTrial):
    num_batches = 30
    learning_rate = 1e-5


def loss_of(trial: LineTrial, batch: Any) -> Any:
    return torch.nn.functional.mse_loss(trial.model(batch[0]), batch[1])


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]


class PlainLoop(Long):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = loss_of(self, batch)
        loss.backward()
        self.optimizer.step()
        return {"loss": loss}


class Cleared(Long):
    """A plain loop that clears its gradients, in one of the ways that there are."""

    way = "none"

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        if self.way == "model":
            self.model.zero_grad()
        elif self.way == "zeros":
            self.optimizer.zero_grad(set_to_none=False)
        elif self.way == "none":
            self.optimizer.zero_grad()
        loss = loss_of(self, batch)
        (loss / 2).backward()
        (loss_of(self, batch) / 2).backward()
        self.optimizer.step()
        if self.way == "after":
            self.optimizer.zero_grad()
        return {"loss": loss}


def test_gradients_that_are_never_cleared_are_told_at_the_second_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[int] = []

    class Counting(PlainLoop):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            result = super().train_batch(batch, epoch_idx, batch_idx)
            if warned(caplog):
                told.append(batch_idx)
            return result

    train(Counting)
    (line,) = warned(caplog)
    documented("`train_batch` calls `loss.backward()` and `optimizer.step()` itself", line)
    assert told[0] == 1


@pytest.mark.parametrize("way", ["none", "zeros", "model", "after"])
def test_gradients_cleared_by_hand_are_fine(way: str, caplog: pytest.LogCaptureFixture) -> None:
    train(type("Clearing", (Cleared,), {"way": way}))
    assert warned(caplog) == []


def test_a_generator_that_adds_to_its_discriminator_is_fine(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Adversarial(Long):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            super().__init__(context)
            self.second = context.wrap_model(one_weight())
            self.other = context.wrap_optimizer(torch.optim.SGD(self.second.parameters(), lr=1e-5))

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.optimizer.zero_grad()
            loss: Any = self.model(batch[0]).square().mean()
            loss.backward()
            self.optimizer.step()
            self.other.zero_grad()
            self.model(self.second(batch[0])).square().mean().backward()
            self.other.step()
            return {"loss": loss}

    train(Adversarial)
    assert warned(caplog) == []


def test_accumulation_is_told_to_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    train(Cleared, {"aggregation_frequency": 2})
    (line,) = warned(caplog)
    documented("`optimizer.step()` by hand with gradient accumulation", line)


@pytest.mark.parametrize("trial_class", [PlainLoop, Cleared, Long])
def test_nothing_is_watched_after_the_first_batches(trial_class: type[Long]) -> None:
    watched: list[bool] = []

    class Looking(trial_class):  # type: ignore[misc, valid-type]  # each of them
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            (weight,) = self.model.parameters()
            hooks = [self.optimizer._optimizer_step_pre_hooks, weight._backward_hooks]
            watched.append(any(map(bool, hooks)))
            return super().train_batch(batch, epoch_idx, batch_idx)

    train(Looking)
    assert watched[0]
    assert not any(watched[11:])


def test_models_can_be_pickled_in_the_first_batches() -> None:
    class Pickling(Long):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            pickle.dumps(self.model)
            return super().train_batch(batch, epoch_idx, batch_idx)

    train(Pickling)
