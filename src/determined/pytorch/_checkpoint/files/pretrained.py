"""Start from a folder of pretrained weights, read row by row: no rank holds more than its part.

The folder is one that `save_pretrained` of Hugging Face writes: `model.safetensors`, or several
such files and an index. Nothing of Hugging Face is needed to read it.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from determined.errors import InvalidExperimentException
from determined.pytorch._checkpoint.files.export import require_safetensors
from determined.pytorch._ranks.fsdp import is_dtensor

_WEIGHTS = "model.safetensors"
_INDEX = f"{_WEIGHTS}.index.json"


@contextlib.contextmanager
def empty_weights() -> Iterator[None]:
    """Have modules that are built in the block take no memory for weights; buffers are as usual.

    Such a model gets its weights by `context.wrap_model(model, pretrained=folder)`.
    """
    register = nn.Module.register_parameter

    def register_empty(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        register(module, name, parameter)
        if parameter is not None and not parameter.is_meta:  # shared ones stay shared
            empty = parameter.to("meta")
            module._parameters[name] = nn.Parameter(empty, parameter.requires_grad)

    patched: Any = nn.Module
    patched.register_parameter = register_empty
    try:
        yield
    finally:
        patched.register_parameter = register


def make_room_for_weights(model: nn.Module, device: torch.device) -> None:
    """Give weights on the device `meta` memory where they are to be; shared ones stay shared."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and parameter.is_meta:
                if id(parameter) not in made:
                    empty = torch.empty_like(parameter, device=device)
                    made[id(parameter)] = nn.Parameter(empty, parameter.requires_grad)
                module._parameters[name] = made[id(parameter)]


class PretrainedFolder:
    """The tensors of a folder, by name."""

    def __init__(self, folder: Any) -> None:
        require_safetensors()
        self._path = pathlib.Path(folder)
        self._files = self._find_files()

    def _find_files(self) -> dict[str, pathlib.Path]:
        from safetensors import safe_open

        index = self._path / _INDEX
        if index.exists():
            try:
                names: dict[str, str] = json.loads(index.read_text())["weight_map"]
                return {name: self._path / file for name, file in names.items()}
            except (ValueError, KeyError, TypeError, AttributeError) as e:
                raise InvalidExperimentException(f"{index} is no index of weights: {e!r}.") from e
        file = self._path / _WEIGHTS
        if not file.exists():
            raise FileNotFoundError(
                f"`pretrained` must be a folder with {_WEIGHTS} or {_INDEX}, but {self._path} has "
                "neither. `save_pretrained` writes such a folder."
            )
        with safe_open(file, "pt") as opened:
            return dict.fromkeys(opened.keys(), file)

    def load_into(self, model: nn.Module) -> None:
        """Copy weights and saved buffers into a model, of which this rank may hold a part.

        Of weights with several names, one name will do. What the model has and the folder has not
        is an error, as is what the folder has and the model has not.
        """
        wanted: dict[int, tuple[torch.Tensor, list[str]]] = {}
        for name, tensor in _saved_tensors(model):
            wanted.setdefault(id(tensor), (tensor, []))[1].append(name)
        stored = self._names_in(model)
        missing = [names[0] for _, names in wanted.values() if not any(n in stored for n in names)]
        known = {name for _, names in wanted.values() for name in names}
        surplus = [name for name in stored if name not in known]
        if missing or surplus:
            raise InvalidExperimentException(
                f"The weights in {self._path} do not fit {type(model).__name__}: "
                f"{_listed('missing', missing)}{_listed('without a place', surplus)}."
            )
        for tensor, names in wanted.values():
            name = next(name for name in names if name in stored)
            self._copy(stored[name], tensor, name)

    def _names_in(self, model: nn.Module) -> Mapping[str, str]:
        """Return what names of the model are called in the folder: bare models have no prefix."""
        prefix = f"{getattr(model, 'base_model_prefix', '')}."
        places = {name for name, _ in _saved_tensors(model)}
        is_bare = not places & self._files.keys() and any(n.startswith(prefix) for n in places)
        return {f"{prefix}{name}" if is_bare else name: name for name in self._files}

    def _copy(self, stored: str, tensor: torch.Tensor, name: str) -> None:
        from safetensors import safe_open

        with safe_open(self._files[stored], "pt") as opened:
            part = opened.get_slice(stored)
            shape = list(part.get_shape())
            if shape != list(tensor.shape):
                raise InvalidExperimentException(
                    f"{name} is {list(tensor.shape)} in {type(tensor).__name__} of the model, but "
                    f"{shape} in {self._files[stored]}."
                )
            local, rows = tensor, slice(None)
            if is_dtensor(tensor):
                local = tensor.to_local()
                rows = _own_rows(tensor, local)
            with torch.no_grad():
                local.copy_(part[rows] if shape else opened.get_tensor(stored))


def _own_rows(tensor: Any, local: torch.Tensor) -> slice:
    chunk = -(-tensor.shape[0] // tensor.device_mesh.size())
    start = min(tensor.device_mesh.get_local_rank() * chunk, tensor.shape[0])
    return slice(start, start + local.shape[0])


def _saved_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield what checkpoints of a model hold, under each of its names."""
    yield from model.named_parameters(remove_duplicate=False)
    saved = model.state_dict().keys()
    for name, buffer in model.named_buffers(remove_duplicate=False):
        if name in saved:
            yield name, buffer


def _listed(what: str, names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f" {what}: {', '.join(sorted(names)[:3])}{more}"
