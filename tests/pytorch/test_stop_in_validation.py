"""A stop in the middle of a validation saves the state of before it, whatever the validation does.

Real signals: the trial sends them to its own process. The run that continues validates first, and
ends like one that was never stopped: weights, states, rows of metrics.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from determined import pytorch
from determined.pytorch import Batch, DataLoader, PyTorchCallback
from determined.pytorch._checkpoint.state.snapshot import Snapshot
from tests.support.trials import checkpoints, line

LENGTH = 9


class HandMadeAverage(PyTorchCallback):
    """The usual moving average: swaps weights in for a validation, through `.data`."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.average = [p.detach().clone() for p in model.parameters()]
        self.own: list[torch.Tensor] = []

    def on_training_batch_end(self, epoch_idx: int, batch_idx: int, metrics: Any) -> None:
        for average, weight in zip(self.average, self.model.parameters(), strict=True):
            average.mul_(0.5).add_(weight.detach(), alpha=0.5)

    def on_validation_start(self) -> None:
        self.own = [p.data for p in self.model.parameters()]
        for weight, average in zip(self.model.parameters(), self.average, strict=True):
            weight.data = average.clone()

    def on_validation_end(self, metrics: Any) -> None:
        for weight, own in zip(self.model.parameters(), self.own, strict=True):
            weight.data = own

    def state_dict(self) -> dict[str, Any]:
        return {"average": self.average}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.average = state_dict["average"]


class Counts(PyTorchCallback):
    """Counts the hooks of validations, and what `evaluate_batch` tells it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def on_validation_start(self) -> None:
        self.counts["start"] += 1

    def on_validation_epoch_start(self) -> None:
        self.counts["epoch start"] += 1

    def on_validation_end(self, metrics: Any) -> None:
        self.counts["end"] += 1

    def state_dict(self) -> dict[str, Any]:
        return {"counts": dict(self.counts)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.counts = Counter(state_dict["counts"])


class Validated(pytorch.PyTorchTrial):
    """Changes all that it can in a validation; stops in the second one."""

    stops = True
    callbacks_used: tuple[str, ...] = ("average", "counts")

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        torch.manual_seed(1)
        net = torch.nn.Sequential(
            torch.nn.Linear(1, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)
        )
        self.model = context.wrap_model(net)
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.01))
        self.counts = Counts()
        self.callbacks: dict[str, PyTorchCallback] = {
            "average": HandMadeAverage(self.model),
            "counts": self.counts,
        }
        self.rows: list[Any] = []
        self.after_signal = 0
        report = context._core.train.report_validation_metrics

        def note(steps_completed: int, metrics: dict[str, Any]) -> None:
            self.rows.append((steps_completed, float(metrics["error"])))
            report(steps_completed=steps_completed, metrics=metrics)

        context._core.train.report_validation_metrics = note  # type: ignore[method-assign]

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {name: self.callbacks[name] for name in self.callbacks_used}

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(line(6), batch_size=3, shuffle=True)

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(line(6), batch_size=2)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        x, y = batch
        loss = ((self.model(x) - y) ** 2).mean() + torch.rand(())
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        self.counts.counts["batches"] += 1
        self.model.train()  # so that running statistics change
        error = ((self.model(x) - y) ** 2).mean() + torch.rand(())
        self.model.eval()
        self.after_signal += int(self.after_signal > 0)
        if self.stops and self.context._current_batch_idx == 5 and batch_idx == 1:
            self.after_signal = 1
            os.kill(os.getpid(), signal.SIGTERM)
        return {"error": error}


def fit(trial_class: type[Validated], storage: Path, stops: bool, **options: Any) -> Validated:
    made: list[Validated] = []
    with pytorch.init(
        seed=3, run_id="run", checkpoint_storage=storage, enable_tensorboard_logging=False
    ) as context:
        trial = trial_class(context)
        trial.stops = stops
        made.append(trial)
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(LENGTH),
            validation_period=Batch(3),
            checkpoint_policy="none",
            latest_checkpoint="latest",
            **options,
        )
    return made[0]


def stop(trial_class: type[Validated], storage: Path, **options: Any) -> Validated:
    made: list[Validated] = []

    class Kept(trial_class):  # type: ignore[valid-type, misc]  # a class of the caller's
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            super().__init__(context)
            made.append(self)

    with pytest.raises(SystemExit):
        fit(Kept, storage, stops=True, **options)
    return made[0]


def outcome(trial: Validated) -> list[torch.Tensor]:
    tensors = list(trial.model.state_dict().values())
    state = trial.optimizer.state_dict()["state"]
    tensors += [value for one in state.values() for value in one.values()]
    average = trial.callbacks["average"]
    assert isinstance(average, HandMadeAverage)
    return [*tensors, *average.average]


class OnlyCounts(Validated):
    callbacks_used = ("counts",)


class WithoutCallbacks(Validated):
    callbacks_used = ()


@pytest.mark.parametrize("trial_class", [Validated, OnlyCounts, WithoutCallbacks])
@pytest.mark.parametrize("options", [{}, {"async_checkpoint": False}])
def test_a_stopped_validation_leaves_no_trace(
    trial_class: type[Validated], options: dict[str, Any], tmp_path: Path
) -> None:
    whole = fit(trial_class, tmp_path / "whole", stops=False, **options)
    cut = stop(trial_class, tmp_path / "cut", **options)
    resumed = fit(trial_class, tmp_path / "cut", stops=False, **options)
    assert all(map(torch.equal, outcome(whole), outcome(resumed)))
    if trial_class.callbacks_used:
        assert resumed.counts.counts == whole.counts.counts
    assert cut.rows + resumed.rows == whole.rows
    # Without a copy of before, the validation is finished first.
    assert cut.after_signal == (1 if not options else 5)


def test_a_state_that_cannot_be_copied_is_saved_after_the_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Snapshot, state: Any) -> Any:
        raise NotImplementedError("no clone")

    monkeypatch.setattr(Snapshot, "begin_copy", fail)
    whole = fit(Validated, tmp_path / "whole", stops=False)
    cut = stop(Validated, tmp_path / "cut")
    resumed = fit(Validated, tmp_path / "cut", stops=False)
    assert cut.after_signal == 5  # it was finished first
    assert all(map(torch.equal, outcome(whole), outcome(resumed)))
    assert cut.rows + resumed.rows == whole.rows


def test_a_stopped_validation_saves_at_once(tmp_path: Path) -> None:
    cut = stop(Validated, tmp_path)
    assert list(checkpoints(tmp_path)) == [6]
    assert cut.rows == [(3, cut.rows[0][1])]


def test_a_second_stop_in_the_same_validation_is_the_same(tmp_path: Path) -> None:
    whole = fit(Validated, tmp_path / "whole", stops=False)
    stop(Validated, tmp_path / "cut")
    again = stop(Validated, tmp_path / "cut")
    assert again.rows == []
    resumed = fit(Validated, tmp_path / "cut", stops=False)
    assert all(map(torch.equal, outcome(whole), outcome(resumed)))
    assert resumed.counts.counts == whole.counts.counts
