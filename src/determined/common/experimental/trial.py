"""An older import path of `determined.experimental.client`."""

from determined.experimental._client.trial import (
    LogLevel,
    TrainingMetrics,
    Trial,
    TrialMetrics,
    TrialOrderBy,
    TrialReference,
    TrialSortBy,
    TrialState,
    ValidationMetrics,
)

__all__ = [
    "LogLevel",
    "TrainingMetrics",
    "Trial",
    "TrialMetrics",
    "TrialOrderBy",
    "TrialReference",
    "TrialSortBy",
    "TrialState",
    "ValidationMetrics",
]
