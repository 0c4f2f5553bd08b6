"""The parameters and buffers of models, looked up by name.

Modules may put another tensor into a buffer, so tensors are looked up each time, not remembered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from determined.pytorch._ranks.ddp import inner_module


@dataclasses.dataclass(frozen=True)
class ModuleTensor:
    """A parameter or a buffer of a module.

    `key` is its name in the `state_dict` of the model, if it `is_saved` there.
    """

    model_index: int
    key: str
    is_buffer: bool
    is_saved: bool
    holder: Mapping[str, Any]
    name: str

    @property
    def tensor(self) -> torch.Tensor:
        """The tensor that is there now."""
        tensor: torch.Tensor = self.holder[self.name]
        return tensor


def tensors_of(models: Iterable[nn.Module]) -> Iterator[ModuleTensor]:
    """Find every parameter and buffer."""
    for index, model in enumerate(models):
        for prefix, module in inner_module(model).named_modules():
            for holder in (module._parameters, module._buffers):
                for name, tensor in holder.items():
                    if tensor is None:
                        continue
                    yield ModuleTensor(
                        model_index=index,
                        key=f"{prefix}.{name}" if prefix else name,
                        is_buffer=holder is module._buffers,
                        is_saved=name not in module._non_persistent_buffers_set,
                        holder=holder,
                        name=name,
                    )


class BufferCopy:
    """A copy of some tensors, to put back when a batch has spoilt them."""

    def __init__(self, entries: list[ModuleTensor]) -> None:
        self._entries = entries
        self._kept: list[torch.Tensor] = []

    @property
    def is_made(self) -> bool:
        """Whether there is anything to put back."""
        return len(self._kept) == len(self._entries)

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors as they are now."""
        return [entry.tensor for entry in self._entries]

    @torch.no_grad()
    def make(self) -> None:
        """Copy the tensors as they are now."""
        if not self.is_made:
            self._kept = [tensor.clone() for tensor in self.tensors()]
        elif self._kept:
            torch._foreach_copy_(self._kept, self.tensors())

    def kept(self) -> Iterable[tuple[ModuleTensor, torch.Tensor]]:
        """Return the copies, if there are any."""
        return zip(self._entries, self._kept, strict=False)

    def current(self) -> Iterable[tuple[ModuleTensor, torch.Tensor]]:
        """Return the tensors as they are now, with what they are."""
        return zip(self._entries, self.tensors(), strict=True)

    @torch.no_grad()
    def put_back(self, tensors: list[torch.Tensor] | None = None) -> None:
        """Make the tensors what they were, or like others."""
        if self._kept:
            torch._foreach_copy_(self.tensors(), self._kept if tensors is None else tensors)
