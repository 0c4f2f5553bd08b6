"""Errors tell where the user's code failed, on which batch, and what to look at."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch

from determined import pytorch
from tests.support.trials import LineTrial

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Python 3.10 has no notes on exceptions; they are logged"
)


def _failure(trial_class: type[LineTrial], storage: Path) -> str:
    with pytorch.init(checkpoint_storage=storage) as context:
        trainer = pytorch.Trainer(trial_class(context), context)
        with pytest.raises(RuntimeError) as caught:
            trainer.fit(max_length=pytorch.Batch(4))
    return "".join(traceback.format_exception(caught.value))


class _WrongShape(LineTrial):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        x, _ = batch
        return self.model(torch.cat([x, x], dim=1)).sum()


def test_a_shape_mismatch_shows_the_batch_and_the_first_layer(tmp_path: Path) -> None:
    said = _failure(_WrongShape, tmp_path)
    assert "In your code:" in said
    assert "train_batch: return self.model(torch.cat([x, x], dim=1)).sum()" in said
    assert "The last batch begun was batch 0." in said
    assert "[0]: (2, 1) float32" in said
    assert "Linear(in_features=1" in said


class _ThirdBatchFails(LineTrial):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        if batch_idx == 2:
            raise RuntimeError("Expected all tensors to be on the same device")
        return super().train_batch(batch, epoch_idx, batch_idx)


def test_a_device_mismatch_names_the_device_to_use(tmp_path: Path) -> None:
    said = _failure(_ThirdBatchFails, tmp_path)
    assert "The last batch begun was batch 2." in said
    assert "device=self.context.device" in said


class _FailsInValidation(LineTrial):
    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        raise RuntimeError("something of the user's own")


def test_an_unknown_error_gets_the_place_but_no_guess(tmp_path: Path) -> None:
    said = _failure(_FailsInValidation, tmp_path)
    assert "evaluate_batch: raise RuntimeError" in said
    assert "Hint" not in said
