"""`fit(sanity_validation=n)` finds mistakes before training, and leaves no trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from determined.pytorch import Batch, DataLoader, Epoch, PyTorchTrial
from tests.support.trials import DropoutNet, LineTrial, checkpoints, count, line, recording, train


class RandomTrial(LineTrial):
    """Draws random numbers wherever it can, and shuffles with a generator of its own."""

    def __init__(self, context: Any, log: Any = None) -> None:
        super().__init__(context, log)
        self.net = context.wrap_model(DropoutNet())
        self.adam = context.wrap_optimizer(torch.optim.Adam(self.net.parameters()))
        self.values = context.wrap_reducer(sum, "total")

    def build_validation_data_loader(self) -> Any:
        self.context.experimental.disable_dataset_reproducibility_checks()
        generator = torch.Generator().manual_seed(4)
        return torch.utils.data.DataLoader(line(5), 2, shuffle=True, generator=generator)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.values.update(1)
        loss = ((self.net(batch[0]) - batch[1]) ** 2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.adam)
        return super().train_batch(batch, epoch_idx, batch_idx)

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        self.values.update(1)
        metrics = super().evaluate_batch(batch, batch_idx)
        return {**metrics, "noise": torch.rand(()), "first": batch[0][0, 0]}


def _run(**fit: Any) -> tuple[LineTrial, list[Any], list[Any]]:
    trial = train(recording(RandomTrial), {"seed": 2}, validation_period=Batch(2), **fit)
    weights = [p.tolist() for model in trial.context.models for p in model.parameters()]
    validated = [entry[2] for entry in trial.log if entry[:2] == ("A", "on_validation_end")]
    return trial, weights, validated


def test_a_sanity_validation_leaves_no_trace() -> None:
    plain, weights, validated = _run(max_length=Epoch(2))
    tried, *results = _run(max_length=Epoch(2), sanity_validation=2)
    assert results == [weights, validated]
    for hook in ("on_validation_start", "on_validation_end", "on_validation_epoch_start"):
        assert count(tried.log, hook) == count(plain.log, hook)
    assert count(tried.log, "evaluate_batch") == count(plain.log, "evaluate_batch") + 2


@pytest.mark.parametrize("fit", [{}, {"metric": "typo"}])
def test_mistakes_show_before_training(fit: dict[str, Any]) -> None:
    class Bad(LineTrial):
        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            if not fit:
                raise ZeroDivisionError
            return super().evaluate_batch(batch, batch_idx)

    logs: list[Any] = []
    with pytest.raises((ZeroDivisionError, RuntimeError)):
        train(lambda context: Bad(context, logs), sanity_validation=1, **fit)
    assert not any(entry[0] == "train_batch" for entry in logs)
    assert checkpoints() == {}


def test_it_is_off_by_default_and_skips_full_datasets() -> None:
    class Full(LineTrial):
        evaluate_batch = PyTorchTrial.evaluate_batch

        def build_validation_data_loader(self) -> DataLoader:
            return super().build_validation_data_loader()

        def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
            self.log.append(("evaluate_full_dataset",))
            return {"validation_loss": 1.0}

    assert count(train(Full, sanity_validation=2).log, "evaluate_full_dataset") == 1
    assert count(train(LineTrial).log, "evaluate_batch") == 3
    with pytest.raises(ValueError, match="`sanity_validation` must be at least 0"):
        train(LineTrial, sanity_validation=-1)
