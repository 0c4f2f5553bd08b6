"""What a tool decides about a script: `init` and `fit` obey, and are watched without a change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_args

import pytest
import torch

from determined import pytorch
from determined.pytorch._instrumentation.observer import Observer, Part
from determined.pytorch._instrumentation.overrides import Overrides, overriding
from determined.pytorch._plan import FitPlan
from tests.support.trials import LineTrial, checkpoints, train

P = ParamSpec("P")
R = TypeVar("R")


class _Noting(Observer):
    """Notes which parts were called, and the samples of each batch."""

    def __init__(self) -> None:
        self.parts: set[Part] = set()
        self.samples: list[list[int]] = []

    def watch(self, part: Part, call: Callable[P, R]) -> Callable[P, R]:
        def noted(*args: P.args, **kwargs: P.kwargs) -> R:
            self.parts.add(part)
            return call(*args, **kwargs)

        return noted

    def indices(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self.samples.append(list(batch))
            yield batch


class _Tool(Overrides):
    def __init__(self, storage: Path) -> None:
        self.noting = _Noting()
        self.latest_checkpoint: str | None = None
        self._storage = storage

    def init(self, options: dict[str, Any]) -> dict[str, Any]:
        return {**options, "checkpoint_storage": self._storage}

    def fit(self, plan: FitPlan) -> FitPlan:
        return dataclasses.replace(plan, max_length=pytorch.Batch(4))

    def observer(
        self, trial: pytorch.PyTorchTrial, context: pytorch.PyTorchTrialContext
    ) -> Observer:
        return self.noting

    def after_fit(self, latest_checkpoint: str | None) -> None:
        self.latest_checkpoint = latest_checkpoint


class _Trial(LineTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context)
        self.callbacks = {"counting": pytorch.PyTorchCallback(), "hook": _Hook()}
        decay = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        context.wrap_lr_scheduler(decay, pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH)


class _Hook(pytorch.PyTorchCallback):
    def on_training_start(self) -> None:
        pass


def test_a_tool_decides_what_init_and_fit_of_a_script_do(tmp_path: Path) -> None:
    tool = _Tool(tmp_path / "of the tool")
    with overriding(tool):
        train(init={"seed": 1, "checkpoint_storage": tmp_path / "of the script"})
    assert set(checkpoints(tmp_path / "of the tool")) == {4}
    assert not (tmp_path / "of the script").exists()
    assert tool.latest_checkpoint is not None
    assert Path(tool.latest_checkpoint).parent == tmp_path / "of the tool"


@pytest.mark.parametrize("profiling_enabled", [False, True])
def test_an_observer_sees_every_part_and_changes_nothing(
    tmp_path: Path, profiling_enabled: bool
) -> None:
    alone = train(_Trial, {"seed": 1}, max_length=pytorch.Batch(4))
    tool = _Tool(tmp_path)
    with overriding(tool):
        watched = train(_Trial, {"seed": 1}, profiling_enabled=profiling_enabled)
    assert tool.noting.parts == set(get_args(Part))
    assert tool.noting.samples[:4] == [[0, 1], [2, 3], [4, 5], [0, 1]]
    assert torch.equal(*(trial.model.state_dict()["weight"] for trial in (alone, watched)))
