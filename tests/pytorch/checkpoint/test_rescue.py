"""An error in user code loses nothing: what was trained is saved, exactly where that is possible.

"Exact" is put to the test: the run that continues from such a checkpoint must end with the same
weights as one that never failed, to the last bit.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from determined import InvalidHP, pytorch
from determined.pytorch import Batch, DataLoader, LRScheduler, MetricReducer, PyTorchCallback
from determined.pytorch.callbacks import ExponentialMovingAverage
from tests.support.messages import documented
from tests.support.trials import checkpoints

LENGTH = 10


class BadError(Exception):
    """What the user's code raises."""


class Faults:
    """Raises at a place when batch `at` is being trained or was trained last, once."""

    def __init__(self, where: str = "", at: int = 5) -> None:
        self.where, self.at = where, at
        self.error: Exception = BadError("bad")

    def at_place(self, where: str, batch_idx: int) -> None:
        if where == self.where and batch_idx >= self.at:
            self.where = ""
            raise self.error


class Noisy(Dataset[Any]):
    """Draws from all three generators for each sample, as augmentation does."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        noise = random.random() + float(np.random.rand()) + float(torch.rand(()))
        self._trial.reach("loader")
        x = torch.full((2,), index / 12) + noise / 10
        return x, x.sum(0, keepdim=True)


class Mean(MetricReducer):
    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def reset(self) -> None:
        self._trial.reach("reducer.reset")

    def per_slot_reduce(self) -> Any:
        self._trial.reach("reducer")
        return 1.0

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        return 1.0


class Hook(PyTorchCallback):
    """Fails in one hook; counts the hooks of saves that it sees."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.saves = 0

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        self.trial.reach("epoch_start")

    def on_training_batch_start(self, epoch_idx: int, batch_idx: int, batch: Any) -> None:
        self.trial.reach("batch_start")

    def on_training_batch_end(self, epoch_idx: int, batch_idx: int, metrics: Any) -> None:
        self.trial.reach("batch_end")

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        self.trial.reach("epoch_end")

    def on_training_workload_end(self, avg_metrics: Any, batch_metrics: Any) -> None:
        self.trial.reach("workload_end")

    def on_validation_start(self) -> None:
        self.trial.reach("validation_start")

    def on_validation_end(self, metrics: Any) -> None:
        self.trial.reach("validation_end")

    def state_dict(self) -> dict[str, Any]:
        self.trial.reach("state_dict")
        return {}

    def on_checkpoint_save_start(self, checkpoint: Any) -> None:
        self.saves += 1
        self.trial.reach("save_start")


class Trial(pytorch.PyTorchTrial):
    """Random in data and model, and may fail anywhere."""

    norm: Callable[[], torch.nn.Module] = torch.nn.Identity

    def __init__(self, context: pytorch.PyTorchTrialContext, faults: Faults) -> None:
        self.context, self.faults = context, faults
        layers = [torch.nn.Linear(2, 8), self.norm(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)]
        self.model = context.wrap_model(torch.nn.Sequential(*layers))
        adam = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.optimizer = context.wrap_optimizer(adam)
        decay = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        context.wrap_lr_scheduler(decay, LRScheduler.StepMode.STEP_EVERY_BATCH)
        context.wrap_reducer(Mean(self), "mean")
        self.hook = Hook(self)

    def reach(self, where: str) -> None:
        self.faults.at_place(where, self.context._current_batch_idx or 0)

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"hook": self.hook, "average": ExponentialMovingAverage(self.context)}

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(Noisy(self), batch_size=2, shuffle=True)

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(Noisy(self), batch_size=4)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.reach("train_batch")
        x, y = batch
        loss = ((self.model(x) - y) ** 2).mean()
        self.reach("forward")
        self.context.backward(loss)
        self.reach("backward")
        self.context.step_optimizer(self.optimizer)
        self.reach("step")
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        if batch_idx == 1:
            self.reach("evaluate_batch")
        x, y = batch
        return {"error": ((self.model(x) - y) ** 2).mean() + torch.rand(())}


class NormTrial(Trial):
    norm = staticmethod(lambda: torch.nn.BatchNorm1d(8))


Outcome = dict[str, Any]


def run(
    trial_class: type[Trial],
    faults: Faults,
    storage: Path,
    aggregation_frequency: int = 1,
    **fit: Any,
) -> tuple[Trial, pytorch.Trainer]:
    with pytorch.init(
        seed=3,
        run_id="run",
        checkpoint_storage=storage,
        enable_tensorboard_logging=False,
        aggregation_frequency=aggregation_frequency,
    ) as context:
        trial = trial_class(context, faults)
        trainer = pytorch.Trainer(trial, context)
        options: dict[str, Any] = {
            "max_length": Batch(LENGTH),
            "validation_period": Batch(3),
            "reporting_period": Batch(2),
            "checkpoint_policy": "none",
            "latest_checkpoint": "latest",
        }
        trainer.fit(**(options | fit))
    return trial, trainer


def outcome(trial: Trial, trainer: pytorch.Trainer) -> Outcome:
    return {
        **{name: tensor.clone() for name, tensor in trial.model.state_dict().items()},
        "error": torch.tensor(float(trainer.latest_metrics["error"])),
        "random": torch.tensor([random.random(), float(np.random.rand()), float(torch.rand(()))]),
    }


def fail_and_resume(
    trial_class: type[Trial], where: str, tmp_path: Path, at: int = 5, **options: Any
) -> tuple[Outcome, Outcome, Any]:
    """Return what an unbroken run ends with, what a broken one does, and the rescue's run.json."""
    whole = outcome(*run(trial_class, Faults(), tmp_path / "whole", **options))
    with pytest.raises((BadError, ValueError)) as raised:
        run(trial_class, Faults(where, at), tmp_path / "cut", **options)
    assert "bad" in str(raised.value)
    (saved,) = checkpoints(tmp_path / "cut").values()
    record = json.loads((saved[0] / "run.json").read_text())
    return whole, outcome(*run(trial_class, Faults(), tmp_path / "cut", **options)), record


def assert_equal(one: Outcome, other: Outcome) -> None:
    differing = [name for name in one if not torch.equal(one[name], other[name])]
    assert differing == []


EXACT = [
    "loader",
    "epoch_start",
    "batch_start",
    "train_batch",
    "forward",
    "backward",
    "batch_end",
    "epoch_end",
    "workload_end",
    "reducer",
    "reducer.reset",
    "validation_start",
    "evaluate_batch",
    "validation_end",
    "save_start",
]


@pytest.mark.parametrize("where", EXACT)
def test_a_run_that_failed_continues_as_if_it_had_not(where: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"checkpoint_period": Batch(6)} if where == "save_start" else {}
    whole, resumed, record = fail_and_resume(Trial, where, tmp_path, **options)
    assert record["not_exact"] is None
    if where == "batch_end":  # the average, validated here, comes after the callback that failed
        del whole["error"], resumed["error"]
    assert_equal(whole, resumed)


@pytest.mark.parametrize("where", ["train_batch", "loader", "evaluate_batch", "batch_start"])
def test_the_first_batches_are_rescued_exactly_too(where: str, tmp_path: Path) -> None:
    whole, resumed, record = fail_and_resume(Trial, where, tmp_path, at=1)
    assert record["not_exact"] is None
    assert_equal(whole, resumed)


def test_an_update_before_the_error_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    _, _, record = fail_and_resume(Trial, "step", tmp_path)
    assert "already updated the weights" in record["not_exact"]
    (saved,) = [r.getMessage() for r in caplog.records if "An error ended" in r.getMessage()]
    (path,) = checkpoints(tmp_path / "cut")[5]
    assert json.loads((path / "metadata.json").read_text())["not_exact"] == record["not_exact"]
    documented("`train_batch` raises after an optimizer step", saved, path)
    (told,) = [r.getMessage() for r in caplog.records if "is not exact" in r.getMessage()]
    documented("a run continues from a checkpoint that is not exact", told)


def test_running_statistics_that_saw_the_failed_batch_are_told(tmp_path: Path) -> None:
    _, _, record = fail_and_resume(NormTrial, "forward", tmp_path)
    assert "running statistics" in record["not_exact"]
    whole, resumed, record = fail_and_resume(NormTrial, "loader", tmp_path / "loader")
    assert record["not_exact"] is None
    assert_equal(whole, resumed)


@pytest.mark.parametrize(("where", "is_exact"), [("forward", True), ("backward", False)])
def test_open_gradients_are_kept_or_the_rescue_is_not_exact(
    where: str, is_exact: bool, tmp_path: Path
) -> None:
    whole, resumed, record = fail_and_resume(Trial, where, tmp_path, aggregation_frequency=4)
    assert (record["not_exact"] is None) == is_exact
    if is_exact:
        assert_equal(whole, resumed)


def test_leftover_gradients_are_not_dropped(tmp_path: Path) -> None:
    class Leaky(Trial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            result = super().train_batch(batch, epoch_idx, batch_idx)
            self.context.backward((self.model(batch[0]) ** 2).mean())  # never cleared
            return result

    _, _, record = fail_and_resume(Leaky, "backward", tmp_path)
    assert "earlier batches include those of the failed" in record["not_exact"]
    whole, resumed, record = fail_and_resume(Leaky, "forward", tmp_path / "forward")
    assert record["not_exact"] is None
    assert_equal(whole, resumed)


def test_steps_of_the_trials_own_are_told(tmp_path: Path) -> None:
    class Direct(Trial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            loss = ((self.model(batch[0]) - batch[1]) ** 2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.reach("step")
            return {"loss": loss}

    _, _, record = fail_and_resume(Direct, "step", tmp_path)
    assert "optimizer step of its own" in record["not_exact"]


def test_the_line_says_that_it_is_saved(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(BadError) as raised:
        run(Trial, Faults("evaluate_batch"), tmp_path)
    assert raised.value.__context__ is None
    (line,) = [r.getMessage() for r in caplog.records if "An error ended" in r.getMessage()]
    (path,) = checkpoints(tmp_path)[6]
    documented("user code raises, in a validation for instance", line, path)


def test_a_wrong_metric_is_an_error_that_loses_nothing(tmp_path: Path) -> None:
    options: dict[str, Any] = {"metric": "eror", "checkpoint_policy": "best"}
    with pytest.raises(RuntimeError, match="'eror'"):
        run(Trial, Faults(), tmp_path, **options)
    assert list(checkpoints(tmp_path)) == [3]
    resumed = outcome(*run(Trial, Faults(), tmp_path, metric="error"))
    assert_equal(resumed, outcome(*run(Trial, Faults(), tmp_path / "whole")))


@pytest.mark.parametrize("where", ["save_start", "state_dict", "batch_end"])
def test_a_callback_that_failed_is_left_alone(where: str, tmp_path: Path) -> None:
    kept: list[Trial] = []

    class Kept(Trial):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            kept.append(self)

    with pytest.raises(BadError):
        run(Kept, Faults(where), tmp_path, checkpoint_period=Batch(6))
    assert kept[0].hook.saves == (1 if where == "save_start" else 0)
    (path,) = checkpoints(tmp_path)[6]
    record = json.loads((path / "run.json").read_text())
    assert (record["not_exact"] is None) == (where != "state_dict")


def test_a_failing_save_does_not_hide_the_first_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Iterator[Any]:
        raise KeyboardInterrupt  # as a second Ctrl-C would

    class Worse(Trial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 4:
                monkeypatch.setattr(self.context._core.checkpoint, "store_path", broken)
            return super().train_batch(batch, epoch_idx, batch_idx)

    with pytest.raises(BadError):
        run(Worse, Faults("train_batch"), tmp_path, async_checkpoint=False)
    (line,) = [r.getMessage() for r in caplog.records if "could not be saved" in r.getMessage()]
    documented("the save after an error fails as well", line)
    assert checkpoints(tmp_path) == {}


def test_ctrl_c_twice_and_test_mode_save_nothing(tmp_path: Path) -> None:
    class Interrupted(Trial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 4:
                raise KeyboardInterrupt
            return super().train_batch(batch, epoch_idx, batch_idx)

    with pytest.raises(KeyboardInterrupt):
        run(Interrupted, Faults(), tmp_path)
    with pytest.raises(BadError):
        run(Trial, Faults("step", 0), tmp_path, test_mode=True)
    assert checkpoints(tmp_path) == {}


def test_refused_hyperparameters_are_saved_as_well(tmp_path: Path) -> None:
    faults = Faults("train_batch")
    faults.error = InvalidHP("no")
    with pytest.raises(InvalidHP):
        run(Trial, faults, tmp_path)
    assert list(checkpoints(tmp_path)) == [5]


def test_what_is_saved_already_is_not_saved_again(tmp_path: Path) -> None:
    with pytest.raises(BadError):
        run(Trial, Faults("train_batch", 6), tmp_path, checkpoint_period=Batch(6))
    assert {k: len(v) for k, v in checkpoints(tmp_path).items()} == {6: 1}
    with pytest.raises(BadError):  # nothing is trained
        run(Trial, Faults("train_batch", 6), tmp_path)
    assert {k: len(v) for k, v in checkpoints(tmp_path).items()} == {6: 1}
