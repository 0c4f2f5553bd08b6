"""Training works without anything to validate on."""

from __future__ import annotations

from typing import Any

import pytest

from determined import pytorch
from determined.errors import InvalidExperimentException
from determined.pytorch import Batch, PyTorchTrial
from tests.support.messages import documented
from tests.support.trials import LineTrial, checkpoints, count, recording, train


class ReturnsNone(LineTrial):
    def build_validation_data_loader(self) -> Any:
        return None


class NotOverridden(LineTrial):
    build_validation_data_loader = PyTorchTrial.build_validation_data_loader  # type: ignore[assignment]  # wider
    evaluate_batch = PyTorchTrial.evaluate_batch


@pytest.mark.parametrize("trial_class", [ReturnsNone, NotOverridden])
def test_training_without_validation_trains_and_saves(trial_class: type[LineTrial]) -> None:
    trial = train(recording(trial_class))
    assert trial.weight == train(LineTrial).weight
    assert count(trial.log, "on_validation_start") == 0
    assert list(checkpoints()) == [3]


def test_a_run_without_validation_resumes() -> None:
    train(ReturnsNone, {"run_id": "a"}, max_length=Batch(4))
    trial = train(ReturnsNone, {"run_id": "a"}, max_length=Batch(6), latest_checkpoint="latest")
    assert trial.batches == [4, 5]


def test_what_needs_a_validation_is_told(caplog: pytest.LogCaptureFixture) -> None:
    train(ReturnsNone, validation_period=Batch(1), metric="validation_loss")
    (line,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    documented("`fit` asks for validations, and there is nothing to validate on", line)


def test_data_without_a_way_to_evaluate_it_is_an_error() -> None:
    class Loader(LineTrial):
        evaluate_batch = PyTorchTrial.evaluate_batch

    with pytest.raises(InvalidExperimentException, match="overrides neither") as raised:
        train(Loader)
    documented("there is validation data, and no method for it", str(raised.value))
    assert pytorch.PyTorchTrial.build_validation_data_loader(LineTrial.__new__(LineTrial)) is None
