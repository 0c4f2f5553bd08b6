"""What a person wants to know when training fails: where in their code, on which batch, and why."""

from __future__ import annotations

import linecache
import pathlib
import re
import shutil
from types import TracebackType
from typing import Any

import torch

from determined._code.trial_code import is_installed
from determined.errors import DistributedError
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._data.errors import add_note
from determined.pytorch._ranks.ddp import inner_module

_OURS = str(pathlib.Path(__file__).resolve().parents[1])
_MAX_LINES = 5
_SHAPES = re.compile(
    r"shapes? cannot be multiplied|size mismatch|must match the size|expected .* channels|"
    r"Given groups=|Expected .*D .*input|normalized_shape",
)
_DEVICES = re.compile(r"same device|input type .* and weight type|found at least two devices")
_SHARED_MEMORY = re.compile(r"signal: Bus error|out of shared memory|/torch_\d+.*No space left")
_OPEN_FILES = re.compile(r"Too many open files")
_KILLED = re.compile(r"DataLoader worker .*signal: Killed")
_MEMORY = re.compile(r"out of memory|can't allocate memory|not enough memory|^MemoryError")
_LOG = re.compile(r"object has no attribute 'log(_dict|_metrics)?'")
_THREADS = re.compile(r"can't start new thread")
_NOT_DETERMINISTIC = re.compile(
    r"does not have a deterministic implementation|not deterministic because it uses CuBLAS"
)
_DTYPES = re.compile(r"same dtype|expected .*scalar type|must have the same dtype")


def add_hints(
    context: PyTorchTrialContext, error: BaseException | None, traceback: TracebackType | None
) -> None:
    """Add to the traceback where the user's code failed, the batch, and a hint if there is one."""
    if not isinstance(error, Exception) or isinstance(error, DistributedError):
        return  # the latter tells of another rank
    lines, batch = _look_through(traceback)
    if context._current_batch_idx is not None:
        lines.append(f"The last batch started was batch {context._current_batch_idx}.")
    lines.append(_hint(_messages(error), context, batch))
    add_note(error, "\n".join(line for line in lines if line))


def _messages(error: BaseException | None) -> str:
    """Return what the error says, and what those say that led to it."""
    messages = []
    while error is not None:
        messages.append(str(error) or type(error).__name__)
        error = error.__cause__ or error.__context__
    return "\n".join(messages)


def _look_through(traceback: TracebackType | None) -> tuple[list[str], Any]:
    """Return the lines that are neither ours nor of a package, and the batch at hand."""
    locations: list[str] = []
    batch = None
    while traceback is not None:
        frame, number = traceback.tb_frame, traceback.tb_lineno
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if file.startswith(_OURS):
            batch = frame.f_locals.get("batch", batch)
        elif not (file.startswith("<") or is_installed(pathlib.Path(file))):
            source = linecache.getline(file, number).strip()
            locations.append(f"In your code: {file}:{number}, {name}: {source}")
        traceback = traceback.tb_next
    return locations[-_MAX_LINES:], batch


def _hint(message: str, context: PyTorchTrialContext, batch: Any) -> str:
    if _SHAPES.search(message):
        return (
            f"Hint: the batch has {_shapes(batch)}; the first layers are "
            f"{', '.join(_first_layer(model) for model in context.models)}."
        )
    if _NOT_DETERMINISTIC.search(message):
        return _hint_on_determinism(context)
    if _LOG.search(message):
        return (
            "Hint: metrics are what train_batch and evaluate_batch return, such as "
            'return {"loss": loss}; there is no method to call.'
        )
    if _DEVICES.search(message):
        return (
            f"Hint: models and batches are on {context.device}. Create new tensors there too "
            "(device=self.context.device), and pass every model through context.wrap_model."
        )
    if _DTYPES.search(message):
        return f"Hint: the batch has {_shapes(batch)}; convert it in the dataset or in train_batch."
    if _MEMORY.search(message):
        return (
            "Hint: smaller batches need less memory; pytorch.init(aggregation_frequency=n) "
            "accumulates the gradients of n of them. Mixed precision "
            "(context.experimental.use_amp) and sharding (parallel='fsdp') help as well."
        )
    if _SHARED_MEMORY.search(message):
        return (
            f"Hint: loader workers pass batches through shared memory, {_room('/dev/shm')}. Give "
            "it more (docker run --shm-size=8g, or --ipc=host), or lower num_workers, "
            "prefetch_factor or the batch size."
        )
    if _KILLED.search(message):
        return (
            "Hint: something killed the worker, most likely the system because it ran out of "
            "memory. Lower num_workers, prefetch_factor or the batch size; keep large data in "
            "arrays or files, since lists of Python objects are copied into every worker."
        )
    if _THREADS.search(message):
        return (
            "Hint: the system had no memory for another thread, or a limit on processes and "
            "threads was reached (ulimit -u, ulimit -v)."
        )
    if _OPEN_FILES.search(message):
        return (
            "Hint: raise the limit on open files (ulimit -n 65536), or call "
            'torch.multiprocessing.set_sharing_strategy("file_system") before training.'
        )
    return ""


def _hint_on_determinism(context: PyTorchTrialContext) -> str:
    if not context._exact:
        return (
            "Hint: the script turned on torch's deterministic algorithms, and this operator has "
            "none here. Use another one, or torch.use_deterministic_algorithms(True, "
            "warn_only=True)."
        )
    return (
        "Hint: pytorch.init(exact=True) turned on torch's deterministic algorithms, and this "
        "operator has none here. Use another one, compute this step on the CPU, or leave out "
        "exact=True: then a run that is repeated or continued may differ in its last bits."
    )


def _room(directory: str) -> str:
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return "which this system keeps elsewhere"
    return f"of which {directory} has {usage.free / 1e9:.1f} of {usage.total / 1e9:.1f} GB free now"


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
