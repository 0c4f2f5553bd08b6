"""Hashes of states: of each tensor, and of all else in a state together.

A tensor of some size is hashed by sums of its 64-bit words, which takes a tenth of the time of
SHA-256: a save has that to do for its files already. Where a hash decides what is not written again
it is SHA-256.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from determined._contracts.checkpoint_layout import (
    APEX,
    CALLBACKS,
    MODELS,
    MODULES,
    OPTIMIZERS,
    RANDOM,
    SCALER,
    SCHEDULERS,
)
from determined.pytorch._ranks.fsdp import local_part
from determined.storage._durable import for_each

_WORDS = {
    MODELS: "models",
    OPTIMIZERS: "optimizers",
    SCHEDULERS: "schedulers",
    CALLBACKS: "callbacks",
    MODULES: "modules",
    RANDOM: "random",
    SCALER: "scaler",
    APEX: "amp",
}
_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_SMALL = 1 << 16
_COLUMNS = 509  # a prime, unlike the widths of tensors, whose rows and columns may have equal sums
_PIECE = _COLUMNS * 128  # words; stays in the cache for both sums


def model_path(index: int, name: str) -> str:
    """Return where the hashes have a weight of a model."""
    return f"{_WORDS[MODELS]}/{index}/{name}"


def hash_states(tensors: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the hash of each tensor by its path, and of all else in each state."""
    found, others = dict[str, torch.Tensor](), dict[str, Any]()
    for key, value in tensors.items():
        _take(value, _WORDS.get(key, str(key)), found, others)
    for rank, state in enumerate(ranks):
        _take(state, f"ranks/{rank}", found, others)
    return hash_tensors(found) | {path: _digest(others[path]) for path in others}


def hash_rank(rank: int, state: Mapping[str, Any]) -> dict[str, str]:
    """Return the hashes of what only one rank has."""
    found, others = dict[str, torch.Tensor](), dict[str, Any]()
    _take(state, f"ranks/{rank}", found, others)
    return hash_tensors(found) | {path: _digest(others[path]) for path in others}


def hash_tensors(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Return the hash of each tensor."""
    by_memory: dict[tuple[Any, ...], torch.Tensor] = {}
    places = {path: _identity(tensor) for path, tensor in tensors.items()}
    for path, place in places.items():
        by_memory.setdefault(place, tensors[path])
    hashes = dict(zip(by_memory, for_each(_hash, by_memory.values()), strict=True))
    return {path: hashes[place] for path, place in places.items()}


def _identity(tensor: torch.Tensor) -> tuple[Any, ...]:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
        return (id(tensor),)
    return (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device)


def _take(value: Any, path: str, found: dict[str, torch.Tensor], others: dict[str, Any]) -> None:
    """Sort what a state holds: tensors by their paths, and the state without them."""
    is_list = isinstance(value, (list, tuple)) and not path.startswith("ranks/")
    is_named = path in (_WORDS[CALLBACKS],) or (path.startswith("ranks/") and path.count("/") == 1)
    if isinstance(value, Mapping) and is_named:
        entries: Any = value.items()
    elif is_list:
        entries = enumerate(value)
    else:
        others[path] = _without_tensors(value, path, found, set())
        if others[path] is None or others[path] == {}:
            del others[path]
        return
    for key, entry in entries:
        others_path = f"{path}/{_WORDS.get(key, key)}"
        rest = _without_tensors(entry, others_path, found, set())
        if rest is not None and rest != {}:
            others[others_path] = rest


def _without_tensors(value: Any, path: str, found: dict[str, torch.Tensor], above: set[int]) -> Any:
    """Return a state with tensors taken out, None where there was nothing else."""
    if isinstance(value, torch.Tensor):
        found[path] = value
        return None
    if not isinstance(value, (Mapping, list, tuple)) or id(value) in above:
        return value
    above = above | {id(value)}
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    rest = {
        str(key): inner
        for key, entry in items
        if (inner := _without_tensors(entry, f"{path}/{key}", found, above)) is not None
    }
    return rest or None if any(True for _ in value) else type(value).__name__


def _digest(value: Any) -> str:
    digest = hashlib.sha256()
    for piece in _pieces(value, set()):
        digest.update(piece)
    return digest.hexdigest()[:16]


def _pieces(value: Any, above: set[int]) -> Iterator[bytes]:
    yield f"{type(value).__name__} ".encode()
    if isinstance(value, (Mapping, list, tuple, set, frozenset)) and id(value) in above:
        return  # a state that leads back to itself
    above = above | {id(value)}
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _pieces(key, above)
            yield from _pieces(entry, above)
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from _pieces(entry, above)
    elif isinstance(value, (set, frozenset)):
        yield b"".join(sorted(b"".join(_pieces(entry, above)) for entry in value))
    elif isinstance(value, torch.Tensor):
        yield _hash(value).encode()
    elif isinstance(value, (np.ndarray, np.generic)) and value.dtype != object:
        yield f"{value.dtype} {value.shape} ".encode() + value.tobytes()
    elif isinstance(value, (str, bytes, int, float, complex, bool, type(None))):
        yield repr(value).encode()
    else:
        yield _pickled(value)
    yield b";"


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception:  # what cannot be pickled is not in the file either
        return b"?"


# Tensors.


def tensors_in(plain: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a state of plain values, each once."""
    seen: set[int] = set()
    waiting = [plain]
    while waiting:
        value = waiting.pop()
        if id(value) in seen or not isinstance(value, (torch.Tensor, Mapping, list, tuple)):
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            yield value
        else:
            waiting += value.values() if isinstance(value, Mapping) else value


def _hash(tensor: torch.Tensor) -> str:
    data = data_of(tensor)
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
    if data.nbytes > _SMALL:
        data = _add_sums(digest, data)
    digest.update(data.data)
    return digest.hexdigest()[:16]


def _add_sums(digest: hashlib._Hash, data: _Bytes) -> _Bytes:
    """Hash the sums of the rows and of the columns of data as a table; return what is left over.

    One word that changes changes a row and a column, and words that change places change one of
    both.
    """
    end = data.nbytes // (8 * _COLUMNS) * 8 * _COLUMNS
    words = data[:end].view(np.uint64)
    columns = np.zeros(_COLUMNS, np.uint64)
    for start in range(0, len(words), _PIECE):
        table = words[start : start + _PIECE].reshape(-1, _COLUMNS)
        columns += np.add.reduce(table, axis=0)
        digest.update(np.add.reduce(table, axis=1).data)
    digest.update(columns.data)
    return data[end:]


def sha256_of(tensor: torch.Tensor) -> str:
    """Return the SHA-256 of a tensor: of its type, its shape, its layout and its bits."""
    kind = f"{tensor.dtype} {tuple(tensor.shape)} {tuple(tensor.stride())} "
    digest = hashlib.sha256(kind.encode())
    digest.update(data_of(tensor).data)
    return digest.hexdigest()


def data_of(tensor: torch.Tensor) -> _Bytes:
    """Return the bits of a tensor in the order of its elements; a view of its memory if it can."""
    tensor = local_part(tensor.detach())
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        file = io.BytesIO()
        torch.save(tensor, file)
        return np.frombuffer(file.getvalue(), np.uint8)
    tensor = tensor.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    if tensor.stride() != (1,):  # of a single element: such a one counts as contiguous, too
        tensor = tensor.clone(memory_format=torch.contiguous_format)
    return tensor.as_subclass(torch.Tensor).view(torch.uint8).numpy()
