"""What was trained on: hashes of a few samples, by which two runs can tell whether data differ.

Only the first and the last batch of each stretch between two reports are looked at, and of these
one sample, so that it costs nothing that can be measured.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

_MOST_BYTES = 1 << 16  # of each tensor of a sample


class Samples:
    """The first and the last sample since the last checkpoint, on this rank."""

    def __init__(self, training_data: Any, seed: int) -> None:
        self._seed = seed
        self._length = _length(getattr(getattr(training_data, "_loader", None), "dataset", None))
        self._first: tuple[int, str] | None = None
        self._last: tuple[int, str] | None = None

    def note(self, batch_idx: int, batch: Any) -> None:
        """Look at a batch as it was fetched."""
        if self._first is None:
            self._first = batch_idx, hash_sample(batch, 0)
        self._last = batch_idx, hash_sample(batch, -1)

    def take(self) -> dict[str, Any]:
        """Return what is known since the last call, for a checkpoint.

        `first` and `last` are a batch and the hash of its first or last sample.
        """
        found: dict[str, Any] = {"seed": self._seed, "dataset_length": self._length}
        if self._first is not None and self._last is not None:
            found |= {"first": list(self._first), "last": list(self._last)}
        self._first = self._last = None
        return found


def hash_sample(batch: Any, index: int) -> str:
    """Return a hash of one sample of a batch: of the tensors, numbers and texts in it."""
    digest = hashlib.sha256()
    for piece in _pieces(batch, index):
        digest.update(piece)
    return digest.hexdigest()[:16]


def _pieces(value: Any, index: int) -> Iterator[bytes]:
    if isinstance(value, torch.Tensor):
        if value.device.type == "cpu" and value.layout == torch.strided and value.numel():
            yield _bytes_of(value.detach(), index)
        else:  # looking at it would make the processor wait
            yield f"{value.dtype} {tuple(value.shape)}".encode()
    elif isinstance(value, np.ndarray) and value.dtype != object and value.size:
        sample = value if value.ndim == 0 else value[index]
        yield f"{value.dtype} ".encode() + np.ascontiguousarray(sample).tobytes()[:_MOST_BYTES]
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield f"{key} ".encode()
            yield from _pieces(entry, index)
    elif isinstance(value, (list, tuple)):
        is_of_samples = bool(value) and isinstance(value[0], (str, bytes, int, float))
        for entry in [value[index]] if is_of_samples else value:
            yield from _pieces(entry, index)
    elif isinstance(value, (str, bytes, int, float, bool)):
        yield repr(value).encode()[:_MOST_BYTES]
    else:
        yield type(value).__name__.encode()
    yield b";"


def _bytes_of(tensor: torch.Tensor, index: int) -> bytes:
    sample = (tensor if tensor.dim() == 0 else tensor[index]).reshape(-1)
    most = max(1, _MOST_BYTES // tensor.element_size())
    data = sample[:most].resolve_conj().resolve_neg().contiguous().view(torch.uint8)
    return f"{tensor.dtype} {tuple(sample.shape)} ".encode() + data.numpy().tobytes()


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:  # a stream, or one that does not know
        return None
