"""A copy of training state in main memory, so that training continues while it is written."""

from __future__ import annotations

import copy
from typing import Any

import torch

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Snapshot:
    """Copies nests of tensors into buffers that are kept and reused for the next copy."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[Any, ...], torch.Tensor] = {}
        self._used: dict[tuple[Any, ...], torch.Tensor] = {}
        self._copied: dict[tuple[Any, ...], torch.Tensor] = {}

    def copy(self, state: Any) -> Any:
        """Return `state` with every tensor copied; a tensor that occurs twice is copied once.

        The result holds until the next call. Buffers that this call did not need are let go.
        """
        self._used, self._copied = {}, {}
        result = self._copy(state, ())
        self._buffers = self._used
        if any(identity[0].type != "cpu" for identity in self._copied):
            torch.accelerator.synchronize()  # the copies were only queued
        return result

    def _copy(self, value: Any, path: tuple[Any, ...]) -> Any:
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, torch.Tensor):
            return self._copy_tensor(value, path)
        if isinstance(value, dict):
            items = {key: self._copy(entry, (*path, key)) for key, entry in value.items()}
            if type(value) is dict:
                return items
            result = copy.copy(value)  # keeps attributes, such as the `_metadata` of a state_dict
            result.update(items)
            return result
        if type(value) in (list, tuple):
            return type(value)(self._copy(entry, (*path, i)) for i, entry in enumerate(value))
        return copy.deepcopy(value)

    def _copy_tensor(self, tensor: torch.Tensor, path: tuple[Any, ...]) -> torch.Tensor:
        tensor = tensor.detach()
        if (
            tensor.layout != torch.strided
            or type(tensor) is not torch.Tensor
            or tensor.is_quantized
            or tensor.is_conj()
            or tensor.is_neg()
        ):
            return tensor.cpu().clone()
        identity = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and identity in self._copied:
            return self._copied[identity]
        buffer = self._buffers.get(path)
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            buffer = torch.empty_like(
                tensor, device="cpu", pin_memory=tensor.device.type == "cuda", requires_grad=False
            )
        buffer.copy_(tensor, non_blocking=True)
        self._used[path] = buffer
        self._copied[identity] = buffer
        return buffer
