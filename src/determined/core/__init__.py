"""Services of a training process: ranks, checkpoints, metrics, preemption. Framework-independent.

Nothing below imports torch at import time; the training library sits in `determined.pytorch`.
Start reading at `_context.py`.
"""

from determined.core._checkpoint import CheckpointContext, DownloadMode, DummyCheckpointContext
from determined.core._context import Context, _dummy_init, init
from determined.core._distributed import DistributedContext, DummyDistributedContext
from determined.core._enums import (
    EarlyExitReason,
    PreemptMode,
    SearcherMode,
    TensorboardMode,
    Unit,
)
from determined.core._experimental import DummyExperimentalCoreContext, ExperimentalCoreContext
from determined.core._preempt import DummyPreemptContext, PreemptContext
from determined.core._profiler import DummyProfilerContext, ProfilerContext
from determined.core._searcher import (
    DummySearcherContext,
    DummySearcherOperation,
    SearcherContext,
    SearcherContextMissing,
    SearcherOperation,
)
from determined.core._train import DummyTrainContext, TrainContext

__all__ = [
    "CheckpointContext",
    "Context",
    "DistributedContext",
    "DownloadMode",
    "DummyCheckpointContext",
    "DummyDistributedContext",
    "DummyExperimentalCoreContext",
    "DummyPreemptContext",
    "DummyProfilerContext",
    "DummySearcherContext",
    "DummySearcherOperation",
    "DummyTrainContext",
    "EarlyExitReason",
    "ExperimentalCoreContext",
    "PreemptContext",
    "PreemptMode",
    "ProfilerContext",
    "SearcherContext",
    "SearcherContextMissing",
    "SearcherMode",
    "SearcherOperation",
    "TensorboardMode",
    "TrainContext",
    "Unit",
    "_dummy_init",
    "init",
]
