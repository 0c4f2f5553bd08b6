from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from determined import pytorch
from determined.core.backends.backend import LocalBackend
from determined.pytorch import PyTorchCallback, PyTorchTrialContext
from determined.pytorch.callbacks import LearningRateMonitor
from tests.pytorch.callbacks.trials import fit
from tests.support.trials import LineTrial
from tests.tensorboard.read_events import read_points


class Decaying(LineTrial):
    """Halves the rate after every batch."""

    num_batches = 10
    learning_rate = 1 / 64

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.5),
            pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH,
        )


class TwoOptimizers(LineTrial):
    """A second optimizer with two groups, one of them with a name."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        other = context.wrap_model(torch.nn.Linear(1, 1))
        groups: list[dict[str, Any]] = [
            {"params": [other.weight], "lr": 0.5},
            {"params": [other.bias], "lr": 0.25, "name": "bias"},
        ]
        context.wrap_optimizer(torch.optim.Adam(groups))


class Seen(PyTorchCallback):
    """Keeps the averages of every report."""

    def __init__(self) -> None:
        self.averages: list[dict[str, Any]] = []

    def on_training_workload_end(
        self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]
    ) -> None:
        self.averages.append(dict(avg_metrics))


def test_numbers_that_callbacks_add_become_part_of_the_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reports: list[tuple[str, int, dict[str, Any]]] = []

    def report(self: Any, group: str, steps: int, metrics: dict[str, Any], *_: Any) -> None:
        reports.append((group, steps, metrics))

    class Last(PyTorchCallback):
        def on_training_workload_end(
            self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]
        ) -> None:
            avg_metrics["loss"] = -1.0  # not ours to change
            avg_metrics["note"] = "no number"

    monkeypatch.setattr(LocalBackend, "report_metrics", report)
    fit(lambda context: {"lr": LearningRateMonitor(context), "last": Last()}, 4, Decaying)
    training = [(steps, metrics) for group, steps, metrics in reports if group == "training"]
    assert [steps for steps, _ in training] == [2, 2, 4, 4]
    for (_, measured), (steps, added) in zip(training[::2], training[1::2], strict=True):
        assert added == {"lr/SGD/0": 2.0**-6 * 0.5**steps}
        assert "loss" in measured


def _points(tmp_path: Path, trial_class: type[LineTrial]) -> dict[str, list[tuple[int, float]]]:
    fit(
        lambda context: {"lr": LearningRateMonitor(context)},
        4,
        trial_class,
        {"tensorboard_path": tmp_path / "events"},
    )
    points = read_points(tmp_path / "events")
    return {tag: values for tag, values in points.items() if tag.startswith("lr/")}


def test_rates_are_written_with_every_report(tmp_path: Path) -> None:
    assert _points(tmp_path, Decaying) == {"lr/SGD/0": [(2, 1 / 256), (4, 1 / 1024)]}


def test_groups_of_several_optimizers_have_tags_of_their_own(tmp_path: Path) -> None:
    points = _points(tmp_path, TwoOptimizers)
    assert {tag: values[-1][1] for tag, values in points.items()} == pytest.approx(
        {"lr/SGD_0/0": 0.01, "lr/Adam_1/0": 0.5, "lr/Adam_1/bias": 0.25}
    )


def test_later_callbacks_see_the_rates_in_the_report() -> None:
    seen = Seen()
    fit(lambda context: {"lr": LearningRateMonitor(context), "seen": seen}, 4, Decaying)
    assert [report["lr/SGD/0"] for report in seen.averages] == [1 / 256, 1 / 1024]
