"""What a trial can ask about its run."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from determined import pytorch
from determined.errors import InternalException, InvalidExperimentException
from determined.pytorch import Batch, PyTorchExperimentalContext, PyTorchTrialContext
from tests.support.trials import LineTrial, train

# Settings.


def test_a_bare_context_knows_no_settings(context: PyTorchTrialContext) -> None:
    for getter in (
        context.get_hparams,
        lambda: context.get_hparam("lr"),
        context.get_experiment_config,
        context.get_data_config,
        context.get_global_batch_size,
        context.get_per_slot_batch_size,
    ):
        with pytest.raises(ValueError, match=r"pytorch\.init"):
            getter()
    assert (context.get_experiment_id(), context.get_trial_id()) == (0, 0)
    assert context.get_initial_batch() == 0
    assert isinstance(context.get_trial_seed(), int)
    assert context.device == torch.device("cpu")
    assert (context.models, context.optimizers, context.lr_schedulers) == ([], [], [])
    assert context.profiler is None
    assert isinstance(context.experimental, PyTorchExperimentalContext)
    assert context.distributed.size == 1


def test_settings_are_those_given_to_init(caplog: pytest.LogCaptureFixture) -> None:
    hparams = {"lr": 0.1, "global_batch_size": 32}
    config = {"data": {"path": "/d"}, "reproducibility": {"experiment_seed": 17}}
    with pytorch.init(hparams=hparams, exp_conf=config) as context:
        assert context.get_hparams() is hparams
        assert context.get_hparam("lr") == 0.1
        assert context.get_experiment_config() is config
        assert context.get_data_config() == {"path": "/d"}
        assert context.get_global_batch_size() == context.get_per_slot_batch_size() == 32
        assert context.get_trial_seed() == 17
        with pytest.raises(ValueError, match="momentum"):
            context.get_hparam("momentum")
        assert not [r for r in caplog.records if r.levelname == "WARNING"]
        assert context.get_hparam("global_batch_size") == 32
    assert [r.name for r in caplog.records if r.levelname == "WARNING"] == ["determined.pytorch"]


def test_data_config_may_be_missing() -> None:
    with pytorch.init(exp_conf={}) as context:
        assert context.get_data_config() == {}


@pytest.mark.parametrize("size", ["32", 1.5, {"type": "const", "val": 2}])
def test_batch_size_must_be_a_whole_number(size: Any) -> None:
    with (
        pytest.raises(InvalidExperimentException, match="global_batch_size"),
        pytorch.init(hparams={"global_batch_size": size}),
    ):
        pass


def test_init_takes_keywords_only() -> None:
    with pytest.raises(TypeError):
        pytorch.init({})  # type: ignore[call-arg]


def test_flags_must_be_booleans(context: PyTorchTrialContext) -> None:
    assert not context.get_stop_requested()
    assert context.get_enable_tensorboard_logging()
    for wrong in (1, None, "yes"):
        with pytest.raises(AssertionError):
            context.set_stop_requested(wrong)  # type: ignore[arg-type]
        with pytest.raises(AssertionError):
            context.set_enable_tensorboard_logging(wrong)  # type: ignore[arg-type]
    context.set_enable_tensorboard_logging(False)
    assert not context.get_enable_tensorboard_logging()


def test_stop_request_is_logged(
    context: PyTorchTrialContext, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    context.set_stop_requested(True)
    assert context.get_stop_requested()
    assert [(r.name, r.levelname) for r in caplog.records] == [("determined.pytorch", "INFO")]


# Where training is.


def test_position_is_unknown_before_training(context: PyTorchTrialContext) -> None:
    for getter in (
        context.is_epoch_start,
        context.is_epoch_end,
        context.current_train_epoch,
        context.current_train_batch,
        context._should_communicate_and_update,
    ):
        with pytest.raises(InternalException):
            getter()


def test_position_is_known_while_training() -> None:
    seen: list[tuple[Any, ...]] = []

    class Trial(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            context = self.context
            seen.append(
                (
                    context.current_train_batch(),
                    context.current_train_epoch(),
                    context.is_epoch_start(),
                    context.is_epoch_end(),
                )
            )
            return super().train_batch(batch, epoch_idx, batch_idx)

    train(Trial, max_length=Batch(4))
    assert seen == [
        (0, 0, True, False),
        (1, 0, False, False),
        (2, 0, False, True),
        (3, 1, True, False),
    ]
