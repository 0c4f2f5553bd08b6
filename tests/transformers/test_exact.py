"""A training that is interrupted ends with the weights of one that is not."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the extra `transformers` is not installed")
pytest.importorskip("accelerate", reason="the extra `transformers` is not installed")

from transformers import TrainerCallback, TrainingArguments

from determined import core
from determined.transformers import DetCallback
from tests.support.fine_tuning import (
    Sentences,
    build_arguments,
    build_trainer,
    collate_masked,
    digest,
)

_AUGMENTED: dict[str, Any] = {"train_dataset": Sentences(28, 1, is_augmented=True)}
_MASKED: dict[str, Any] = {"data_collator": collate_masked}
_IS_4 = "group_by_length" in {field.name for field in dataclasses.fields(TrainingArguments)}
_BY_LENGTH: dict[str, Any] = (
    {"group_by_length": True} if _IS_4 else {"train_sampling_strategy": "group_by_length"}
)

# What is special about a training: arguments, parts of the trainer, and whether the trainer by
# itself restores all of it after a kill.
_KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "plain": ({}, {}, True),
    "accumulating": ({"gradient_accumulation_steps": 2}, {}, True),
    "augmented": ({}, _AUGMENTED, False),
    "masked": ({}, _MASKED, False),
    "masked accumulating": ({"gradient_accumulation_steps": 3, "max_steps": 8}, _MASKED, False),
    "global order": (_BY_LENGTH, {}, False),
    "global order, masked": (_BY_LENGTH, _MASKED, False),
}


class _Break(TrainerCallback):
    """Ends training as a kill does: nothing more is saved."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self._step:
            raise KeyboardInterrupt


def train(
    folder: Path, kind: str, *, is_ours: bool, kill_at: int = -1, latest: str | None = None
) -> tuple[str, int]:
    arguments, parts, _ = _KINDS[kind]
    args = build_arguments(folder / "out", resume_from_checkpoint=latest, **arguments)
    with core.init(checkpoint_storage=folder / "storage") as context:
        trainer = build_trainer(args, **parts)
        if is_ours:
            trainer.add_callback(DetCallback(context, args))
        trainer.add_callback(_Break(kill_at))
        try:
            trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        except KeyboardInterrupt:
            return "killed", trainer.state.global_step
    return digest(trainer.model), trainer.state.global_step


@pytest.mark.parametrize("kind", _KINDS)
def test_a_killed_training_ends_as_an_unbroken_one(kind: str, tmp_path: Path) -> None:
    unbroken = train(tmp_path / "a", kind, is_ours=True)
    plain = train(tmp_path / "b", kind, is_ours=False)
    assert unbroken == plain, "the callback changes training"

    # The newest checkpoint is of step 5, in the first epoch of seven steps, or of step 10.
    kill_at = 7 if "accumulating" in kind else 11
    assert train(tmp_path / "c", kind, is_ours=True, kill_at=kill_at) == ("killed", kill_at)
    shutil.rmtree(tmp_path / "c" / "out")
    assert train(tmp_path / "c", kind, is_ours=True, latest="latest") == unbroken

    train(tmp_path / "d", kind, is_ours=False, kill_at=kill_at)
    newest = str(tmp_path / "d" / "out" / f"checkpoint-{kill_at // 5 * 5}")
    resumed = train(tmp_path / "d", kind, is_ours=False, latest=newest)
    assert (resumed == unbroken) is _KINDS[kind][2], "what the trainer restores by itself"
