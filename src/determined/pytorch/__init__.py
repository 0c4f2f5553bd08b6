"""The training library: trial, context, trainer, data.

Users write a `PyTorchTrial` and hand it to a `Trainer`. Read `_loop.py` first: it is the one loop.
"""

from determined._os.garbage_collector import paused_collector

with paused_collector():  # an import makes no garbage, and torch has many objects to look through
    from determined._legacy.pytorch_paths import keep_older_paths
    from determined.pytorch import samplers
    from determined.pytorch._callback import PyTorchCallback
    from determined.pytorch._checkpoint.export import export
    from determined.pytorch._checkpoint.files.pretrained import empty_weights
    from determined.pytorch._checkpoint.load import (
        CheckpointLoadContext,
        load_trial_from_checkpoint_path,
    )
    from determined.pytorch._context.context import PyTorchTrialContext
    from determined.pytorch._context.experimental import PyTorchExperimentalContext
    from determined.pytorch._context.lr_scheduler import LRScheduler
    from determined.pytorch._data.batches import (
        DataLoader,
        TorchData,
        _Data,
        _dataset_repro_warning,
        adapt_batch_sampler,
        data_length,
        to_device,
    )
    from determined.pytorch._loop import TrainLoop as _PyTorchTrialController
    from determined.pytorch._metrics.batch_metrics import (
        _combine_and_average_training_metrics,
        _convert_metrics_to_numpy,
        _prepare_metrics_reducers,
        _reduce_metrics,
    )
    from determined.pytorch._metrics.reducer import (
        MetricReducer,
        Reducer,
        _simple_reduce_metrics,
        _SimpleReducer,
    )
    from determined.pytorch._metrics.weighted import Perplexity, Weighted
    from determined.pytorch._metrics.wrapped_reducers import _PyTorchReducerContext
    from determined.pytorch._reporter import _log_tb_metrics
    from determined.pytorch._schedule import (
        Batch,
        Epoch,
        TrainUnit,
        _ShouldExit,
        _TrainBoundary,
        _TrainBoundaryType,
        _TrialState,
    )
    from determined.pytorch._trainer import Trainer, init
    from determined.pytorch._trial import PyTorchTrial

ShouldExit = _ShouldExit  # the name of older documents
PyTorchTrial.trial_controller_class = _PyTorchTrialController
PyTorchTrial.trial_context_class = PyTorchTrialContext
keep_older_paths(__name__)

__all__ = [
    "Batch",
    "CheckpointLoadContext",
    "DataLoader",
    "Epoch",
    "LRScheduler",
    "MetricReducer",
    "Perplexity",
    "PyTorchCallback",
    "PyTorchExperimentalContext",
    "PyTorchTrial",
    "PyTorchTrialContext",
    "Reducer",
    "ShouldExit",
    "TorchData",
    "TrainUnit",
    "Trainer",
    "Weighted",
    "adapt_batch_sampler",
    "data_length",
    "empty_weights",
    "export",
    "init",
    "load_trial_from_checkpoint_path",
    "samplers",
    "to_device",
]
