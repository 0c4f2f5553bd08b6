"""States and sort keys. Their values are those of the original's interface."""

from __future__ import annotations

import enum
import warnings
from typing import TypeVar


class ExperimentState(enum.Enum):
    """The state of an experiment. ACTIVE covers queued and running experiments."""

    ACTIVE = "STATE_ACTIVE"
    PAUSED = "STATE_PAUSED"
    STOPPING_COMPLETED = "STATE_STOPPING_COMPLETED"
    STOPPING_CANCELED = "STATE_STOPPING_CANCELED"
    STOPPING_KILLED = "STATE_STOPPING_KILLED"
    STOPPING_ERROR = "STATE_STOPPING_ERROR"
    COMPLETED = "STATE_COMPLETED"
    CANCELED = "STATE_CANCELED"
    ERROR = "STATE_ERROR"
    DELETING = "STATE_DELETING"
    DELETE_FAILED = "STATE_DELETE_FAILED"
    DELETED = "STATE_DELETED"
    QUEUED = "STATE_QUEUED"
    PULLING = "STATE_PULLING"
    STARTING = "STATE_STARTING"
    RUNNING = "STATE_RUNNING"
    UNSPECIFIED = "STATE_UNSPECIFIED"

    @property
    def is_terminal(self) -> bool:
        """Whether it has ended."""
        return self.name in ("COMPLETED", "CANCELED", "ERROR", "DELETED")


class TrialState(enum.Enum):
    """The state of a trial. ACTIVE covers queued and running trials."""

    ACTIVE = "STATE_ACTIVE"
    PAUSED = "STATE_PAUSED"
    STOPPING_COMPLETED = "STATE_STOPPING_COMPLETED"
    STOPPING_CANCELED = "STATE_STOPPING_CANCELED"
    STOPPING_KILLED = "STATE_STOPPING_KILLED"
    STOPPING_ERROR = "STATE_STOPPING_ERROR"
    COMPLETED = "STATE_COMPLETED"
    CANCELED = "STATE_CANCELED"
    ERROR = "STATE_ERROR"
    QUEUED = "STATE_QUEUED"
    PULLING = "STATE_PULLING"
    STARTING = "STATE_STARTING"
    RUNNING = "STATE_RUNNING"
    UNSPECIFIED = "STATE_UNSPECIFIED"

    @property
    def is_terminal(self) -> bool:
        """Whether it has ended."""
        return self.name in ("COMPLETED", "CANCELED", "ERROR")


class CheckpointState(enum.Enum):
    """Whether a checkpoint has its files."""

    ACTIVE = "STATE_ACTIVE"
    COMPLETED = "STATE_COMPLETED"
    ERROR = "STATE_ERROR"
    DELETED = "STATE_DELETED"
    PARTIALLY_DELETED = "STATE_PARTIALLY_DELETED"
    UNSPECIFIED = "STATE_UNSPECIFIED"


class DownloadMode(enum.Enum):
    """How to download a checkpoint; there is only one way, so all values mean the same."""

    DIRECT = "direct"
    MASTER = "master"
    AUTO = "auto"


class LogLevel(enum.Enum):
    """The level of a log line."""

    TRACE = "LOG_LEVEL_TRACE"
    DEBUG = "LOG_LEVEL_DEBUG"
    INFO = "LOG_LEVEL_INFO"
    WARNING = "LOG_LEVEL_WARNING"
    ERROR = "LOG_LEVEL_ERROR"
    CRITICAL = "LOG_LEVEL_CRITICAL"


class OrderBy(enum.Enum):
    """The sort order of a list."""

    ASCENDING = "ORDER_BY_ASC"
    ASC = "ORDER_BY_ASC"
    DESCENDING = "ORDER_BY_DESC"
    DESC = "ORDER_BY_DESC"


class ExperimentOrderBy(enum.Enum):
    """Deprecated: use OrderBy."""

    ASCENDING = "ORDER_BY_ASC"
    ASC = "ORDER_BY_ASC"
    DESCENDING = "ORDER_BY_DESC"
    DESC = "ORDER_BY_DESC"


class TrialOrderBy(enum.Enum):
    """Deprecated: use OrderBy."""

    ASCENDING = "ORDER_BY_ASC"
    ASC = "ORDER_BY_ASC"
    DESCENDING = "ORDER_BY_DESC"
    DESC = "ORDER_BY_DESC"


class CheckpointOrderBy(enum.Enum):
    """Deprecated: use OrderBy."""

    ASCENDING = "ORDER_BY_ASC"
    ASC = "ORDER_BY_ASC"
    DESCENDING = "ORDER_BY_DESC"
    DESC = "ORDER_BY_DESC"


class ModelOrderBy(enum.Enum):
    """Deprecated: use OrderBy."""

    ASCENDING = "ORDER_BY_ASC"
    ASC = "ORDER_BY_ASC"
    DESCENDING = "ORDER_BY_DESC"
    DESC = "ORDER_BY_DESC"


AnyOrder = OrderBy | ExperimentOrderBy | TrialOrderBy | CheckpointOrderBy | ModelOrderBy


class ExperimentSortBy(enum.Enum):
    """Sort keys of experiments. There is only one resource pool: RESOURCE_POOL sorts by id."""

    ID = "id"
    DESCRIPTION = "description"
    START_TIME = "started"
    END_TIME = "ended"
    STATE = "state"
    NUM_TRIALS = "num_trials"
    PROGRESS = "progress"
    USER = "owner"
    NAME = "name"
    FORKED_FROM = "parent_id"
    RESOURCE_POOL = "resource_pool"
    PROJECT_ID = "project_id"
    CHECKPOINT_SIZE = "checkpoint_size"
    CHECKPOINT_COUNT = "checkpoint_count"
    SEARCHER_METRIC_VAL = "best_validation"


class TrialSortBy(enum.Enum):
    """Sort keys of trials. LOG_RETENTION_DAYS sorts by id."""

    ID = "id"
    START_TIME = "started"
    END_TIME = "ended"
    STATE = "state"
    BEST_VALIDATION_METRIC = "best_validation"
    LATEST_VALIDATION_METRIC = "latest_validation"
    BATCHES_PROCESSED = "total_batches"
    DURATION = "duration"
    RESTARTS = "restarts"
    CHECKPOINT_SIZE = "checkpoint_size"
    LOG_RETENTION_DAYS = "log_retention_days"


class CheckpointSortBy(enum.Enum):
    """Sort keys of checkpoints."""

    UUID = "uuid"
    TRIAL_ID = "trial_id"
    BATCH_NUMBER = "steps_completed"
    END_TIME = "report_time"
    STATE = "state"
    SEARCHER_METRIC = "searcher_metric"


class ModelSortBy(enum.Enum):
    """Sort keys of models."""

    NAME = "name"
    DESCRIPTION = "description"
    CREATION_TIME = "created"
    LAST_UPDATED_TIME = "updated"
    NUM_VERSIONS = "num_versions"
    WORKSPACE = "workspace_id"


_Sort = TypeVar("_Sort", bound=enum.Enum)


def is_descending(order_by: AnyOrder | None) -> bool:
    """Whether the order is descending; the older enums still work, with a warning."""
    if order_by is None:
        return False
    if not isinstance(order_by, AnyOrder):
        raise ValueError(f"`order_by` must be an OrderBy, got {order_by!r}.")
    if not isinstance(order_by, OrderBy):
        warnings.warn(
            f"{type(order_by).__name__} is deprecated: use OrderBy.", FutureWarning, stacklevel=4
        )
    return bool(order_by.value == OrderBy.DESCENDING.value)


def sort_key(sort_by: _Sort | None, kind: type[_Sort]) -> str:
    """The column of the store to sort by; the id for keys that do not exist here."""
    if sort_by is None:
        return "id"
    if not isinstance(sort_by, kind):
        raise ValueError(f"`sort_by` must be a {kind.__name__}, got {sort_by!r}.")
    return "id" if sort_by.value in ("resource_pool", "log_retention_days") else str(sort_by.value)
