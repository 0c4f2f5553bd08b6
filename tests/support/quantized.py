"""A tensor subclass such as optimizers with 8-bit states have: it knows hardly any operation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


class Quantized(torch.Tensor):
    """Eight bits for each number, and one scale."""

    codes: torch.Tensor
    scale: torch.Tensor

    @staticmethod
    def __new__(cls, codes: torch.Tensor, scale: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)

    def __init__(self, codes: torch.Tensor, scale: torch.Tensor) -> None:
        assert codes.dtype == torch.int8
        self.codes, self.scale = codes, scale

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Quantized:
        scale = tensor.abs().max() / 100 + 1e-12
        new: Quantized = cls((tensor / scale).round().to(torch.int8), scale)
        return new

    def dequantize(self) -> torch.Tensor:
        return self.codes.float() * self.scale

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["codes", "scale"], {"bits": 8}

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, Any], settings: Any, size: Any, stride: Any) -> Any:
        assert settings == {"bits": 8}
        return Quantized(parts["codes"], parts["scale"])

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # as torch calls it
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].codes, args[0].scale)
        raise NotImplementedError(str(func))


class QuantizedSGD(torch.optim.Optimizer):
    """Keeps its momentum in eight bits."""

    def __init__(self, params: Iterable[Any], lr: float = 0.05) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            old = state["momentum"].dequantize() if state else torch.zeros_like(p)
            state["momentum"] = Quantized.of(old * 0.9 + p.grad)
            p.sub_(state["momentum"].dequantize(), alpha=self.param_groups[0]["lr"])
