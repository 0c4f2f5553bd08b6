"""Short values that tell states apart: ranks compare states without sending them."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from determined.pytorch._ranks.fsdp import is_dtensor

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def checksums(tensors: list[torch.Tensor]) -> list[int]:
    """Return a number for each tensor, taken from its bits where it is: nothing else is copied."""
    sums = [_sum_of_bits(tensor) for tensor in tensors]
    together = [number.to(sums[0].device) for number in sums]  # so that one wait is enough
    return [int(number) for number in torch.stack(together).tolist()] if sums else []


def _sum_of_bits(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    bits = tensor.view(_INTEGERS[tensor.element_size()])
    is_aligned = bits.storage_offset() * bits.element_size() % 8 == 0
    if not (bits.is_contiguous() and is_aligned and bits.numel() > 1):
        return _sum(bits)
    # Eight bytes at a time: torch adds small integers slowly.
    flat = bits.view(-1)
    end = len(flat) - len(flat) % (8 // bits.element_size())
    return flat[:end].view(torch.int64).sum() + _sum(flat[end:])


def _sum(bits: torch.Tensor) -> torch.Tensor:
    return bits.sum(dtype=torch.int64)


def fingerprint(state: Any) -> str:
    """Return a text that is the same for equal states, and for parts of the same split tensor."""
    digest = hashlib.blake2b(digest_size=16)
    _add(digest, state)
    return digest.hexdigest()


def _add(digest: Any, value: Any) -> None:
    digest.update(f"{type(value).__qualname__} ".encode())
    if isinstance(value, torch.Tensor):
        digest.update(f"{value.dtype} {tuple(value.shape)} ".encode())
        if not is_dtensor(value):
            digest.update(f"{_number(value)} ".encode())
    elif isinstance(value, np.ndarray) and value.dtype != object:
        digest.update(f"{value.dtype} {value.shape} ".encode() + value.tobytes())
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            _add(digest, key)
            _add(digest, entry)
    elif isinstance(value, (set, frozenset)):
        for entry in sorted(value, key=repr):
            _add(digest, entry)
    elif isinstance(value, (list, tuple)):
        for entry in value:
            _add(digest, entry)
    else:
        digest.update(_bytes(value))
    digest.update(b";")


def _number(tensor: torch.Tensor) -> int | str:
    if tensor.layout is torch.strided and not tensor.is_quantized:
        return int(_sum_of_bits(tensor))
    return repr(tensor)


def _bytes(value: Any) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception:  # what cannot be saved cannot be compared either
        return b"?"


def holds_split_tensors(state: Any) -> bool:
    """Say whether there is a tensor in a state of which this rank holds a part."""
    if isinstance(state, Mapping):
        return any(map(holds_split_tensors, state.values()))
    if isinstance(state, (list, tuple)):
        return any(map(holds_split_tensors, state))
    return is_dtensor(state)
