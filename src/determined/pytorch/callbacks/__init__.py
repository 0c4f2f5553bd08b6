"""Callbacks that are ready to use; return them from `build_callbacks`.

Here lives what watches, protects or records a run through the hooks of `PyTorchCallback` alone; the
loop knows nothing of it. Read `_early_stopping.py` first: it is the simplest.
"""

from determined.pytorch.callbacks._early_stopping import EarlyStopping
from determined.pytorch.callbacks._ema import ExponentialMovingAverage
from determined.pytorch.callbacks._gradient_norm import GradientNorm
from determined.pytorch.callbacks._guard import LossGuard
from determined.pytorch.callbacks._learning_rate import LearningRateMonitor
from determined.pytorch.callbacks._model_summary import ModelSummary
from determined.pytorch.callbacks._trackers.csv import CSVTracker
from determined.pytorch.callbacks._trackers.mlflow import MLflowTracker
from determined.pytorch.callbacks._trackers.tracker import MetricsTracker, Report
from determined.pytorch.callbacks._trackers.wandb import WandbTracker

__all__ = [
    "CSVTracker",
    "EarlyStopping",
    "ExponentialMovingAverage",
    "GradientNorm",
    "LearningRateMonitor",
    "LossGuard",
    "MLflowTracker",
    "MetricsTracker",
    "ModelSummary",
    "Report",
    "WandbTracker",
]
