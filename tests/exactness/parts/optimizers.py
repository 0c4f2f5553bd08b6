"""Optimizers, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer

Build = Callable[[list[torch.nn.Parameter]], Optimizer]


class MasterCopies(Optimizer):
    """Keeps float32 copies of the parameters, and updates those."""

    def __init__(self, params: Iterable[Any], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure is used
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if "master" not in state:
                    state["master"] = parameter.detach().float().clone()
                state["master"] -= group["lr"] * parameter.grad.float()
                parameter.copy_(state["master"])


class OwnForm(torch.optim.SGD):
    """Saves its state in a form that only itself understands."""

    def state_dict(self) -> dict[str, Any]:
        buffers = [self.state[p].get("momentum_buffer") for p in self._parameters()]
        settings = [{k: v for k, v in g.items() if k != "params"} for g in self.param_groups]
        return {"version": 3, "settings": settings, "momenta": buffers}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        assert state_dict["version"] == 3
        for group, settings in zip(self.param_groups, state_dict["settings"], strict=True):
            group.update(settings)
        for parameter, momentum in zip(self._parameters(), state_dict["momenta"], strict=True):
            if momentum is not None:
                self.state[parameter]["momentum_buffer"] = momentum.to(parameter, copy=True)

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [p for group in self.param_groups for p in group["params"]]


class Scaled(torch.Tensor):
    """Eight-bit codes and a scale in the place of numbers, with hardly an operation."""

    codes: torch.Tensor
    scale: torch.Tensor

    @staticmethod
    def __new__(cls, codes: torch.Tensor, scale: torch.Tensor) -> Scaled:
        made: Scaled = torch.Tensor._make_wrapper_subclass(
            cls, codes.shape, dtype=scale.dtype, device=codes.device
        )
        return made

    def __init__(self, codes: torch.Tensor, scale: torch.Tensor) -> None:
        self.codes, self.scale = codes, scale

    @classmethod
    def of(cls, values: torch.Tensor) -> Scaled:
        scale = values.float().abs().max().clamp(min=1e-8) / 127
        return cls((values.float() / scale).round().to(torch.int8), scale)

    def values(self) -> torch.Tensor:
        return self.codes.float() * self.scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["codes", "scale"], None

    @classmethod
    def __tensor_unflatten__(
        cls, inner: dict[str, torch.Tensor], meta: Any, outer_size: Any, outer_stride: Any
    ) -> Scaled:
        return cls(inner["codes"], inner["scale"])

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch declares it as no class method
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].codes.detach(), args[0].scale.detach())
        raise NotImplementedError(f"Scaled has no {func}")

    def __repr__(self) -> str:  # type: ignore[override]  # tensors have options here
        return f"Scaled({self.codes!r}, {self.scale!r})"


class EightBits(Optimizer):
    """Momentum in eight bits."""

    def __init__(self, params: Iterable[Any], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure is used
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                momentum = parameter.grad.float()
                if "momentum" in state:
                    momentum = momentum + 0.9 * state["momentum"].values()
                state["momentum"] = Scaled.of(momentum)
                parameter -= (group["lr"] * momentum).to(parameter)


class LookAhead(torch.optim.SGD):
    """Keeps what is not about a single parameter beside its state: a count of steps."""

    steps = 0

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure is used
        super().step(closure)
        self.steps += 1
        if self.steps % 3 == 0:
            for group in self.param_groups:
                group["lr"] *= 0.9

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "steps": self.steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.steps = state_dict["steps"]
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "steps"})


def _in_two_groups(params: list[torch.nn.Parameter]) -> Optimizer:
    groups = [{"params": params[:1], "lr": 0.01}, {"params": params[1:], "weight_decay": 0.1}]
    return torch.optim.AdamW(groups, lr=0.05)


OPTIMIZERS: dict[str, Build] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.05),
    "AdamW with amsgrad": lambda p: torch.optim.AdamW(p, lr=0.05, amsgrad=True),
    "AdamW in two groups": _in_two_groups,
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.05),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "foreach Adam": lambda p: torch.optim.Adam(p, lr=0.05, foreach=True),
    "fused AdamW": lambda p: torch.optim.AdamW(p, lr=0.05, fused=True),
    "float32 master copies": lambda p: MasterCopies(p, lr=0.05),
    "an optimizer with its own state_dict": lambda p: OwnForm(p, lr=0.05, momentum=0.9),
    "an optimizer with tensors of its own": lambda p: EightBits(p, lr=0.05),
    "an optimizer that counts its steps": lambda p: LookAhead(p, lr=0.05),
}
