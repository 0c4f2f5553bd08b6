"""Services of a training process: ranks, checkpoints, metrics, preemption. No framework in here.

Nothing below imports torch at import time; the training library sits in `determined.pytorch`.
Start reading at `_context.py`.
"""

from determined.core._enums import (
    EarlyExitReason,
    PreemptMode,
    SearcherMode,
    TensorboardMode,
    Unit,
)
from determined.core._experimental import DummyExperimentalCoreContext, ExperimentalCoreContext
from determined.core._train import DummyTrainContext, TrainContext

__all__ = [
    "DummyExperimentalCoreContext",
    "DummyTrainContext",
    "EarlyExitReason",
    "ExperimentalCoreContext",
    "PreemptMode",
    "SearcherMode",
    "TensorboardMode",
    "TrainContext",
    "Unit",
]
