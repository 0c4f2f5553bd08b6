from __future__ import annotations

import json
import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from determined import pytorch
from determined.errors import InvalidCheckpointException
from determined.pytorch import Batch, PyTorchCallback, PyTorchTrialContext
from determined.pytorch.callbacks import ExponentialMovingAverage
from tests.pytorch.callbacks.trials import NormTrial, copied, equal, fit, saved
from tests.support.messages import documented
from tests.support.trials import LineTrial, the_checkpoint
from tests.support.workers import run_workers

DECAY = 0.75


class Watched(NormTrial):
    """Notes the weights that validations see."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.validated: list[dict[str, torch.Tensor]] = []

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        if batch_idx == 0:
            self.validated.append(copied(self.model))
        return super().evaluate_batch(batch, batch_idx)


def _ema(context: PyTorchTrialContext) -> dict[str, PyTorchCallback]:
    return {"ema": ExponentialMovingAverage(context, DECAY)}


def _average(trial: LineTrial) -> dict[str, torch.Tensor]:
    average: dict[str, torch.Tensor] = trial.callbacks["ema"].state_dict()["models"][0]
    return average


def _moved(first: torch.Tensor, later: list[torch.Tensor]) -> torch.Tensor:
    for tensor in later:
        first = torch.lerp(first, tensor, 1 - DECAY)
    return first


def _initial() -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    with pytorch.init(seed=7) as context:
        return copied(NormTrial(context).model)


def test_validation_sees_the_average_and_training_does_not() -> None:
    trial = fit(_ema, 6, Watched, validation_period=Batch(3))
    plain = fit(lambda _: {}, 6, Watched, validation_period=Batch(3))
    assert isinstance(trial, Watched)
    assert isinstance(plain, Watched)
    assert all(map(equal, trial.after_batch, plain.after_batch))
    assert equal(copied(trial.model), plain.after_batch[-1])
    first = _initial()
    for seen, length in zip(trial.validated, (3, 6), strict=True):
        for name in ("first.weight", "norm.running_mean", "last.bias"):
            history = [state[name] for state in trial.after_batch[:length]]
            assert torch.equal(seen[name], _moved(first[name], history)), name
        assert seen["norm.num_batches_tracked"] == length


def test_average_moves_only_with_updates() -> None:
    trial = fit(_ema, 7, NormTrial, {"aggregation_frequency": 3})
    assert isinstance(trial, NormTrial)
    assert trial.callbacks["ema"].state_dict()["updates"] == 2
    history = [trial.after_batch[index]["last.weight"] for index in (2, 5)]
    assert torch.equal(_average(trial)["last.weight"], _moved(_initial()["last.weight"], history))


@pytest.mark.parametrize("cut", [3, 4])
def test_resumed_average_equals_the_unbroken_one(cut: int) -> None:
    options: dict[str, Any] = {"validation_period": Batch(2), "init": {"aggregation_frequency": 2}}
    unbroken = fit(_ema, 7, Watched, **options)
    fit(_ema, cut, Watched, **options)
    resumed = fit(_ema, 7, Watched, latest_checkpoint=the_checkpoint(cut), **options)
    assert isinstance(unbroken, Watched)
    assert isinstance(resumed, Watched)
    assert equal(_average(resumed), _average(unbroken))
    assert equal(copied(resumed.model), copied(unbroken.model))
    assert equal(resumed.validated[-1], unbroken.validated[-1])


def test_one_callback_serves_two_fits() -> None:
    unbroken = fit(_ema, 6, NormTrial)
    with pytorch.init(seed=7, run_id="two") as context:
        trial = NormTrial(context)
        trial.callbacks = _ema(context)
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(max_length=Batch(4), checkpoint_policy="none")
        trainer.fit(max_length=Batch(6), latest_checkpoint="latest", checkpoint_policy="none")
    assert trial.batches == list(range(6))
    assert equal(_average(trial), _average(unbroken))


class StoppedInValidation(Watched):
    """Gets a signal in the middle of its second validation."""

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        metrics = super().evaluate_batch(batch, batch_idx)
        if len(self.validated) == 2 and batch_idx == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return metrics


def test_signal_in_a_validation_saves_the_training_weights() -> None:
    unbroken = fit(_ema, 7, Watched, validation_period=Batch(2))
    with pytest.raises(SystemExit):
        fit(_ema, 7, StoppedInValidation, validation_period=Batch(2))
    checkpoint = saved(4)
    assert isinstance(unbroken, Watched)
    assert equal(checkpoint["models_state_dict"][0], unbroken.after_batch[3])
    average = checkpoint["callbacks"]["ema"]["models"][0]
    assert equal(average, {name: unbroken.validated[1][name] for name in average})
    resumed = fit(_ema, 7, Watched, validation_period=Batch(2), latest_checkpoint=the_checkpoint(4))
    assert equal(_average(resumed), _average(unbroken))


def test_models_have_their_own_weights_after_an_error_in_a_validation() -> None:
    trials: list[NormTrial] = []

    class Failing(NormTrial):
        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            trials.append(self)
            raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        fit(_ema, 3, Failing)
    assert equal(copied(trials[0].model), trials[0].after_batch[-1])


def test_average_can_be_had_for_a_while() -> None:
    trial = fit(_ema, 3, NormTrial)
    ema = trial.callbacks["ema"]
    assert isinstance(ema, ExponentialMovingAverage)
    before = copied(trial.model)
    with ema.averaged():
        assert torch.equal(trial.model.state_dict()["last.weight"], _average(trial)["last.weight"])
    assert equal(copied(trial.model), before)


def test_warmup_forgets_the_first_weights_sooner() -> None:
    trial = fit(
        lambda context: {"ema": ExponentialMovingAverage(context, 0.99, warmup=True)}, 1, NormTrial
    )
    assert isinstance(trial, NormTrial)
    expected = torch.lerp(_initial()["last.weight"], trial.after_batch[0]["last.weight"], 0.9)
    assert torch.equal(_average(trial)["last.weight"], expected)


def test_half_precision_weights_have_an_average_in_full_precision() -> None:
    class Half(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.model.to(torch.bfloat16)

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            return super().train_batch([t.bfloat16() for t in batch], epoch_idx, batch_idx)

        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            return super().evaluate_batch([t.bfloat16() for t in batch], batch_idx)

    trial = fit(_ema, 2, Half)
    assert _average(trial)["weight"].dtype == torch.float32


def test_average_of_other_models_is_refused() -> None:
    fit(_ema, 2, LineTrial)

    class Bigger(LineTrial):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            other = self.context.wrap_model(torch.nn.Linear(2, 2))
            self.context.models.pop()
            return {"ema": ExponentialMovingAverage(self.context, models=[self.model, other])}

    with pytest.raises(RuntimeError, match="belongs to other models"):
        fit(_ema, 4, Bigger, latest_checkpoint=the_checkpoint(2))


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_decay_outside_its_range_is_refused(decay: float) -> None:
    with pytest.raises(ValueError, match="decay"):
        fit(lambda context: {"ema": ExponentialMovingAverage(context, decay)}, 1)


@pytest.mark.multiprocess
def test_ranks_validate_with_the_same_average_before_and_after_a_resume(tmp_path: Path) -> None:
    (unbroken, resumed), (unbroken_1, resumed_1) = run_workers(2, _train_on_a_rank, str(tmp_path))
    assert equal(unbroken, unbroken_1)
    assert equal(resumed, resumed_1)
    assert equal(unbroken, resumed)


def _train_on_a_rank(directory: str) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    os.chdir(directory)
    os.environ["DET_STORAGE"] = f"{directory}/storage"
    options: dict[str, Any] = {"trial_class": Watched, "validation_period": Batch(3)}
    unbroken = fit(_ema, 6, **options)
    fit(_ema, 4, init={"run_id": "cut"}, **options)
    resumed = fit(_ema, 6, init={"run_id": "cut"}, latest_checkpoint="latest", **options)
    assert resumed.batches == [4, 5]
    assert isinstance(unbroken, Watched)
    assert isinstance(resumed, Watched)
    return _numbers(unbroken.validated[-1]), _numbers(resumed.validated[-1])


def _numbers(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}


# Which weights were measured, and how to get them.


def test_loading_gives_the_trained_weights_or_on_request_the_average(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "determined.pytorch")
    trial = fit(_ema, 6, Watched, validation_period=Batch(3))
    path = Path(os.environ["DET_STORAGE"]) / the_checkpoint(6)
    trained = pytorch.load_trial_from_checkpoint_path(str(path), NormTrial)
    averaged = pytorch.load_trial_from_checkpoint_path(str(path), NormTrial, ema=True)
    named = pytorch.load_trial_from_checkpoint_path(str(path), NormTrial, ema="ema")
    assert isinstance(trial, Watched)
    assert isinstance(trained, NormTrial)
    assert isinstance(averaged, NormTrial)
    assert isinstance(named, NormTrial)
    assert equal(copied(trained.model), trial.after_batch[-1])
    assert equal(copied(averaged.model), trial.validated[-1])
    assert equal(copied(named.model), trial.validated[-1])
    assert json.loads((path / "metadata.json").read_text())["measured"] == "averaged weights"
    (said,) = [r.getMessage() for r in caplog.records if "ema=True" in r.getMessage()]
    documented("Loading the trained weights where the average was measured", said, path.name)


def test_averages_that_a_checkpoint_does_not_have_are_named() -> None:
    fit(lambda _: {}, 1, NormTrial)
    path = str(Path(os.environ["DET_STORAGE"]) / the_checkpoint(1))
    assert "measured" not in json.loads((Path(path) / "metadata.json").read_text())
    with pytest.raises(InvalidCheckpointException) as error:
        pytorch.load_trial_from_checkpoint_path(path, NormTrial, ema=True)
    documented("`ema=True` for a checkpoint without an average", str(error.value))


def test_of_several_averages_one_must_be_named() -> None:
    def two(context: PyTorchTrialContext) -> dict[str, PyTorchCallback]:
        return {"a": ExponentialMovingAverage(context, 0.5), **_ema(context)}

    fit(two, 2, NormTrial)
    path = str(Path(os.environ["DET_STORAGE"]) / the_checkpoint(2))
    with pytest.raises(
        InvalidCheckpointException, match=r"several callbacks keep one: \['a', 'ema'\]"
    ):
        pytorch.load_trial_from_checkpoint_path(path, NormTrial, ema=True)
    pytorch.load_trial_from_checkpoint_path(path, NormTrial, ema="a")
    with pytest.raises(InvalidCheckpointException, match="named 'b'"):
        pytorch.load_trial_from_checkpoint_path(path, NormTrial, ema="b")


def test_the_average_of_one_of_two_models_is_loaded_into_that_one() -> None:
    class Two(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.other = context.wrap_model(torch.nn.Linear(1, 1))

    def of_the_line(context: PyTorchTrialContext) -> dict[str, PyTorchCallback]:
        return {"ema": ExponentialMovingAverage(context, DECAY, models=[context.models[0]])}

    def of_the_other(context: PyTorchTrialContext) -> dict[str, PyTorchCallback]:
        return {"ema": ExponentialMovingAverage(context, DECAY, models=[context.models[1]])}

    for number, callbacks in enumerate((of_the_line, of_the_other), start=2):
        with pytorch.init() as context:
            trial = Two(context)
            trial.callbacks = callbacks(context)
            pytorch.Trainer(trial, context).fit(max_length=Batch(number))
        path = str(Path(os.environ["DET_STORAGE"]) / the_checkpoint(number))
        loaded = pytorch.load_trial_from_checkpoint_path(path, Two, ema=True)
        assert isinstance(loaded, Two)
        assert equal(copied(loaded.other), copied(trial.other))  # never trained
        assert (loaded.weight == trial.weight) == (callbacks is of_the_other)


def test_the_average_is_exported_on_request() -> None:
    trial = fit(_ema, 6, Watched, export="safetensors-ema")
    assert isinstance(trial, Watched)
    file = Path(os.environ["DET_STORAGE"]) / the_checkpoint(6) / "model_0.safetensors"
    assert equal(load_file(file), trial.validated[-1])
    with safe_open(file, "pt") as opened:
        assert opened.metadata() == {"format": "pt", "weights": "averaged"}
    with pytest.raises(ValueError, match="ExponentialMovingAverage") as error:
        fit(lambda _: {}, 1, NormTrial, export="safetensors-ema")
    documented("`export='safetensors-ema'` without such a callback", str(error.value))


def test_the_last_line_says_what_validations_measured(capfd: pytest.CaptureFixture[str]) -> None:
    fit(_ema, 1, NormTrial, progress=True)
    assert "Measured    the averaged weights; load them with ema=True" in capfd.readouterr().err
