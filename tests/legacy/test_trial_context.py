"""Names that older trial code uses, and contexts made by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import determined
from determined import LegacyTrial, TrialContext

_CONFIG: dict[str, Any] = {
    "hyperparameters": {"lr": {"type": "const", "val": 0.1}, "global_batch_size": 8},
    "data": {"path": "/d"},
    "reproducibility": {"experiment_seed": 5},
}


def test_a_context_can_be_made_from_a_configuration(tmp_path: Path) -> None:
    context = TrialContext.from_config(_CONFIG)
    assert context.get_hparams() == {"lr": 0.1, "global_batch_size": 8}
    assert context.get_hparam("lr") == 0.1
    assert context.get_data_config() == {"path": "/d"}
    assert context.get_experiment_config() == _CONFIG
    assert context.get_trial_seed() == 5
    assert (context.get_experiment_id(), context.get_trial_id()) == (0, 0)
    assert context.get_initial_batch() == 0
    assert context.distributed.size == 1
    assert context.get_tensorboard_path().is_dir()
    assert len(context.env.container_gpus) <= 1


def test_unknown_hyperparameters_are_named(caplog: pytest.LogCaptureFixture) -> None:
    context = TrialContext.from_config(_CONFIG)
    with pytest.raises(
        ValueError, match=r"'depth'; the hyperparameters are \['global_batch_size', 'lr'\]"
    ):
        context.get_hparam("depth")
    assert context.get_hparam("global_batch_size") == 8
    assert "get_per_slot_batch_size" in caplog.text


def test_a_stop_can_be_requested() -> None:
    context = TrialContext.from_config({})
    assert not context.get_stop_requested()
    context.set_stop_requested(True)
    assert context.get_stop_requested()
    with pytest.raises(AssertionError, match="must be True or False"):
        context.set_stop_requested(1)  # type: ignore[arg-type]  # the wrong type is the point


def test_trials_must_be_completed_by_subclasses() -> None:
    with pytest.raises(TypeError, match="abstract"):
        LegacyTrial(None)  # type: ignore[abstract]  # that is what is tested
    with pytest.raises(TypeError, match="abstract"):
        determined.TrialController()  # type: ignore[abstract]  # that is what is tested


def test_a_local_environment_has_services_and_a_description(tmp_path: Path) -> None:
    core_context, env = determined._make_local_execution_env(
        managed_training=True,
        test_mode=True,
        config=_CONFIG,
        checkpoint_dir=str(tmp_path),
        hparams={"lr": 1},
        limit_gpus=0,
    )
    assert core_context.checkpoint.storage_base == tmp_path
    assert env.hparams == {"lr": 1}
    assert (env.managed_training, env.test_mode, env.use_gpu) == (True, True, False)


def test_local_execution_happens_elsewhere(tmp_path: Path) -> None:
    before, first = Path.cwd(), sys.path[0]
    with determined._local_execution_manager(tmp_path):
        assert (Path.cwd(), sys.path[0]) == (tmp_path, "")
    assert (Path.cwd(), sys.path[0]) == (before, first)
