"""Training that changes nothing is told of, once and early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from determined import pytorch
from determined.pytorch import Batch
from tests.support.messages import documented
from tests.support.trials import LineTrial, one_weight, train


class Long(LineTrial):
    num_batches = 30
    learning_rate = 1e-5


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]


def loss_of(trial: LineTrial, batch: Any) -> torch.Tensor:
    return torch.nn.functional.mse_loss(trial.model(batch[0]), batch[1])


class NoStep(Long):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = loss_of(self, batch)
        self.context.backward(loss)
        return {"loss": loss}


class NoBackward(Long):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss_of(self, batch)}


class OtherModel(Long):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.log = []
        self.callbacks = {}
        self.model = context.wrap_model(one_weight())
        self.copy = one_weight()
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.copy.parameters(), lr=0.1))


@pytest.mark.parametrize(
    ("situation", "trial_class"),
    [
        ("`train_batch` never calls `step_optimizer`", NoStep),
        ("`train_batch` never calls `backward`", NoBackward),
    ],
)
def test_training_without_updates_is_told_once_and_early(
    situation: str, trial_class: type[Long], caplog: pytest.LogCaptureFixture
) -> None:
    trials: list[int] = []

    class Counting(trial_class):  # type: ignore[misc, valid-type]  # either of the two
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if "has not changed" in caplog.text:
                trials.append(batch_idx)
            return super().train_batch(batch, epoch_idx, batch_idx)

    train(Counting)
    (line,) = warned(caplog)
    documented(situation, line)
    assert trials[0] == 10


def test_an_optimizer_of_another_model_is_told(caplog: pytest.LogCaptureFixture) -> None:
    train(OtherModel)
    strays, unchanged = warned(caplog)
    documented("a wrapped optimizer has parameters that no wrapped model holds", strays)
    documented("no wrapped optimizer has the parameters of a wrapped model", unchanged)


def test_a_bare_parameter_is_named(caplog: pytest.LogCaptureFixture) -> None:
    class Bare(LineTrial):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            super().__init__(context)
            self.scale = torch.nn.Parameter(torch.ones(()))
            self.optimizer.add_param_group({"params": [self.scale]})

    train(Bare)
    assert "self.scale" in warned(caplog)[0]


def test_a_model_that_is_left_out_is_named(caplog: pytest.LogCaptureFixture) -> None:
    class Two(Long):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            super().__init__(context)
            self.other = context.wrap_model(torch.nn.Bilinear(1, 1, 1))
            context.wrap_optimizer(torch.optim.Adam(self.other.parameters()))

    train(Two)
    (line,) = warned(caplog)
    assert "model 1 (Bilinear) has not changed: optimizer 1 (Adam) was never stepped" in line


def test_parameters_without_gradients_are_named(caplog: pytest.LogCaptureFixture) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = one_weight()
            self.forgotten = one_weight()
            self.frozen = one_weight().requires_grad_(False)

        def forward(self, x: torch.Tensor) -> Any:
            return self.used(x)

    class Forgetful(Long):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            self.context = context
            self.log = []
            self.callbacks = {}
            self.model = context.wrap_model(Net())
            sgd = torch.optim.SGD(self.model.parameters(), lr=0.001)
            self.optimizer = context.wrap_optimizer(sgd)

    train(Forgetful)
    (line,) = warned(caplog)
    documented("some parameters get no gradient", line)


@pytest.mark.parametrize(
    ("make", "frequency"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.0), 1),
        (lambda p: torch.optim.Adam(p, lr=0.001, fused=True), 1),
        (lambda p: torch.optim.Adam(p, lr=0.001, foreach=True), 4),
        (lambda p: OldFashioned(p), 1),
    ],
)
def test_no_false_alarm(
    make: Callable[[Any], Any], frequency: int, caplog: pytest.LogCaptureFixture
) -> None:
    class Trial(Long):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            self.context = context
            self.log = []
            self.callbacks = {}
            self.model = context.wrap_model(one_weight())
            self.optimizer = context.wrap_optimizer(make(self.model.parameters()))

    train(Trial, {"aggregation_frequency": frequency}, max_length=Batch(12))
    train(Trial, {"aggregation_frequency": frequency}, max_length=Batch(4))
    assert warned(caplog) == []


class OldFashioned(torch.optim.Optimizer):
    """Changes weights behind autograd's back."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.001})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # without a closure
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.add_(parameter.grad, alpha=-group["lr"])


def test_steps_and_gradients_by_hand_are_no_false_alarm(caplog: pytest.LogCaptureFixture) -> None:
    class ByHand(Long):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.optimizer.zero_grad()
            loss = loss_of(self, batch)
            loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
            self.optimizer.step()
            return {"loss": loss}

    train(ByHand)
    assert warned(caplog) == []


def test_windows_longer_than_training_and_a_dropped_one_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    train(LineTrial, {"aggregation_frequency": 4})
    (none,) = warned(caplog)
    documented("`aggregation_frequency` is longer than training", none)
    caplog.clear()
    trial = train(Long, {"aggregation_frequency": 4}, max_length=Batch(6))
    (dropped,) = warned(caplog)
    documented("the last batches do not fill an accumulation window", dropped)
    weight = trial.weight
    caplog.clear()
    assert train(Long, {"aggregation_frequency": 4}, max_length=Batch(4)).weight == weight
    assert warned(caplog) == []


def test_short_runs_and_test_mode_look_at_their_end(caplog: pytest.LogCaptureFixture) -> None:
    train(NoStep, max_length=Batch(2))
    train(NoStep, test_mode=True)
    assert [text.split(":")[0] for text in warned(caplog)] == ["After 2 batches", "After 1 batch"]


class Pair(torch.nn.Module):
    """Two weights; only the second one may get a gradient, as the first one's factor decides."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.first, self.second, self.factor = one_weight(1.0), one_weight(1.0), factor

    def forward(self, x: torch.Tensor) -> Any:
        return self.factor * self.first(x) + self.second(x)


class OfModel(Long):
    """Trains a model of the test's choice, with a loss times a factor."""

    factor = 1.0
    dtype = torch.float32

    def make(self) -> torch.nn.Module:
        return one_weight(1.0)

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context)
        context.models.clear()
        context.optimizers.clear()
        self.model = context.wrap_model(self.make().to(self.dtype))
        sgd = torch.optim.SGD(self.model.parameters(), lr=1e-5)
        self.optimizer = context.wrap_optimizer(sgd)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        x, y = (part.to(self.dtype) for part in batch)
        loss = torch.nn.functional.mse_loss(self.model(x), y) * self.factor
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"number": batch_idx}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"number": batch_idx}


@pytest.mark.parametrize(("factor", "word"), [(0.0, "zero"), (float("nan"), "not finite")])
def test_an_optimizer_that_learns_nothing_is_told(
    factor: float, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Useless(OfModel):
        pass

    Useless.factor = factor
    train(Useless)
    (line,) = warned(caplog)
    assert f"in its first 10 updates all gradients were {word}." in line
    if word == "zero":
        documented("all gradients of an optimizer are zero", line)


def test_a_tensor_with_gradients_of_zero_is_named(caplog: pytest.LogCaptureFixture) -> None:
    class Multiplied(OfModel):
        def make(self) -> torch.nn.Module:
            return Pair(factor=0.0)

    train(Multiplied)
    (line,) = warned(caplog)
    documented("a trainable tensor gets only gradients of zero", line)


def test_a_tensor_that_is_too_coarse_to_move_is_named(caplog: pytest.LogCaptureFixture) -> None:
    class Coarse(OfModel):
        dtype = torch.bfloat16
        factor = 1e-4

    train(Coarse)
    (line,) = warned(caplog)
    documented("a trainable tensor never moves", line)


class LowRank(torch.nn.Module):
    """A factor that begins at zero, so that the other one has no gradient at first."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = one_weight(1.0), one_weight(0.0)
        self.gate = torch.nn.Parameter(torch.zeros(1))
        self.frozen = one_weight(0.5).requires_grad_(False)
        self.table = torch.nn.Embedding(3000, 1)

    def forward(self, x: torch.Tensor) -> Any:
        rows = self.table(torch.zeros(len(x), dtype=torch.long, device=x.device))
        return self.frozen(x) + self.b(self.a(x)) + self.gate * x + 0.1 * rows


@pytest.mark.parametrize("frequency", [1, 12])
def test_what_begins_at_zero_is_no_false_alarm(
    frequency: int, caplog: pytest.LogCaptureFixture
) -> None:
    class Adapted(OfModel):
        num_batches = 48

        def make(self) -> torch.nn.Module:
            return LowRank()

    train(Adapted, {"aggregation_frequency": frequency})
    assert warned(caplog) == []


def test_rates_that_warm_up_and_rare_updates_are_no_false_alarm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Slow(OfModel):
        dtype = torch.bfloat16

        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            super().__init__(context)
            warmup = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: step * 1e-6)
            mode = pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH
            context.wrap_lr_scheduler(warmup, mode)
            self.rare = context.wrap_model(one_weight(1.0))
            self.rare_optimizer = context.wrap_optimizer(
                torch.optim.SGD(self.rare.parameters(), lr=0.1)
            )

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx % 5 == 0:
                self.context.backward((self.rare(batch[0]) * 0).sum())
                self.context.step_optimizer(self.rare_optimizer)
            return super().train_batch(batch, epoch_idx, batch_idx)

    train(Slow)
    assert warned(caplog) == []
