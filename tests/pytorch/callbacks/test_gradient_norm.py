from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from determined.pytorch import PyTorchTrialContext
from determined.pytorch.callbacks import GradientNorm
from tests.pytorch.callbacks.trials import fit
from tests.support.trials import LineTrial
from tests.tensorboard.read_events import read_points


class Noting(LineTrial):
    """Notes the gradient of the one weight before each step."""

    num_batches = 10

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.gradients: list[tuple[int, float]] = []

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer, clip_grads=self._note)
        return {"loss": loss}

    def _note(self, parameters: Any) -> None:
        (parameter,) = parameters
        self.gradients.append((self.context.current_train_batch(), abs(parameter.grad.item())))


class Scaled(Noting):
    """Scales the loss by hand."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.scaler = context.wrap_scaler(torch.amp.GradScaler("cpu", init_scale=1024.0))
        super().__init__(context)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        self.context.backward(self.scaler.scale(loss))
        self.gradients.append((batch_idx, abs(next(self.model.parameters()).grad.item()) / 1024))  # type: ignore[union-attr]  # there is one after backward
        self.context.step_optimizer(self.optimizer, scaler=self.scaler)
        self.scaler.update()
        return {"loss": loss}


def _train(
    tmp_path: Path, trial_class: type[Noting] = Noting, **init: Any
) -> tuple[LineTrial, list[tuple[int, float]]]:
    trial = fit(
        lambda context: {"norm": GradientNorm(context)},
        5,
        trial_class,
        {"tensorboard_path": tmp_path / "events", **init},
    )
    points = read_points(tmp_path / "events")
    assert [tag for tag in points if tag.startswith("gradient")] == ["gradient_norm/SGD"]
    return trial, points["gradient_norm/SGD"]


def _norms(points: list[tuple[int, float]]) -> list[float]:
    return [norm for _, norm in points]


@pytest.mark.parametrize("trial_class", [Noting, Scaled])
def test_every_update_has_its_norm(tmp_path: Path, trial_class: type[Noting]) -> None:
    trial, points = _train(tmp_path, trial_class)
    assert isinstance(trial, Noting)
    assert [step for step, _ in points] == [0, 1, 2, 3, 4]
    assert _norms(points) == pytest.approx(_norms(trial.gradients))


def test_window_has_the_norm_of_its_averaged_gradients(tmp_path: Path) -> None:
    trial, points = _train(tmp_path, aggregation_frequency=2)
    assert isinstance(trial, Noting)
    assert [step for step, _ in points] == [1, 3]
    assert _norms(points) == pytest.approx(_norms(trial.gradients))


def test_optimizer_is_left_as_it_was(tmp_path: Path) -> None:
    trial, _ = _train(tmp_path)
    assert not trial.optimizer._optimizer_step_pre_hooks
