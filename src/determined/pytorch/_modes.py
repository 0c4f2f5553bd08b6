"""Training and evaluation modes of models: set once for a run, put back after a validation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from torch import nn


def begin_training(models: Iterable[nn.Module]) -> None:
    """Put models into training mode, as pretrained ones come in evaluation mode.

    Frozen ones, none of whose parameters requires a gradient, keep the mode that the trial chose:
    a reference model has no dropout.
    """
    for model in models:
        parameters = list(model.parameters())
        if not parameters or any(p.requires_grad for p in parameters):
            model.train()


def end_training(models: Iterable[nn.Module]) -> None:
    """Leave models in evaluation mode, ready to be used."""
    for model in models:
        model.eval()


@contextlib.contextmanager
def in_evaluation(models: Iterable[nn.Module]) -> Iterator[None]:
    """Have models in evaluation mode inside the block, and each part in its own mode after it."""
    models = list(models)
    modes = {module: module.training for model in models for module in model.modules()}
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for module, is_training in modes.items():
            module.training = is_training
