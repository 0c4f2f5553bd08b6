"""Validation on its own, and of a part of the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from determined import pytorch
from determined.errors import CheckpointNotFound
from determined.pytorch import Batch, PyTorchTrial, PyTorchTrialContext
from determined.pytorch._data.seed import rng_state
from tests.support.messages import documented
from tests.support.trials import DropoutNet, LineTrial, checkpoints, count, recording, train
from tests.support.workers import run_workers


class Counting(LineTrial):
    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {**super().evaluate_batch(batch, batch_idx), "weight": self.weight}


def test_validating_returns_metrics_and_changes_nothing() -> None:
    class Trial(Counting):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            context.wrap_model(DropoutNet())

    with pytorch.init(seed=3) as context:
        trial = Trial(context)
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(max_length=Batch(2))
        fitted, saved = dict(trainer.latest_metrics), checkpoints()
        weight, random = trial.weight, rng_state()
        metrics = trainer.validate()
        assert trainer.latest_metrics is metrics
        assert trial.batches == [0, 1]
        assert trial.model.training is False
        assert str(rng_state()) == str(random)
    assert trial.weight == weight
    assert checkpoints() == saved
    assert metrics == {name: fitted[name] for name in ("validation_loss", "weight")}
    assert {type(value) for value in metrics.values()} == {float}


def test_a_checkpoint_is_validated() -> None:
    first = train(Counting, {"run_id": "a"}, max_length=Batch(2))
    with pytorch.init(run_id="a") as context:
        trainer = pytorch.Trainer(Counting(context), context)
        metrics = trainer.validate("latest")
        assert metrics["weight"] == pytest.approx(first.weight)
        (path,) = checkpoints()[2]
        assert trainer.validate(str(path)) == metrics
    with pytorch.init(run_id="other") as context:
        trainer = pytorch.Trainer(Counting(context), context)
        with pytest.raises(CheckpointNotFound) as error:
            trainer.validate("latest")
    documented("`trainer.validate('latest')` before anything was saved", str(error.value))


def test_training_goes_on_after_a_validation_as_if_there_had_been_none() -> None:
    def weight(validates: bool) -> float:
        with pytorch.init(seed=3) as context:
            trial = LineTrial(context)
            trainer = pytorch.Trainer(trial, context)
            trainer.fit(max_length=Batch(2))
            if validates:
                trainer.validate()
            trainer.fit(max_length=Batch(4), latest_checkpoint=trainer.latest_checkpoint)
        return trial.weight

    assert weight(True) == weight(False)


def test_a_limit_counts_batches_of_each_validation() -> None:
    trial = train(
        recording(), max_length=Batch(2), validation_period=Batch(1), limit_validation_batches=2
    )
    evaluated = [entry[1] for entry in trial.log if entry[0] == "evaluate_batch"]
    assert evaluated == [0, 1, 0, 1]
    assert count(trial.log, "on_validation_epoch_end") == 2
    with pytest.raises(ValueError, match="`limit_validation_batches` must be at least 1"):
        train(limit_validation_batches=0)


def test_a_limit_cannot_cut_a_loop_of_the_trial_itself() -> None:
    class Full(LineTrial):
        evaluate_batch = PyTorchTrial.evaluate_batch

        def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
            return {"a": 1.0}

    with pytest.raises(ValueError, match="evaluate_full_dataset") as error:
        train(Full, limit_validation_batches=2)
    documented("`limit_validation_batches` with `evaluate_full_dataset`", str(error.value))


def _validated_on_two_ranks(storage: Path) -> Any:
    with pytorch.init(checkpoint_storage=storage) as context:
        trainer = pytorch.Trainer(Counting(context), context)
        both = trainer.validate(), trainer.validate(limit_validation_batches=1)
        return [metrics["validation_loss"] for metrics in both]


def test_every_rank_gets_the_metrics(tmp_path: Path) -> None:
    # Records 1 to 6 in batches of two, dealt to two ranks; y = 2x and the weight is 0.
    squares = [2.0 * (a * a + b * b) for a, b in ((1, 2), (3, 4), (5, 6))]
    expected = [pytest.approx(sum(squares) / 3), pytest.approx(sum(squares[:2]) / 2)]
    assert run_workers(2, _validated_on_two_ranks, tmp_path) == [expected, expected]


# Clipping.


@pytest.mark.parametrize("frequency", [1, 2])
def test_clipping_to_a_norm_is_that_of_torch(frequency: int) -> None:
    def trained(**clipping: Any) -> float:
        class Trial(LineTrial):
            def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
                x, y = batch
                loss = torch.nn.functional.mse_loss(self.model(x), y)
                self.context.backward(loss)
                self.context.step_optimizer(self.optimizer, **clipping)
                return {"loss": loss}

        return train(Trial, {"aggregation_frequency": frequency}, max_length=Batch(4)).weight

    by_hand = trained(clip_grads=lambda p: torch.nn.utils.clip_grad_norm_(p, 0.5))
    assert trained(clip_grad_norm=0.5) == by_hand
    assert by_hand == pytest.approx(4 / frequency * 0.5 * LineTrial.learning_rate)
    assert trained() > by_hand


def test_gradients_are_unscaled_before_they_are_clipped() -> None:
    class Scaled(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            self.scaler = context.wrap_scaler(torch.amp.GradScaler("cpu", init_scale=1024.0))
            super().__init__(context)

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            x, y = batch
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            self.context.backward(self.scaler.scale(loss))
            self.context.step_optimizer(self.optimizer, scaler=self.scaler, clip_grad_norm=0.5)
            self.scaler.update()
            return {"loss": loss}

    weight = train(Scaled, max_length=Batch(4)).weight
    assert weight == pytest.approx(4 * 0.5 * LineTrial.learning_rate)


def test_clipping_twice_or_to_nothing_is_refused() -> None:
    with pytorch.init() as context:
        trial = LineTrial(context)
        for options in ({"clip_grad_norm": 1.0, "clip_grads": print}, {"clip_grad_norm": 0}):
            with pytest.raises(ValueError, match="clip_grad_norm"):
                context.step_optimizer(trial.optimizer, **options)
        with pytest.raises(TypeError, match="`clip_grad_norm` must be a number, got '1'"):
            context.step_optimizer(trial.optimizer, clip_grad_norm="1")  # type: ignore[arg-type]  # so
