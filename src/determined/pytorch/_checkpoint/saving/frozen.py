"""Weights that are not trained, in files of their own, which checkpoints share.

In `state_dict.pth` a small description stands for each such tensor. Which tensors go there follows
from what requires no gradient, whether a file is shared from its bytes alone: every tensor is
hashed at every save, and a file is shared with the last checkpoint if all of its hashes are equal.
A tensor that has changed since goes back into `state_dict.pth`, until it stays the same once more.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from determined._contracts.checkpoint_layout import MODELS, frozen_file, is_frozen_file
from determined._contracts.tensor_hashes import TensorHashes
from determined.pytorch._checkpoint.files.reading import FROZEN
from determined.pytorch._checkpoint.state.hashing import model_path, sha256_of, tensors_in
from determined.pytorch._checks.arguments import check_choice
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._ranks.ddp import inner_module
from determined.pytorch._ranks.fsdp import is_sharded
from determined.storage._durable import for_each

logger = logging.getLogger("determined.pytorch")

ALWAYS, ONCE = "always", "once"
WEIGHT, BUFFER, STATISTICS = "weight", "buffer", "statistics"

# A model's number and the name of a weight in it.
Place = tuple[int, str]

_MOST_FILES = 16  # more are written as one, so that a run of many changes does not collect them
_MOSTLY = 0.5
_WORTH_MENTIONING = 8 << 20


def save_frozen(context: PyTorchTrialContext) -> str:
    """Return what `init`, the storage given to it or the configuration says, in this order."""
    section = (context._exp_conf or {}).get("checkpoint_storage") or {}
    configured = {**section, **context._storage_section}.get("save_frozen")
    check_choice("checkpoint_storage.save_frozen", configured, (None, ALWAYS, ONCE))
    chosen: str = context._save_frozen or configured or ALWAYS
    if chosen == ONCE and any(map(is_sharded, context.models)) and context.distributed.rank == 0:
        logger.warning(
            'Sharded models are written in full with each checkpoint: `save_frozen="once"` is for '
            "models that each rank has whole."
        )
    return chosen


def frozen_places(models: Iterable[nn.Module]) -> dict[Place, str]:
    """Return which tensors of models require no gradient, and of which kind each is.

    Left out is what shares memory with a tensor that is trained.
    """
    modules = [inner_module(model) for model in models if not is_sharded(model)]
    trained = {
        parameter.untyped_storage().data_ptr()
        for module in modules
        for parameter in module.parameters()
        if parameter.requires_grad and parameter.numel()
    }
    found: dict[Place, str] = {}
    for index, model in enumerate(models):
        if is_sharded(model):
            continue
        module = inner_module(model)
        parameters = dict[str, torch.Tensor](module.named_parameters(remove_duplicate=False))
        for name, tensor in [*parameters.items(), *module.named_buffers(remove_duplicate=False)]:
            if not tensor.requires_grad and _address(tensor) not in trained:
                found[index, name] = WEIGHT if name in parameters else _kind(module, name)
    return found


def _kind(module: nn.Module, buffer: str) -> str:
    holder = module.get_submodule(buffer.rpartition(".")[0])
    return STATISTICS if isinstance(holder, _NormBase) else BUFFER


def _address(tensor: torch.Tensor) -> int | None:
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # a subclass without memory of its own
        return None


@dataclasses.dataclass
class FrozenFile:
    """A file with tensors by their paths, and the SHA-256 over all of them."""

    sha256: str
    tensors: dict[str, torch.Tensor]
    is_known: bool  # the last checkpoint has it

    def as_json(self) -> dict[str, Any]:
        return {"sha256": self.sha256, "tensors": list(self.tensors)}


@dataclasses.dataclass
class Last:
    """What is known of the checkpoint before: its id, its hashes."""

    storage_id: str
    hashes: TensorHashes

    def files(self) -> dict[str, tuple[str, list[str]]]:
        """Return the SHA-256 and the tensors of each file with frozen weights."""
        found = {}
        for name, entry in self.hashes.frozen.items():
            sha256, tensors = entry.get("sha256"), entry.get("tensors")
            if is_frozen_file(name) and isinstance(sha256, str) and isinstance(tensors, list):
                found[name] = sha256, tensors
        return found


def take_out(
    tensors: dict[str, Any],
    frozen: Mapping[Place, str],
    hashes: Mapping[str, str],
    last: Last | None,
) -> tuple[dict[str, Any], dict[str, FrozenFile]]:
    """Return the state with descriptions in the place of frozen tensors, and the files of these.

    `hashes` are those of this state, by path.
    """
    candidates = _candidates(tensors, frozen)
    sha256 = dict(zip(candidates, for_each(sha256_of, candidates.values()), strict=True))
    files = {}
    for name, (expected, paths) in ({} if last is None else last.files()).items():
        if all(path in sha256 for path in paths) and _sha256(paths, sha256) == expected:
            files[name] = FrozenFile(expected, {p: candidates[p] for p in paths}, is_known=True)
    if len(files) >= _MOST_FILES:
        files = {}
    held = {path for file in files.values() for path in file.tensors}
    groups: dict[Any, dict[str, torch.Tensor]] = {}
    by_address: dict[int | None, Any] = {}
    for path, tensor in candidates.items():
        if path in held or not _is_stable(path, frozen, hashes, last):
            continue
        group: Any = "new"
        if last is None:  # what belongs together: one that changes must not make others move
            group = by_address.setdefault(_address(tensor), (_place(path)[0], _of(path, frozen)))
        groups.setdefault(group, {})[path] = tensor
    numbers = iter(n for n in range(len(files) + len(groups)) if frozen_file(n) not in files)
    for group in groups.values():
        files[frozen_file(next(numbers))] = FrozenFile(
            _sha256(group, sha256), group, is_known=False
        )
    return _describe(tensors, files), files


def _is_stable(
    path: str, frozen: Mapping[Place, str], hashes: Mapping[str, str], last: Last | None
) -> bool:
    """Say whether a tensor is worth a file: as far as is known it stays the same."""
    if last is None:
        return _of(path, frozen) != STATISTICS
    return _is_same(path, hashes, last.hashes)


def _of(path: str, frozen: Mapping[Place, str]) -> str:
    return frozen[_place(path)]


def _place(path: str) -> Place:
    _, index, name = path.split("/", 2)
    return int(index), name


def _is_same(path: str, now: Mapping[str, str], last: TensorHashes) -> bool:
    return path in now and now[path] == last.tensors.get(path)


def _candidates(tensors: Mapping[str, Any], frozen: Mapping[Place, str]) -> dict[str, torch.Tensor]:
    """Return the frozen tensors of a state, but for those of which others share the memory."""
    found: dict[str, torch.Tensor] = {}
    others: list[Any] = [state for key, state in tensors.items() if key != MODELS]
    for index, model in enumerate(tensors[MODELS]):
        for name, value in model.items():
            is_plain = type(value) in (torch.Tensor, nn.Parameter)
            if (index, name) in frozen and is_plain and value.layout == torch.strided:
                found[model_path(index, name)] = value
            else:
                others.append(value)
    elsewhere = {_address(tensor) for tensor in tensors_in(others)}
    return {path: tensor for path, tensor in found.items() if _address(tensor) not in elsewhere}


def _sha256(paths: Iterable[str], sha256: Mapping[str, str]) -> str:
    text = json.dumps(sorted((path, sha256[path]) for path in paths))
    return hashlib.sha256(text.encode()).hexdigest()


def _describe(tensors: Mapping[str, Any], files: Mapping[str, FrozenFile]) -> dict[str, Any]:
    models = [copy.copy(model) for model in tensors[MODELS]]
    file_of = {path: name for name, file in files.items() for path in file.tensors}
    for index, model in enumerate(models):
        for name in model:
            if (file := file_of.get(model_path(index, name))) is not None:
                model[name] = {FROZEN: file, "tensor": model_path(index, name)}
    return {**tensors, MODELS: models}


def unchanged_bytes(
    tensors: Mapping[str, Any],
    frozen: Mapping[Place, str],
    hashes: Mapping[str, str],
    last: TensorHashes,
) -> tuple[int, int]:
    """Return how many bytes of a state are frozen and the same as last time, and of how many."""
    total = sum(tensor.nbytes for tensor in tensors_in(tensors))
    same = [t for p, t in _candidates(tensors, frozen).items() if _is_same(p, hashes, last)]
    return sum({_address(tensor): tensor.nbytes for tensor in same}.values()), total


def advice(unchanged: int, total: int) -> str | None:
    """Return what to say of a save that was mostly the same bytes, None of others."""
    if unchanged < _WORTH_MENTIONING or unchanged < total * _MOSTLY:
        return None
    return (
        f"{unchanged / 1e6:,.0f} of {total / 1e6:,.0f} MB in this checkpoint are frozen weights, "
        "the same as in the one before. To write these once instead of with every checkpoint: "
        'pytorch.init(save_frozen="once"), or `save_frozen: once` in `checkpoint_storage`.'
    )
