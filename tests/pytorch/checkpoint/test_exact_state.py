"""A run that was stopped ends with the bits of one that was not, whatever its state consists of."""

from __future__ import annotations

import collections
import dataclasses
import enum
import logging
import pathlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from determined import pytorch
from tests.support.cut_runs import Parts, ends_alike
from tests.support.quantized import QuantizedSGD


@pytest.fixture(autouse=True)
def silence(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What is exact is silent."""
    caplog.set_level(logging.INFO)
    yield
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert [r.getMessage() for r in warnings if r.name.startswith("determined")] == []


# Schedulers.


class AttrDict(dict[str, Any]):
    """As many projects have it."""

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class Custom(lr_scheduler.LRScheduler):
    """Keeps what a user may keep: settings, functions, another scheduler."""

    def __init__(self, optimizer: Any) -> None:
        self.hparams = AttrDict(gamma=0.9, nested=AttrDict(every=2))
        self.curve = lambda step: self.hparams.gamma ** (step // self.hparams.nested.every)
        self.bound = self._scaled
        self.after = lr_scheduler.MultiStepLR(optimizer, [3, 5, 5], gamma=0.5)
        super().__init__(optimizer)

    def _scaled(self, rate: Any) -> Any:
        curve: Any = self.curve
        return rate * curve(self.last_epoch)

    def get_lr(self) -> list[Any]:
        return [self.bound(rate) for rate in self.base_lrs]

    def step(self, epoch: int | None = None) -> None:
        super().step()
        if self.last_epoch > 2:
            self.after.step()


class Growing:
    """A callable object, as `LambdaLR` saves it."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, step: int) -> float:
        self.calls += 1
        return 1 / self.calls


def chained(optimizer: Any) -> Any:
    return lr_scheduler.ChainedScheduler(
        [lr_scheduler.MultiStepLR(optimizer, [2, 5]), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    )


def sequential(optimizer: Any) -> Any:
    return lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.LinearLR(optimizer), lr_scheduler.MultiStepLR(optimizer, [2, 4])],
        milestones=[3],
    )


SCHEDULERS: dict[str, Any] = {
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [6, 9, 9]),
    "SequentialLR": sequential,
    "ChainedScheduler": chained,
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, Growing()),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=2),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=3, mode="exp_range"),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3, 2),
    "SWALR": lambda o: torch.optim.swa_utils.SWALR(o, 0.05, 4),
    "custom": Custom,
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_continue_as_they_were(tmp_path: Path, name: str) -> None:
    class Trial(Parts):
        def build_schedulers(self, optimizer: Any) -> list[Any]:
            return [SCHEDULERS[name](optimizer)]

    ends_alike(tmp_path, Trial)


# Optimizers.


class Master(torch.optim.Optimizer):
    """Keeps the weights in float32, with notes in containers of all kinds."""

    def __init__(self, params: Iterable[Any], lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr, "name": "master", "seen": collections.Counter()})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure
        for group in self.param_groups:
            group["seen"]["steps"] += 1
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["master"] = p.detach().float().clone()
                    state["text"] = "ab"
                    state["recent"] = collections.deque(maxlen=2)
                    state["array"] = np.zeros(2)
                state["master"] -= group["lr"] * p.grad.float() * len(state["text"])
                state["recent"].append(float(p.grad.float().sum()))
                state["array"] += 1
                p.copy_(state["master"] + sum(state["recent"]) * 1e-3)


class OwnFormat(torch.optim.SGD):
    """Saves groups under keys of its own."""

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        return {
            "momenta": [entry["momentum_buffer"] for entry in state["state"].values()],
            "param_groups": [{"rate": group["lr"]} for group in self.param_groups],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        parameters = [p for group in self.param_groups for p in group["params"]]
        for p, momentum in zip(parameters, state_dict["momenta"], strict=True):
            self.state[p]["momentum_buffer"] = momentum
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            group["lr"] = saved["rate"]


class ThroughTorch(Master):
    """Overrides the methods, and calls torch's, which cast."""

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "more": 1}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        assert state_dict.pop("more") == 1
        for entry in state_dict["state"].values():
            entry.pop("array")  # torch cannot load these at all
            entry["text"] = ["a", "b"]
            entry["recent"] = list(entry["recent"])
        super().load_state_dict(state_dict)
        for entry in self.state.values():
            entry["text"] = "ab"
            entry["recent"] = collections.deque(entry["recent"], maxlen=2)
            entry["array"] = np.zeros(2)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure
        super().step()
        for entry in self.state.values():
            entry["array"] = np.zeros(2)


class Low(Parts):
    dtype = torch.bfloat16


OPTIMIZERS: dict[str, Any] = {
    "NAdam": torch.optim.NAdam,
    "Adafactor": torch.optim.Adafactor,
    "fused Adam": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01), fused=True),
    "capturable off": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "Rprop": torch.optim.Rprop,
    "ASGD": torch.optim.ASGD,
    "master": Master,
    "through torch": ThroughTorch,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_state_keeps_its_types(tmp_path: Path, name: str) -> None:
    class Trial(Low):
        def build_optimizer(self, parameters: Iterable[Any]) -> Any:
            return OPTIMIZERS[name](parameters)

    ends_alike(tmp_path, Trial)


def test_float32_state_of_bfloat16_weights_stays_float32(tmp_path: Path) -> None:
    class Float32Momentum(torch.optim.SGD):
        @torch.no_grad()
        def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure
            for p in self.param_groups[0]["params"]:
                buffer = self.state[p].setdefault("momentum", torch.zeros(p.shape, device=p.device))
                assert buffer.dtype == torch.float32
                buffer.mul_(0.97).add_(p.grad.float())
                p.add_(buffer.to(p.dtype), alpha=-0.05)

    class Trial(Low):
        def build_optimizer(self, parameters: Iterable[Any]) -> Any:
            return Float32Momentum(parameters)

    ends_alike(tmp_path, Trial, stops=(2, 4, 7, 9))


def test_an_optimizer_with_a_format_of_its_own_judges_itself(tmp_path: Path) -> None:
    class Trial(Parts):
        def build_optimizer(self, parameters: Iterable[Any]) -> Any:
            return OwnFormat(parameters, lr=0.1, momentum=0.9)

    ends_alike(tmp_path, Trial)


def test_states_of_a_tensor_subclass_are_saved_and_loaded(tmp_path: Path) -> None:
    class Trial(Parts):
        def build_optimizer(self, parameters: Iterable[Any]) -> Any:
            return QuantizedSGD(parameters)

    ends_alike(tmp_path, Trial)


# Modules.


class Changing(nn.Module):
    """Changes all that a `state_dict` does not have, while it trains."""

    steps: torch.Tensor
    unsaved: torch.Tensor
    late: torch.Tensor | None
    kept_late: torch.Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)
        self.drop = nn.Dropout(0.4)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64), persistent=False)
        self.register_buffer("unsaved", torch.ones(4), persistent=False)
        self.register_buffer("mask", torch.ones(4), persistent=False)
        self.register_buffer("late", None, persistent=False)
        self.register_buffer("kept_late", None)
        self.register_buffer("growing", torch.zeros(1))
        self.last.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> Any:
        if self.training:
            self.steps += 1
            self.unsaved = self.unsaved * 0.9
            self.growing = torch.zeros(int(self.steps) + 1)
            if self.steps == 3:
                self.norm.eval()
                self.last.requires_grad_(True)
                self.first.weight.requires_grad_(False)
            if self.steps == 5:
                self.late = torch.full((4,), 0.5)
                self.kept_late = torch.full((4,), 0.7)
                self.drop.eval()
        late = 1 if self.late is None else self.late
        kept = 1 if self.kept_late is None else self.kept_late
        return self.last(self.drop(self.norm(self.first(x))) * self.unsaved * late * kept)


@pytest.mark.parametrize("stops", [(2, 4, 6), (1,), (5, 7)])
def test_what_training_changes_of_a_module_is_restored(
    tmp_path: Path, stops: tuple[int, ...]
) -> None:
    class Trial(Parts):
        def build_model(self) -> nn.Module:
            return Changing()

    ends_alike(tmp_path, Trial, stops, validation_period=pytorch.Batch(3))


def test_a_module_as_it_was_built_adds_nothing_to_a_checkpoint(tmp_path: Path) -> None:
    class Trial(Parts):
        def build_model(self) -> nn.Module:
            model = super().build_model()
            model[0].requires_grad_(False)  # type: ignore[index]  # of a Sequential
            model.register_buffer("mask", torch.ones(1000), persistent=False)
            return model

    ends_alike(tmp_path, Trial, (3,))
    for file in tmp_path.glob("*/*/state_dict.pth"):
        assert "modules" not in torch.load(file, weights_only=True)


# Callbacks.


class Color(enum.Enum):
    RED = 1


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Note:
    text: str
    values: list[Any]


class Many(pytorch.PyTorchCallback):
    """Counts in containers of every kind."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {
            "counter": collections.Counter(a=1),
            "default": collections.defaultdict(list),
            "ordered": collections.OrderedDict(b=1, a=2),
            "recent": collections.deque([0, 1], maxlen=3),
            "attr": AttrDict(n=0),
            "point": Point(0, torch.zeros(2)),
            "note": Note("n", []),
            "set": {1, 2},
            "frozen": frozenset({(1, Color.RED)}),
            "keys": {Color.RED: 0, (1, 2): 0, None: 0},
            "path": pathlib.Path("a/b"),
            "numpy": np.random.default_rng(1),
            "torch": torch.Generator().manual_seed(2),
            "tensor": torch.zeros(3, requires_grad=True),
        }
        self.state["view"] = self.state["point"].y[1:]

    def on_training_batch_end(
        self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
    ) -> None:
        state = self.state
        state["counter"]["batches"] += 1
        state["default"][batch_idx % 3].append(state["numpy"].random())
        state["ordered"].move_to_end("b" if batch_idx % 2 else "a")
        state["recent"].append(batch_idx)
        state["attr"].n += 1
        state["view"] += torch.rand((), generator=state["torch"])
        state["note"].values.append(state["attr"])
        state["keys"][Color.RED] += 1

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, value in self.state.items():
            assert type(state_dict[name]) is type(value), name
        assert state_dict["recent"].maxlen == 3
        assert state_dict["default"].default_factory is list
        assert state_dict["tensor"].requires_grad
        assert all(value is state_dict["attr"] for value in state_dict["note"].values)
        self.state = state_dict


def test_callbacks_keep_their_containers(tmp_path: Path) -> None:
    class Trial(Parts):
        def make_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
            return {"many": Many()}

    ends_alike(tmp_path, Trial)
