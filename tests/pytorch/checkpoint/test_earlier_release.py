"""A checkpoint that release 0.2 wrote is continued, with all that it holds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from determined import pytorch
from tests.support.resumable import ResumableTrial, checkpoints, digest, train

WRITTEN = Path(__file__).parent / "written_by_0_2"


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    shutil.copytree(WRITTEN, tmp_path / "storage" / "written-by-0-2")
    return tmp_path / "storage"


def test_its_state_is_loaded_bit_for_bit(storage: Path) -> None:
    saved = torch.load(WRITTEN / "state_dict.pth", weights_only=False)
    with pytorch.init(checkpoint_storage=storage, run_id="run") as context:
        trial = ResumableTrial(context)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(4), latest_checkpoint="latest", checkpoint_policy="none"
        )
        assert trial.losses == []  # nothing was left to train
        kinds: dict[str, list[Any]] = {
            "models_state_dict": list(context.models),
            "optimizers_state_dict": list(context.optimizers),
            "lr_schedulers_state_dict": list(context.lr_schedulers),
        }
        for key, parts in kinds.items():
            for part, state in zip(parts, saved[key], strict=True):
                assert digest(part.state_dict()) == digest(state)
    assert trial.callbacks["counter"].batches == 4


def test_the_run_goes_on_and_saves_as_this_release_does(storage: Path) -> None:
    trained = train(storage, 6, latest_checkpoint="latest")
    assert len(trained.losses) == 2
    assert trained.callback == 6
    again = train(storage, 8, latest_checkpoint="latest")
    assert again.callback == 8
    assert [c.metadata["steps_completed"] for c in checkpoints(storage)] == [4, 6, 8]
