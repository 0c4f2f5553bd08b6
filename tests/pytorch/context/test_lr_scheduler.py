"""When learning-rate schedulers are stepped."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from determined.errors import InvalidExperimentException
from determined.pytorch import Batch, LRScheduler, PyTorchTrialContext
from tests.support.trials import LineTrial, the_checkpoint, train

_Mode = LRScheduler.StepMode
_BATCH, _OPTIMIZER = _Mode.STEP_EVERY_BATCH, _Mode.STEP_EVERY_OPTIMIZER_STEP
_EPOCH, _MANUAL = _Mode.STEP_EVERY_EPOCH, _Mode.MANUAL_STEP


class _Counter:
    """A scheduler of a user's own that notes after which batch it was stepped."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context
        self.steps: list[int] = []

    def step(self) -> None:
        self.steps.append(self._context.current_train_batch())

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.steps = state_dict["steps"]


def _steps(mode: LRScheduler.StepMode, frequency: int, agg: int, epoch: int, n: int) -> list[int]:
    class Trial(LineTrial):
        num_batches = epoch
        learning_rate = 1e-6

        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.counter = context.wrap_lr_scheduler(_Counter(context), mode, frequency)

    return train(  # type: ignore[no-any-return]  # any scheduler may be wrapped
        Trial, {"aggregation_frequency": agg}, max_length=Batch(n), checkpoint_policy="none"
    ).counter.steps


@pytest.mark.parametrize(
    ("mode", "frequency", "agg", "epoch", "n", "expected"),
    [
        (_BATCH, 1, 4, 10, 12, [3] * 4 + [7] * 4 + [11] * 4),
        (_BATCH, 3, 4, 10, 12, [3, 7, 11, 11]),
        (_OPTIMIZER, 1, 4, 10, 12, [3, 7, 11]),
        (_OPTIMIZER, 2, 1, 10, 6, [1, 3, 5]),
        (_OPTIMIZER, 3, 2, 10, 12, [5, 11]),
        (_OPTIMIZER, 2, 4, 10, 16, [7, 15]),  # every second update, not every second batch
        (_EPOCH, 1, 1, 5, 12, [4, 9]),
        (_EPOCH, 2, 1, 5, 20, [9, 19]),
        (_EPOCH, 1, 2, 5, 12, [3, 9]),
        (_EPOCH, 1, 4, 5, 20, [3, 7, 11, 19]),
        (_EPOCH, 1, 8, 3, 24, [7] * 3 + [15] * 2 + [23] * 3),
        (_MANUAL, 1, 1, 5, 12, []),
    ],
)
def test_steps_follow_the_table(
    mode: LRScheduler.StepMode, frequency: int, agg: int, epoch: int, n: int, expected: list[int]
) -> None:
    assert _steps(mode, frequency, agg, epoch, n) == expected


def test_unsized_loader_never_ends_an_epoch() -> None:
    class Stream:
        def __iter__(self) -> Any:
            while True:
                yield torch.ones(2, 1), torch.ones(2, 1)

    class Trial(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            context.experimental.disable_dataset_reproducibility_checks()
            self.counter = context.wrap_lr_scheduler(_Counter(context), _EPOCH)

        def build_training_data_loader(self) -> Any:
            return Stream()

    trial = train(Trial, max_length=Batch(7))
    assert trial.batches == list(range(7))
    assert trial.counter.steps == []


def test_learning_rates_change_after_the_batch_and_survive_a_resume() -> None:
    rates: list[float] = []

    class Trial(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.5)
            assert context.wrap_lr_scheduler(scheduler, _EPOCH) is scheduler

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            rates.append(self.optimizer.param_groups[0]["lr"])
            return super().train_batch(batch, epoch_idx, batch_idx)

    train(Trial, max_length=Batch(4))
    train(Trial, max_length=Batch(8), latest_checkpoint=the_checkpoint(4))
    assert rates == [0.01] * 3 + [0.005] * 3 + [0.0025] * 2


def test_schedulers_are_stepped_even_if_the_optimizer_was_not() -> None:
    class Trial(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.counter = context.wrap_lr_scheduler(_Counter(context), _BATCH)

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            return {"loss": 0.0}

    assert train(Trial).counter.steps == [0, 1, 2]


def test_wrapper_forwards_to_the_scheduler() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    inner = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.1)
    wrapper = LRScheduler(inner, _MANUAL)
    optimizer.step()
    wrapper.step()
    assert wrapper.get_last_lr() == inner.get_last_lr() == [0.1]
    state = wrapper.state_dict()
    assert state == inner.state_dict()
    wrapper.step()
    wrapper.load_state_dict(state)
    assert inner.last_epoch == 1


def test_step_mode_values_are_the_published_ones() -> None:
    assert {mode.name: mode.value for mode in _Mode} == {
        "STEP_EVERY_EPOCH": 1,
        "STEP_EVERY_BATCH": 2,
        "MANUAL_STEP": 3,
        "STEP_EVERY_OPTIMIZER_STEP": 4,
    }


def test_wrong_mode_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="step_mode"):
        LRScheduler(object(), "STEP_EVERY_BATCH")  # type: ignore[arg-type]


def _wrapping(error: type[Exception], words: str, make: Any, *args: Any) -> None:
    class Trial(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            with pytest.raises(error, match=words):
                context.wrap_lr_scheduler(make(self.optimizer), *args)
            assert context.lr_schedulers == []

    train(Trial, max_length=Batch(0))


def test_plateau_scheduler_must_be_stepped_by_hand() -> None:
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
    _wrapping(InvalidExperimentException, "MANUAL_STEP", plateau, _EPOCH)


def test_scheduler_of_an_unwrapped_optimizer_is_refused() -> None:
    def make(_: Any) -> Any:
        other = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
        return torch.optim.lr_scheduler.StepLR(other, 1)

    _wrapping(InvalidExperimentException, "wrap_optimizer", make, _BATCH)


@pytest.mark.parametrize("frequency", [0, -1, 1.5])
def test_frequency_must_be_a_positive_whole_number(frequency: Any) -> None:
    def make(optimizer: Any) -> Any:
        return torch.optim.lr_scheduler.StepLR(optimizer, 1)

    _wrapping(InvalidExperimentException, "frequency", make, _BATCH, frequency)


def test_plateau_scheduler_may_be_stepped_in_a_callback() -> None:
    from determined.pytorch import PyTorchCallback

    class Stepper(PyTorchCallback):
        def __init__(self, scheduler: Any) -> None:
            self.scheduler = scheduler

        def on_validation_end(self, metrics: dict[str, Any]) -> None:
            self.scheduler.step(metrics["validation_loss"])

    class Trial(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, factor=0.1)
            self.scheduler = context.wrap_lr_scheduler(plateau, _MANUAL)
            self.callbacks = {"stepper": Stepper(self.scheduler)}

    trial = train(Trial, max_length=Batch(3), validation_period=Batch(1))
    assert trial.scheduler.last_epoch == 3
