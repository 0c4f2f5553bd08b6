"""Training state of which every rank holds a part <-> files.

In `state_dict.pth` a small description stands for each split tensor, and each rank writes its rows
of all of them into `shards/rank_<n>.pth`, as `{key: (first row, rows)}`. Any number of ranks can
read that: each the rows that it needs.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from determined._contracts.checkpoint_layout import shard_files
from determined.errors import InvalidCheckpointException
from determined.pytorch._checkpoint.files.reading import read_dict
from determined.pytorch._checkpoint.state.copying import Path, copy_state
from determined.pytorch._ranks.fsdp import is_dtensor, is_sharded

# The first row of a part, and the part.
Part = tuple[int, torch.Tensor]

_MARK = "determined.shard"


# Writing.


def split(state: Any, root: str) -> tuple[Any, dict[str, Part]]:
    """Return the state with descriptions in the place of split tensors, and this rank's parts.

    Every rank must call it with a state of the same form. The key of a part is the Python
    expression that leads to it from `root`.
    """
    parts: dict[str, Part] = {}

    def describe(value: Any, steps: Path) -> Any:
        if not is_dtensor(value):
            return value
        path, value = _expression(root, steps), value.detach()
        if not _is_split_by_rows(value):
            return value.full_tensor().cpu()
        rank, size = value.device_mesh.get_local_rank(), value.device_mesh.size()
        start, stop = _rows(value.shape[0], rank, size)
        if stop > start:
            parts[path] = start, _compact(value.to_local())
        return {
            _MARK: path,
            "shape": list(value.shape),
            "dtype": str(value.dtype).removeprefix("torch."),
        }

    return copy_state(state, describe), parts


def gather(state: Any) -> Any:
    """Return the state with all split tensors whole, in main memory; every rank must call it."""
    return copy_state(
        state, lambda value, _: value.full_tensor().cpu() if is_dtensor(value) else value
    )


def _is_split_by_rows(tensor: Any) -> bool:
    return len(tensor.placements) == 1 and bool(tensor.placements[0].is_shard(0))


def _rows(length: int, rank: int, size: int) -> tuple[int, int]:
    """Return the rows of a rank: as many as of any other, fewer or none on the last ones."""
    chunk = -(-length // size)
    return min(rank * chunk, length), min((rank + 1) * chunk, length)


def _compact(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.cpu().contiguous()
    # torch.save writes the whole memory behind a tensor, which may be padded.
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _expression(root: str, path: Path) -> str:
    return root + "".join(f"[{step!r}]" for step in path)


# Reading.


def join(
    path: pathlib.Path,
    state: Any,
    models: list[nn.Module] | None = None,
    allow_pickle: bool = False,
    **load_options: Any,
) -> Any:
    """Return the state with tensors in the place of descriptions.

    They are whole, or, if one of these models is split, split in the same way.
    """
    mesh = _mesh(models or [])
    files: dict[str, list[Part]] | None = None

    def tensor_of(value: Any, _: Path) -> Any:
        nonlocal files
        if not isinstance(value, dict) or _MARK not in value:
            return value
        if files is None:
            files = _read_parts(path, allow_pickle, load_options)
        key, shape, dtype = _checked_description(path, value)
        parts = _checked_parts(path, key, shape, dtype, files.get(key, []))
        if mesh is None:
            return _assemble(parts, 0, shape[0], shape, dtype)
        start, stop = _rows(shape[0], mesh.get_local_rank(), mesh.size())
        return _from_rows(_assemble(parts, start, stop, shape, dtype), mesh, shape)

    return copy_state(state, tensor_of)


def _read_parts(
    path: pathlib.Path, allow_pickle: bool, load_options: Mapping[str, Any]
) -> dict[str, list[Part]]:
    found: dict[str, list[Part]] = {}
    for file in shard_files(path):
        for key, part in read_dict(file, allow_pickle, **load_options).items():
            if not isinstance(part, tuple) or list(map(type, part)) != [int, torch.Tensor]:
                raise InvalidCheckpointException(
                    f"{file} should hold a row number and a tensor for {str(key)[:80]!r}."
                )
            found.setdefault(key, []).append(part)
    return found


def _checked_description(
    path: pathlib.Path, value: Mapping[str, Any]
) -> tuple[str, list[int], torch.dtype]:
    key, shape = value[_MARK], value.get("shape")
    dtype = getattr(torch, str(value.get("dtype")), None)
    if (
        not isinstance(key, str)
        or not isinstance(shape, list)
        or not shape
        or not all(type(length) is int and length >= 0 for length in shape)
        or not isinstance(dtype, torch.dtype)
    ):
        raise InvalidCheckpointException(
            f"{path} describes a split tensor as {str(dict(value))[:200]}, which is no shape and "
            "type."
        )
    return key, shape, dtype


def _checked_parts(
    path: pathlib.Path, key: str, shape: list[int], dtype: torch.dtype, parts: list[Part]
) -> list[Part]:
    """Return the parts in order; they must be what they claim and leave no row out."""
    parts = sorted(parts, key=lambda part: part[0])
    next_row = 0
    for start, rows in parts:
        # Only a contiguous tensor has as many bytes in the file as its shape says.
        fits = rows.dim() == len(shape) and list(rows.shape[1:]) == shape[1:]
        if start != next_row or not fits or rows.dtype != dtype or not rows.is_contiguous():
            break
        next_row += len(rows)
    if next_row != shape[0]:
        raise InvalidCheckpointException(
            f"The files in {path / 'shards'} do not add up to {key}, {dtype} of shape {shape}: "
            f"rows fit up to {next_row}. Was a file lost, or replaced by one from another run?"
        )
    return parts


def _assemble(
    parts: list[Part], start: int, stop: int, shape: list[int], dtype: torch.dtype
) -> torch.Tensor:
    device = parts[0][1].device if parts else "cpu"
    rows = torch.empty((stop - start, *shape[1:]), dtype=dtype, device=device)
    for first, part in parts:
        low, high = max(start, first), min(stop, first + len(part))
        if low < high:
            rows[low - start : high - start] = part[low - first : high - first]
    return rows


# Putting state into models and optimizers that are split differently.


def place_like(value: Any, target: Any) -> Any:
    """Return a saved tensor split, or whole, as the target of the same shape is."""
    if is_dtensor(target) and type(value) is torch.Tensor and value.shape == target.shape:
        mesh, shape = target.device_mesh, list(target.shape)
        start, stop = _rows(shape[0], mesh.get_local_rank(), mesh.size())
        return _from_rows(value[start:stop].clone(), mesh, shape)
    if is_dtensor(value) and not is_dtensor(target):
        return value.full_tensor()
    return value


def place_optimizer_state(optimizer: Optimizer, saved: dict[str, Any]) -> dict[str, Any]:
    """Return the saved state with the tensors split as their parameters are."""
    if not saved.keys() >= {"state", "param_groups"}:
        return saved  # of an optimizer with a format of its own
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    indices = [index for group in saved["param_groups"] for index in group["params"]]
    state = dict(saved["state"])
    for index, parameter in zip(indices, parameters, strict=False):
        if isinstance(state.get(index), dict):
            state[index] = {k: place_like(v, parameter) for k, v in state[index].items()}
    return {**saved, "state": state}


def _mesh(models: list[nn.Module]) -> Any:
    for model in models:
        if is_sharded(model):
            for parameter in model.parameters():
                if is_dtensor(parameter):
                    return parameter.device_mesh
    return None


def _from_rows(rows: torch.Tensor, mesh: Any, shape: list[int]) -> torch.Tensor:
    from torch.distributed.tensor import DTensor, Shard

    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        rows, mesh, [Shard(0)], run_check=False, shape=torch.Size(shape), stride=stride
    )
