"""An older import path of `determined.experimental.client`."""

from determined.experimental._client.metrics import TrainingMetrics, TrialMetrics, ValidationMetrics

__all__ = ["TrainingMetrics", "TrialMetrics", "ValidationMetrics"]
