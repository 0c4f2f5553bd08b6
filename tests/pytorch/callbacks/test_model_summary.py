from __future__ import annotations

from typing import Any

import pytest
import torch

from determined.pytorch import PyTorchTrialContext
from determined.pytorch.callbacks import ModelSummary
from tests.pytorch.callbacks.trials import NormTrial, fit
from tests.support.trials import LineTrial


def _printed(
    capsys: pytest.CaptureFixture[str], trial_class: type[LineTrial], *args: Any
) -> list[list[str]]:
    fit(lambda context: {"summary": ModelSummary(context, *args)}, 3, trial_class)
    lines = capsys.readouterr().err.splitlines()
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]


def test_layers_are_listed_once_with_shapes_and_parameters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _printed(capsys, NormTrial) == [
        ["(model)", "NormNet", "2x1", ""],
        ["first", "Linear", "2x4", "8"],
        ["norm", "BatchNorm1d", "2x4", "8"],
        ["last", "Linear", "2x1", "5"],
    ]


class Nested(LineTrial):
    """A model in a model, with an output that is no tensor."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)

        class Pair(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = torch.nn.Sequential(torch.nn.Linear(1, 3), torch.nn.Linear(3, 1))

            def forward(self, x: torch.Tensor) -> dict[str, Any]:
                return {"y": self.inner(x), "more": (x, 1)}

        self.pair = context.wrap_model(Pair())

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.pair(batch[0])
        return super().train_batch(batch, epoch_idx, batch_idx)


def test_nested_outputs_and_depth(capsys: pytest.CaptureFixture[str]) -> None:
    assert _printed(capsys, Nested, 1) == [
        ["(model)", "Linear", "2x1", "1"],
        ["(model)", "Pair", "y: 2x1, more: 2x1, int", ""],
        ["inner", "Sequential", "2x1", ""],
    ]


def test_totals_follow_each_table(capsys: pytest.CaptureFixture[str]) -> None:
    fit(lambda context: {"summary": ModelSummary(context)}, 1, NormTrial)
    assert "21 parameters, 21 of them trainable, 0.0 MB" in capsys.readouterr().err


def test_model_is_left_as_it_was() -> None:
    trial = fit(lambda context: {"summary": ModelSummary(context)}, 1, NormTrial)
    assert not any(module._forward_hooks for module in trial.model.modules())


@pytest.mark.parametrize("max_depth", [0, 1.5])
def test_bad_depth_is_refused(max_depth: Any) -> None:
    with pytest.raises(ValueError, match="max_depth"):
        fit(lambda context: {"summary": ModelSummary(context, max_depth)}, 1)
