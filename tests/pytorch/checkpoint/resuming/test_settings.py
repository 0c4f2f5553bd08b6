"""Settings that the script has changed since the run began: named once, and either can count."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

from determined import pytorch
from determined.errors import NotExactError
from determined.pytorch import Batch, LRScheduler, PyTorchTrialContext
from tests.support.messages import documented
from tests.support.trials import LineTrial, checkpoints, the_checkpoint, train

schedulers = torch.optim.lr_scheduler
Schedule = Callable[[torch.optim.Optimizer], Any]


def _trial(
    lr: float = 0.1, schedule: Schedule | None = None, weight_decay: float = 0.0
) -> Callable[[PyTorchTrialContext], LineTrial]:
    class Trial(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            self.context, self.log, self.callbacks = context, [], {}
            self.rates: list[float] = []
            self.model = context.wrap_model(torch.nn.Linear(1, 1, bias=False))
            self.optimizer = context.wrap_optimizer(
                torch.optim.SGD(self.model.parameters(), lr, weight_decay=weight_decay)
            )
            if schedule is not None:
                mode = LRScheduler.StepMode.STEP_EVERY_BATCH
                scheduler = schedule(self.optimizer)
                if isinstance(scheduler, schedulers.ReduceLROnPlateau):
                    mode = LRScheduler.StepMode.MANUAL_STEP
                self.scheduler = context.wrap_lr_scheduler(scheduler, mode)

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.rates.append(self.optimizer.param_groups[0]["lr"])
            loss = 1e-3 * self.model(batch[0]).mean()
            self.context.backward(loss)
            self.context.step_optimizer(self.optimizer)
            return {"loss": loss}

    return Trial


def _resumed(
    before: Any, after: Any, caplog: pytest.LogCaptureFixture, **fit: Any
) -> tuple[list[float], list[str]]:
    """Train four batches, then four more with another trial; return its rates and what it said."""
    train(before, max_length=Batch(4))
    caplog.clear()
    trial: Any = train(after, max_length=Batch(8), latest_checkpoint=the_checkpoint(4), **fit)
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    return trial.rates, said


def _rates(trial: Any) -> list[float]:
    rates: list[float] = train(trial, max_length=Batch(8), init={"run_id": "unbroken"}).rates
    return rates[4:]


@pytest.mark.parametrize(
    "schedule",
    [
        None,
        lambda o: schedulers.CosineAnnealingLR(o, 10),
        lambda o: schedulers.MultiStepLR(o, [2, 6]),
        lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=10),
        lambda o: schedulers.LambdaLR(o, lambda step: 1 / (1 + step)),
        lambda o: schedulers.ReduceLROnPlateau(o),
        lambda o: schedulers.SequentialLR(
            o, [schedulers.LinearLR(o), schedulers.StepLR(o, 3)], [3]
        ),
    ],
    ids=["none", "cosine", "milestones", "cycle", "lambda", "plateau", "sequence"],
)
def test_the_same_script_is_silent(
    caplog: pytest.LogCaptureFixture, schedule: Schedule | None
) -> None:
    trial = _trial(0.1, schedule)
    rates, said = _resumed(trial, trial, caplog)
    assert said == []
    assert rates == _rates(trial)


def test_a_rate_that_the_trial_sets_by_hand_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    class Trial(_trial()):  # type: ignore[misc]  # a class made by a function
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.optimizer.param_groups[0]["lr"] = 0.1 / (1 + batch_idx)
            return super().train_batch(batch, epoch_idx, batch_idx)

    assert _resumed(Trial, Trial, caplog)[1] == []


def test_two_fits_of_one_trial_are_silent(caplog: pytest.LogCaptureFixture) -> None:
    with pytorch.init() as context:
        trial: Any = _trial(0.1, lambda o: schedulers.ExponentialLR(o, 0.5))(context)
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(max_length=Batch(3))
        trainer.fit(max_length=Batch(6), latest_checkpoint="latest")
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
    assert trial.rates == [0.1 * 0.5**n for n in range(6)]


def test_changed_values_are_named_and_those_of_the_checkpoint_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rates, (said,) = _resumed(_trial(0.1), _trial(0.01, weight_decay=0.5), caplog)
    assert rates == [0.1] * 4
    documented("a run continues, and the script gives other settings", said)
    (path,) = checkpoints()[8]
    began = json.loads((path / "run.json").read_text())["constructed"]
    assert began["groups"][0][0]["lr"] == 0.1


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        (
            lambda o: schedulers.CosineAnnealingLR(o, 5),
            lambda o: schedulers.CosineAnnealingLR(o, 8),
            "T_max of scheduler 0 (CosineAnnealingLR): 8 instead of 5",
        ),
        (
            lambda o: schedulers.MultiStepLR(o, [2, 6]),
            lambda o: schedulers.MultiStepLR(o, [5, 7]),
            "milestones of scheduler 0 (MultiStepLR): [5, 7] instead of [2, 6]",
        ),
        (
            lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=10),
            lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=20),
            "total_steps of scheduler 0 (OneCycleLR): 20 instead of 10",
        ),
    ],
    ids=["cosine", "milestones", "cycle"],
)
def test_another_schedule_is_named_and_can_be_taken(
    caplog: pytest.LogCaptureFixture, before: Schedule, after: Schedule, named: str
) -> None:
    old, new = _trial(0.1, before), _trial(0.1, after)
    rates, (said,) = _resumed(old, new, caplog)
    assert f"began with: {named}. Those of the checkpoint" in said
    assert rates == _rates(old)
    trial: Any = train(
        new, max_length=Batch(8), latest_checkpoint=the_checkpoint(4), settings_from="script"
    )
    assert trial.rates == _rates(new)  # as if the new schedule had been there from the beginning


def test_a_rate_under_a_schedule_is_named_as_the_script_gives_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def warmup(optimizer: torch.optim.Optimizer) -> Any:
        return schedulers.LinearLR(optimizer, 0.1, total_iters=3)

    rates, (said,) = _resumed(
        _trial(0.1, warmup), _trial(0.2, warmup), caplog, settings_from="script"
    )
    assert rates == [0.2] * 4
    documented("a run continues with the settings of the script", said)


def test_a_schedule_of_metrics_keeps_what_it_has_seen(caplog: pytest.LogCaptureFixture) -> None:
    class Lowered(_trial(0.1, schedulers.ReduceLROnPlateau)):  # type: ignore[misc]  # as above
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 2:
                self.optimizer.param_groups[0]["lr"] /= 10
            return super().train_batch(batch, epoch_idx, batch_idx)

    rates, _ = _resumed(
        Lowered, _trial(0.2, schedulers.ReduceLROnPlateau), caplog, settings_from="script"
    )
    assert rates == pytest.approx([0.02] * 4)


def test_an_exact_run_refuses_the_settings_of_the_script() -> None:
    train(_trial(0.1), max_length=Batch(4))
    latest = the_checkpoint(4)
    with pytest.raises(NotExactError, match="lr of optimizer 0"):
        train(
            _trial(0.2),
            init={"exact": True},
            max_length=Batch(8),
            latest_checkpoint=latest,
            settings_from="script",
        )
