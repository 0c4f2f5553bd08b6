"""A table of the layers of the models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._data.seed import forked_rng
from determined.pytorch._ranks.ddp import inner_module
from determined.pytorch._schedule import is_whole_number


class ModelSummary(PyTorchCallback):
    """Prints the layers of every wrapped model after the first batch, once, on the chief.

    Each layer comes with its type, the shape of what it returned for that batch, and the number of
    its own parameters. Shapes are not measured for a compiled model: watching it would compile it
    a second time.

    Args:
        context: The trial's context.
        max_depth: Levels of nested modules to list; by default all.
    """

    def __init__(self, context: PyTorchTrialContext, max_depth: int | None = None) -> None:
        if max_depth is not None and (not is_whole_number(max_depth) or max_depth < 1):
            raise ValueError(f"`max_depth` must be an integer of at least 1, got {max_depth!r}.")
        self._context = context
        self._max_depth = max_depth
        self._shapes: dict[nn.Module, str] = {}
        self._hooks: list[RemovableHandle] = []
        self._is_due = False

    def on_training_start(self) -> None:
        """Begin to watch what the layers return."""
        if self._context.distributed.rank != 0:
            return
        self._is_due = True
        for model in map(inner_module, self._context.models):
            if getattr(model, "_compiled_call_impl", None) is None:
                for _, module in self._layers(model):
                    self._hooks.append(module.register_forward_hook(self._note_shape))

    def on_training_batch_end(
        self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
    ) -> None:
        """Print after the first batch."""
        if self._is_due:
            self._is_due = False
            self._unhook()
            self._print()

    def on_trial_shutdown(self) -> None:
        """Leave the models as they were."""
        self._unhook()

    def _layers(self, model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        for name, module in model.named_modules():
            depth = 0 if not name else name.count(".") + 1
            if self._max_depth is None or depth <= self._max_depth:
                yield name, module

    def _note_shape(self, module: nn.Module, _: Any, output: Any) -> None:
        self._shapes.setdefault(module, _shape(output))

    def _unhook(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _print(self) -> None:
        with forked_rng(0):  # rich draws from `random` when it is imported
            from rich.console import Console, Group
            from rich.table import Table

        tables: list[Table | str] = []
        for index, model in enumerate(map(inner_module, self._context.models)):
            table = Table("layer", "type", "output shape", title=f"model {index}", title_style="")
            table.add_column("parameters", justify="right")
            for name, module in self._layers(model):
                own = sum(p.numel() for p in module.parameters(recurse=False))
                table.add_row(
                    "  " * name.count(".") + name.rpartition(".")[2] if name else "(model)",
                    type(module).__name__,
                    self._shapes.get(module, "-"),
                    f"{own:,}" if own else "",
                )
            tables += [table, _totals(model)]
        self._shapes = {}
        Console(stderr=True, highlight=False).print(Group(*tables))


def _totals(model: nn.Module) -> str:
    parameters = list(model.parameters())
    total = sum(p.numel() for p in parameters)
    trainable = sum(p.numel() for p in parameters if p.requires_grad)
    size = sum(p.numel() * p.element_size() for p in parameters)
    return f"{total:,} parameters, {trainable:,} of them trainable, {size / 1e6:,.1f} MB"


def _shape(output: Any) -> str:
    if isinstance(output, torch.Tensor):
        return "x".join(map(str, output.shape)) or "scalar"
    if isinstance(output, Mapping):
        return ", ".join(f"{name}: {_shape(value)}" for name, value in output.items())
    if isinstance(output, (list, tuple)):
        return ", ".join(map(_shape, output))
    return type(output).__name__
