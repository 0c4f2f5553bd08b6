"""A copy of training state in main memory, so that training continues while it is written."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from determined.pytorch._checkpoint.state.copying import (
    Path,
    copy_state,
    copy_tensor,
    is_made_of_tensors,
    remake,
)

_ALIGNMENT = 16  # no element of a tensor is larger


class Snapshot:
    """Copies states into buffers that are kept and reused for the next copy."""

    def __init__(self) -> None:
        self._buffers: dict[Path, torch.Tensor] = {}
        self._queued: list[torch.Event] = []

    def copy(self, state: Any) -> Any:
        """Return `state` with every tensor copied; tensors that share memory share their copy.

        The result holds until the next call. Buffers that this call did not need are let go.
        """
        result = self.begin_copy(state)
        self.wait()
        return result

    def begin_copy(self, state: Any) -> Any:
        """Like `copy`, but nobody may read the result before `wait`.

        Copies from a device are queued behind the work that it has, and before all later work: the
        state may be changed there at once.
        """
        self.wait()
        copying = _Copying(self._buffers)
        try:
            result = copy_state(state, copying.replace)
            copying.finish()
        finally:
            self._queued = [event for device in copying.devices for event in _end_of_queue(device)]
        self._buffers = copying.used
        return result

    def wait(self) -> None:
        """Wait until the last copy is complete; from any thread."""
        for event in self._queued:
            event.synchronize()
        self._queued = []


def _end_of_queue(device: torch.device) -> list[torch.Event]:
    """Return what to wait for until a device has done all that it was asked to do so far."""
    if device.type == "mps":  # has no events for this
        torch.accelerator.synchronize()
        return []
    return [torch.accelerator.current_stream(device).record_event()]


class _Copying:
    """One copy of the tensors of one state."""

    def __init__(self, buffers: dict[Path, torch.Tensor]) -> None:
        self._buffers = buffers
        self.used: dict[Path, torch.Tensor] = {}
        self.devices: set[torch.device] = set()  # from which copies are queued
        self._copied: dict[tuple[Any, ...], torch.Tensor] = {}
        self._whole: dict[int, torch.Tensor] = {}  # copies of whole storages, by their address
        self._partial: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}

    def replace(self, value: Any, path: Path) -> Any:
        """Copy a tensor; leave everything else."""
        return self._tensor(value, path) if isinstance(value, torch.Tensor) else value

    def _tensor(self, tensor: torch.Tensor, path: Path) -> torch.Tensor:
        if is_made_of_tensors(tensor):
            return remake(tensor, lambda part, name: self._tensor(part, (*path, name)))
        kind = type(tensor)
        if kind not in (torch.Tensor, nn.Parameter) or tensor.__dict__:
            return copy_tensor(tensor)
        new = self._plain(tensor.detach(), path)
        if kind is nn.Parameter:
            return self._alias(tensor, new, nn.Parameter(new.detach(), tensor.requires_grad))
        if tensor.requires_grad:
            return self._alias(tensor, new, new.detach().requires_grad_())
        return new

    def _alias(self, tensor: torch.Tensor, new: torch.Tensor, alias: torch.Tensor) -> torch.Tensor:
        pairs = self._partial.get(tensor.untyped_storage().data_ptr(), [])
        if any(new is target for _, target in pairs):  # its memory comes later
            pairs.append((tensor.detach(), alias))
        return alias

    def _plain(self, tensor: torch.Tensor, path: Path) -> torch.Tensor:
        if (
            tensor.layout != torch.strided
            or tensor.is_quantized
            or tensor.is_conj()
            or tensor.is_neg()
            or tensor.is_meta
            or not tensor.numel()
        ):
            return tensor.cpu().clone()
        identity = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if identity in self._copied:
            return self._copied[identity]
        storage = tensor.untyped_storage()
        if storage.nbytes() == tensor.nbytes and tensor.storage_offset() == 0:
            buffer = self._buffer(tensor, path)
            if buffer.stride() == tensor.stride():
                self._whole[storage.data_ptr()] = self._copied[identity] = buffer
                return self._fill(buffer, tensor)
        # What else the state has of this storage is not known yet.
        new = self._copied[identity] = torch.empty(0, dtype=tensor.dtype)
        self._partial.setdefault(storage.data_ptr(), []).append((tensor, new))
        return new

    def finish(self) -> None:
        """Copy what is a part of its storage: alone, or together with the other parts."""
        for address, pairs in self._partial.items():
            tensors = [tensor for tensor, _ in pairs]
            path = ("storage", tensors[0].device, address)
            if address in self._whole:
                source, start = self._whole[address].untyped_storage(), 0
            elif len({(t.data_ptr(), t.shape, t.stride(), t.dtype) for t in tensors}) == 1:
                buffer = self._fill(self._buffer(tensors[0], path), tensors[0])
                for _, new in pairs:
                    new.data = buffer
                continue
            else:
                span, start = _span(tensors)
                source = self._fill(self._buffer(span, path), span).untyped_storage()
            for tensor, new in pairs:
                offset = tensor.storage_offset() - start // tensor.element_size()
                view = torch.empty(0, dtype=tensor.dtype)
                new.data = view.set_(source, offset, tensor.shape, tensor.stride())

    def _buffer(self, tensor: torch.Tensor, path: Path) -> torch.Tensor:
        while path in self.used:  # keys of a dictionary have the path of the dictionary
            path = (*path, "next")
        buffer = self._buffers.get(path)
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            buffer = torch.empty_like(
                tensor,
                device="cpu",
                pin_memory=tensor.device.type not in ("cpu", "mps"),
                requires_grad=False,
            )
        self.used[path] = buffer
        return buffer

    def _fill(self, buffer: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_cpu:
            self.devices.add(tensor.device)
        return buffer.copy_(tensor, non_blocking=True)


def _span(tensors: list[torch.Tensor]) -> tuple[torch.Tensor, int]:
    """Return the bytes of a storage that these views of it reach, and where they start."""
    starts = [t.storage_offset() * t.element_size() for t in tensors]
    ends = [start + _reach(t) for start, t in zip(starts, tensors, strict=True)]
    start = min(starts) // _ALIGNMENT * _ALIGNMENT
    span = torch.empty(0, dtype=torch.uint8, device=tensors[0].device)
    size = (max(ends) - start,)
    return span.set_(tensors[0].untyped_storage(), start, size, (1,)), start


def _reach(tensor: torch.Tensor) -> int:
    """Return how many bytes lie between the first byte of a tensor and its last one."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((size - 1) * stride for size, stride in steps)) * tensor.element_size()
