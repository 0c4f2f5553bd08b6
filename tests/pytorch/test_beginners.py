"""Small mistakes of a first day: they work, or the message says what to write."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from determined import pytorch
from determined.errors import InvalidExperimentException
from determined.experimental import test_one_batch
from determined.pytorch import Batch, Epoch, LRScheduler
from determined.pytorch.callbacks import EarlyStopping
from tests.support.messages import documented
from tests.support.trials import LineTrial, checkpoints, one_weight, train


class WrongMetric(LineTrial):
    num_batches = 6


CONFIG = {"searcher": {"metric": "val_loss", "smaller_is_better": True}}


def test_a_configured_metric_that_is_none_saves_every_validation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    train(WrongMetric, {"exp_conf": CONFIG}, validation_period=Batch(2))
    assert sorted(checkpoints()) == [2, 4, 6]
    (line,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    documented("`searcher.metric` of `exp_conf` is no validation metric", line)


def test_trying_a_trial_compares_no_metrics() -> None:
    test_one_batch(WrongMetric, {**CONFIG, "hyperparameters": {}})
    train(WrongMetric, {"exp_conf": CONFIG}, test_mode=True)
    train(WrongMetric, metric="typo", test_mode=True)
    assert {len(paths) for paths in checkpoints().values()} == {2}


def test_init_without_with_says_what_to_write() -> None:
    context: Any = pytorch.init()
    with pytest.raises(AttributeError) as raised:
        LineTrial(context)
    documented("`pytorch.init()` is used without `with`", str(raised.value))
    assert pytorch.init.__doc__ is not None
    assert pytorch.init.__doc__.startswith("Create the context")
    with pytorch.init() as entered:
        LineTrial(entered)


def test_a_step_mode_as_text_says_what_to_write() -> None:
    with pytorch.init() as context:
        trial = LineTrial(context)
        decay = torch.optim.lr_scheduler.ExponentialLR(trial.optimizer, 0.9)
        with pytest.raises(TypeError) as raised:
            context.wrap_lr_scheduler(decay, "epoch")  # type: ignore[arg-type]  # the mistake
        documented("`step_mode` is text", str(raised.value))
        context.wrap_lr_scheduler(decay, LRScheduler.StepMode.STEP_EVERY_EPOCH)


def test_the_last_checkpoint_is_called_latest() -> None:
    with pytest.raises(ValueError, match="'latest'") as raised:
        train(latest_checkpoint="last")
    documented('`latest_checkpoint="last"`', str(raised.value))


@pytest.mark.parametrize("name", ["max_length", "validation_period", "checkpoint_period"])
def test_negative_lengths_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="negative") as raised:
        train(LineTrial, None, **{name: Batch(-3)})
    if name == "max_length":
        documented("a length or period is negative", str(raised.value))


def test_one_epoch_is_no_epochs(capfd: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("DET_PROGRESS", "on")
    train(max_length=Epoch(1), progress=True)
    assert "3 batches (1 epoch) in " in capfd.readouterr().err


class Newton(LineTrial):
    """Fits the line with LBFGS."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.log = []
        self.callbacks = {}
        self.model = context.wrap_model(one_weight())
        self.optimizer = context.wrap_optimizer(torch.optim.LBFGS(self.model.parameters(), lr=0.5))
        self.closes = True

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        x, y = batch

        def closure() -> torch.Tensor:
            self.optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            self.context.backward(loss)
            return loss

        loss = closure()
        self.context.step_optimizer(self.optimizer, closure=closure if self.closes else None)
        return {"loss": loss}


def test_lbfgs_trains_as_in_plain_torch() -> None:
    model = one_weight()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5)
    x = torch.arange(1.0, 7.0).reshape(3, 2, 1)
    for batch in x:

        def closure(batch: torch.Tensor = batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(batch), 2 * batch)
            loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
            return loss

        optimizer.step(closure)  # type: ignore[no-untyped-call]  # untyped in torch
    assert train(Newton).weight == model.weight.item()


def test_lbfgs_without_a_closure_says_what_to_write() -> None:
    class Forgot(Newton):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.closes = False
            return super().train_batch(batch, epoch_idx, batch_idx)

    with pytest.raises(InvalidExperimentException) as raised:
        train(Forgot)
    documented("LBFGS is stepped without a closure", str(raised.value))
    with pytest.raises(InvalidExperimentException, match="aggregation_frequency above 1"):
        train(Newton, {"aggregation_frequency": 2}, max_length=Batch(2))


def test_early_stopping_says_why_and_what_continuing_means(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    class Stuck(LineTrial):
        def build_callbacks(self) -> Any:
            return {"stop": EarlyStopping(self.context, "error", patience=1)}

        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            return {"error": 0.25}

    caplog.set_level(logging.INFO)
    init = {"run_id": "run", "checkpoint_storage": tmp_path}
    train(Stuck, init, max_length=Batch(9), validation_period=Batch(1))
    train(Stuck, init, max_length=Batch(9), latest_checkpoint="latest")
    lines = [r.getMessage() for r in caplog.records]
    (why,) = [line for line in lines if line.startswith("Stopping early")]
    (again,) = [line for line in lines if line.startswith("EarlyStopping ended")]
    documented("`EarlyStopping` ends a run", why)
    documented("a run that `EarlyStopping` has ended continues", again)


@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        ({"max_epochs": 2}, "write max_length=pytorch.Epoch(2)."),
        ({"max_steps": 50}, "write max_length=pytorch.Batch(50)."),
        ({"ckpt_path": "last.ckpt"}, "write latest_checkpoint='last.ckpt'."),
        ({"max_lenght": Batch(2)}, "Did you mean `max_length`?"),
        ({"xyz": 1}, "it has checkpoint_period, validation_period, max_length,"),
    ],
)
def test_arguments_of_other_trainers_are_told_with_ours(
    arguments: dict[str, Any], instead: str
) -> None:
    with pytest.raises(TypeError) as raised:
        train(LineTrial, None, **arguments)
    assert instead in str(raised.value)
    if "max_epochs" in arguments:
        documented("`fit(max_epochs=2)`", str(raised.value))


def test_a_scheduler_without_a_mode_says_what_to_write() -> None:
    with pytorch.init() as context:
        trial = LineTrial(context)
        decay = torch.optim.lr_scheduler.ExponentialLR(trial.optimizer, 0.9)
        with pytest.raises(TypeError) as raised:
            context.wrap_lr_scheduler(decay)
        documented("`wrap_lr_scheduler` without a mode", str(raised.value))


def test_a_class_instead_of_a_trial_says_what_to_write() -> None:
    trial: Any = LineTrial
    with pytorch.init() as context, pytest.raises(TypeError) as raised:
        pytorch.Trainer(trial, context).fit(max_length=Batch(1))
    documented("`Trainer(SineTrial, context)`, a class", str(raised.value))


@pytest.mark.parametrize("shuffle", [False, True])
def test_an_empty_dataset_is_named(shuffle: bool) -> None:
    class Empty(LineTrial):
        def build_training_data_loader(self) -> Any:
            data = torch.utils.data.TensorDataset(torch.zeros(0, 1))
            return pytorch.DataLoader(data, batch_size=4, shuffle=shuffle)

    with pytest.raises((ValueError, RuntimeError)) as raised:
        train(Empty)
    assert "TensorDataset" in str(raised.value)
    words = "shuffled" if shuffle else "not shuffled"
    documented(f"the training dataset is empty, {words}", str(raised.value))


def test_logging_as_elsewhere_says_to_return_metrics(caplog: pytest.LogCaptureFixture) -> None:
    class Logging(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            trial: Any = self
            del self.log
            trial.log("loss", 1.0)

    with pytest.raises(AttributeError, match="'log'") as raised:
        train(Logging)
    note = "\n".join(getattr(raised.value, "__notes__", [caplog.text]))  # Python 3.10 has no notes
    documented("`self.log(...)` in a trial", note.splitlines()[-1])


def test_text_as_a_validation_metric_is_named() -> None:
    class Text(LineTrial):
        def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
            return {"verdict": "good"}

    with pytest.raises(TypeError) as raised:
        train(Text)
    documented("a validation metric is text", str(raised.value))
