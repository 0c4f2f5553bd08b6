"""After an error what was trained is saved, and `latest` is a state that is exact.

"Exact" is put to the test: the run that continues must end with the same weights as one that never
failed, to the last bit.
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
from tests.support.faults import in_turns
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
    """Return what an unbroken run ends with, what a broken one does, and the record of the save."""
    whole = outcome(*run(trial_class, Faults(), tmp_path / "whole", **options))
    with pytest.raises((BadError, ValueError)) as raised:
        run(trial_class, Faults(where, at), tmp_path / "cut", **options)
    assert "bad" in str(raised.value)
    record = newest_record(tmp_path / "cut")
    return whole, outcome(*run(trial_class, Faults(), tmp_path / "cut", **options)), record


def newest_record(storage: Path) -> Any:
    found = checkpoints(storage)
    (path,) = found[max(found)]
    return json.loads((path / "run.json").read_text())


def assert_equal(one: Outcome, other: Outcome) -> None:
    differing = [name for name in one if not torch.equal(one[name], other[name])]
    assert differing == []


IN_BATCHES = ["loader", "epoch_start", "batch_start", "train_batch", "forward", "backward", "step"]
AFTER_BATCHES = ["batch_end", "epoch_end", "workload_end", "reducer"]
IN_VALIDATIONS = ["validation_start", "evaluate_batch", "validation_end"]


@pytest.mark.parametrize(
    ("where", "period"),
    in_turns([*IN_BATCHES, *AFTER_BATCHES, *IN_VALIDATIONS], [None, Batch(4)]),
)
def test_a_run_that_failed_continues_as_if_it_had_not(
    where: str, period: Batch | None, tmp_path: Path
) -> None:
    whole, resumed, record = fail_and_resume(Trial, where, tmp_path, checkpoint_period=period)
    assert (record["not_exact"] is None) == (where in IN_VALIDATIONS)
    assert_equal(whole, resumed)


def test_a_state_that_is_not_exact_is_saved_but_not_the_latest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with pytest.raises(BadError):
        run(Trial, Faults("step"), tmp_path, checkpoint_period=Batch(3))
    (newer,), (exact,) = checkpoints(tmp_path)[5], checkpoints(tmp_path)[3]
    metadata = json.loads((newer / "metadata.json").read_text())
    assert metadata["not_exact"] == "the error came during a batch or its callbacks"
    assert metadata["metrics"] == {}
    (line,) = [r.getMessage() for r in caplog.records if "An error ended" in r.getMessage()]
    documented("`train_batch` raises", line, newer.name, exact.name)
    assert resumed_at(tmp_path, "latest") == 3
    caplog.clear()
    assert resumed_at(tmp_path, newer.name) == 5
    (told,) = [r.getMessage() for r in caplog.records if "is not exact" in r.getMessage()]
    documented("a run continues from a checkpoint that is not exact", told)


def test_without_an_exact_checkpoint_the_latest_is_the_beginning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(BadError):
        run(Trial, Faults("forward"), tmp_path)
    (line,) = [r.getMessage() for r in caplog.records if "An error ended" in r.getMessage()]
    (newer,) = checkpoints(tmp_path)[5]
    assert 'fit(latest_checkpoint="latest") starts from the beginning and trains 5 batches' in line
    caplog.clear()
    assert resumed_at(tmp_path, "latest") == 0
    (told,) = [r.getMessage() for r in caplog.records if "from the beginning" in r.getMessage()]
    documented("`latest`, but the only checkpoint is not exact", told, newer.name)


def test_a_run_that_fails_again_and_again_keeps_one_state_that_is_not_exact(
    tmp_path: Path,
) -> None:
    for at in (5, 5, 2, 7):
        with pytest.raises(BadError):
            run(Trial, Faults("forward", at), tmp_path)
        if at == 2:  # the one that had come further stays
            assert {k: len(v) for k, v in checkpoints(tmp_path).items()} == {5: 1, 2: 1}
    assert {k: len(v) for k, v in checkpoints(tmp_path).items()} == {5: 1, 7: 1}


def resumed_at(storage: Path, latest_checkpoint: str) -> int:
    """Return the first batch that a run from there trains."""
    began: list[int] = []

    class Noted(Trial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            began.append(batch_idx)
            return super().train_batch(batch, epoch_idx, batch_idx)

    run(Noted, Faults(), storage, latest_checkpoint=latest_checkpoint, max_length=Batch(6))
    return began[0]


def test_a_report_that_failed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reported(storage: Path, fail_at: int | None) -> list[Any]:
        rows: list[Any] = []

        class Watched(Trial):
            def __init__(self, *args: Any) -> None:
                super().__init__(*args)
                train = self.context._core.train
                report = train.report_training_metrics

                def note(steps_completed: int, metrics: Any, **more: Any) -> None:
                    if steps_completed == fail_at:
                        raise OSError("no space")
                    rows.append((steps_completed, {**metrics}))
                    report(steps_completed=steps_completed, metrics=metrics, **more)

                monkeypatch.setattr(train, "report_training_metrics", note)

        if fail_at is None:
            run(Watched, Faults(), storage)
        else:
            with pytest.raises(OSError, match="no space"):
                run(Watched, Faults(), storage)
        return rows

    whole = reported(tmp_path / "whole", None)
    cut = reported(tmp_path / "cut", 6)  # a validation is due there, too
    assert newest_record(tmp_path / "cut")["not_exact"] is None
    assert cut + reported(tmp_path / "cut", None) == whole


class Plateau(PyTorchCallback):
    """Lowers the rate in a hook, and fails after that."""

    def __init__(self, trial: PlateauTrial) -> None:
        self.trial = trial

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.trial.plateau.step(1.0)
        self.trial.reach("plateau")


class PlateauTrial(Trial):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, patience=0)
        self.context.wrap_lr_scheduler(self.plateau, LRScheduler.StepMode.MANUAL_STEP)

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"plateau": Plateau(self)}


@pytest.mark.parametrize("options", [{}, {"async_checkpoint": False}])
def test_a_scheduler_that_a_failing_hook_has_stepped_is_not_stepped_twice(
    options: dict[str, Any], tmp_path: Path
) -> None:
    whole, resumed, record = fail_and_resume(PlateauTrial, "plateau", tmp_path, **options)
    assert (record["not_exact"] is None) == (not options)  # else there is no copy of before
    assert_equal(whole, resumed)


class Counter(PyTorchCallback):
    """Counts batches, and fails after that."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.count = trial, 0

    def on_training_batch_end(self, epoch_idx: int, batch_idx: int, metrics: Any) -> None:
        self.count += 1
        self.trial.reach("counted")

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.count = state_dict["count"]


def test_what_a_failing_hook_has_counted_is_not_counted_twice(tmp_path: Path) -> None:
    class Counting(Trial):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            self.counter = Counter(self)
            return {"counter": self.counter}

    options: dict[str, Any] = {"checkpoint_period": Batch(3)}
    with pytest.raises(BadError):
        run(Counting, Faults("counted"), tmp_path, **options)
    trial, _ = run(Counting, Faults(), tmp_path, **options)
    assert isinstance(trial, Counting)
    assert trial.counter.count == LENGTH


def test_the_line_says_that_it_is_saved(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(BadError) as raised:
        run(Trial, Faults("evaluate_batch"), tmp_path)
    assert raised.value.__context__ is None
    (line,) = [r.getMessage() for r in caplog.records if "An error ended" in r.getMessage()]
    (path,) = checkpoints(tmp_path)[6]
    documented("user code raises in a validation", line, path.name)


def test_a_wrong_metric_is_an_error_that_loses_nothing(tmp_path: Path) -> None:
    options: dict[str, Any] = {"metric": "eror", "checkpoint_policy": "best"}
    with pytest.raises(RuntimeError, match="'eror'"):
        run(Trial, Faults(), tmp_path, **options)
    assert list(checkpoints(tmp_path)) == [3]
    resumed = outcome(*run(Trial, Faults(), tmp_path, metric="error"))
    assert_equal(resumed, outcome(*run(Trial, Faults(), tmp_path / "whole")))


@pytest.mark.parametrize("where", ["save_start", "state_dict"])
def test_a_callback_that_fails_at_every_save_is_left_out(where: str, tmp_path: Path) -> None:
    class Stubborn(Faults):
        def at_place(self, where: str, batch_idx: int) -> None:
            if where == self.where and batch_idx >= self.at:
                raise self.error

    with pytest.raises(BadError):
        run(Trial, Stubborn(where), tmp_path, checkpoint_period=Batch(6), validation_period=None)
    (path,) = checkpoints(tmp_path)[6]
    record = json.loads((path / "run.json").read_text())
    assert record["not_exact"] == "without callbacks, one of which raised BadError"


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
