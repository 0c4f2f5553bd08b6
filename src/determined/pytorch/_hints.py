"""What a person wants to know when training fails: where in their code, on which batch, and why."""

from __future__ import annotations

import linecache
import pathlib
import re
import sysconfig
from types import TracebackType
from typing import Any

import torch

from determined.errors import DistributedError
from determined.pytorch._context import PyTorchTrialContext
from determined.pytorch._fetch import add_note
from determined.pytorch._parallel import inner_module

_OURS = str(pathlib.Path(__file__).resolve().parents[1])
_INSTALLED = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))
_SHAPES = re.compile(
    r"shapes? cannot be multiplied|size mismatch|must match the size|expected .* channels|"
    r"Given groups=|Expected .*D .*input|normalized_shape",
)
_DEVICES = re.compile(r"same device|input type .* and weight type|found at least two devices")
_DTYPES = re.compile(r"same dtype|expected .*scalar type|must have the same dtype")


def explain(
    context: PyTorchTrialContext, error: BaseException | None, traceback: TracebackType | None
) -> None:
    """Add to the traceback where the user's code failed, the batch, and a hint if there is one."""
    if not isinstance(error, Exception) or isinstance(error, DistributedError):
        return  # the latter tells of another rank
    place, batch = _look_through(traceback)
    lines = [place, _hint(str(error), context, batch)]
    if context._current_batch_idx is not None:
        lines.insert(1, f"The last batch begun was batch {context._current_batch_idx}.")
    add_note(error, "\n".join(line for line in lines if line))


def _look_through(traceback: TracebackType | None) -> tuple[str, Any]:
    """Return the innermost line that is neither ours nor of a package, and the batch at hand."""
    place, batch = "", None
    while traceback is not None:
        frame, number = traceback.tb_frame, traceback.tb_lineno
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if file.startswith(_OURS):
            batch = frame.f_locals.get("batch", batch)
        elif not file.startswith((*_INSTALLED, "<")):
            source = linecache.getline(file, number).strip()
            place = f"In your code: {file}:{number}, {name}: {source}"
        traceback = traceback.tb_next
    return place, batch


def _hint(message: str, context: PyTorchTrialContext, batch: Any) -> str:
    if _SHAPES.search(message):
        return (
            f"Hint: the batch has {_shapes(batch)}; the first layers are "
            f"{', '.join(_first_layer(model) for model in context.models)}."
        )
    if _DEVICES.search(message):
        return (
            f"Hint: models and batches are on {context.device}. Make new tensors there too "
            "(device=self.context.device), and pass every model through context.wrap_model."
        )
    if _DTYPES.search(message):
        return f"Hint: the batch has {_shapes(batch)}; convert it in the dataset or in train_batch."
    return ""


def _first_layer(model: torch.nn.Module) -> str:
    for name, module in inner_module(model).named_modules():
        if next(module.parameters(recurse=False), None) is not None:
            return f"{name or 'the model'} = {module}"
    return type(model).__name__


def _shapes(batch: Any) -> str:
    found: list[str] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, torch.Tensor):
            dtype = str(value.dtype).removeprefix("torch.")
            found.append(f"{path or 'a tensor'}: {tuple(value.shape)} {dtype}")
        elif isinstance(value, dict):
            for key, entry in value.items():
                walk(entry, f"{path}[{key!r}]")
        elif isinstance(value, (list, tuple)):
            for index, entry in enumerate(value):
                walk(entry, f"{path}[{index}]")

    walk(batch, "")
    return ", ".join(found[:8]) or f"type {type(batch).__name__}"
