"""Where older documents and scripts find these names; they live in `determined.pytorch`."""

from determined.pytorch._loop import TrainLoop as _PyTorchTrialController
from determined.pytorch._schedule import (
    Batch,
    Epoch,
    TrainUnit,
    _ShouldExit,
    _TrainBoundary,
    _TrainBoundaryType,
    _TrialState,
)
from determined.pytorch._trial import PyTorchTrial

ShouldExit = _ShouldExit

__all__ = [
    "Batch",
    "Epoch",
    "PyTorchTrial",
    "ShouldExit",
    "TrainUnit",
    "_PyTorchTrialController",
    "_ShouldExit",
    "_TrainBoundary",
    "_TrainBoundaryType",
    "_TrialState",
]
