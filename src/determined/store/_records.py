"""The store's records as values. Times are seconds since the epoch; states are their names.

Most records mirror a table, field by field; `_schema.py` has the types and defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from determined.errors import ConfigurationError, StoreError
from determined.store._rows import Table

if TYPE_CHECKING:
    from determined.config.model.experiment import Configuration

TERMINAL_STATES = ("COMPLETED", "CANCELED", "ERROR")
OVER_STATES = (*TERMINAL_STATES, "DELETING", "DELETED", "DELETE_FAILED")
# The first half has an index, which may not hold what JSON functions say.
HAS_CALLS = "instr(environment, '\"calls\"') AND json_extract(environment, '$.calls') IS NOT NULL"
PROFILER_GROUPS = ("gpu", "cpu", "memory", "disk", "network")


@dataclass(frozen=True)
class Workspace:
    id: int
    name: str
    owner: str
    archived: bool
    created: float


@dataclass(frozen=True)
class Project:
    id: int
    workspace_id: int
    name: str
    description: str
    notes: list[dict[str, str]]
    owner: str
    archived: bool
    created: float
    key: str


@dataclass(frozen=True)
class Experiment:
    id: int
    project_id: int
    parent_id: int | None
    owner: str
    name: str
    description: str
    labels: list[str]
    notes: str
    config: dict[str, Any]
    original_config: str
    state: str
    reason: str
    progress: float
    archived: bool
    unmanaged: bool
    external_id: str | None
    snapshot_id: str | None
    environment: dict[str, Any]
    searcher_metric: str | None
    smaller_is_better: bool
    priority: int | None
    max_slots: int | None
    weight: float | None
    created: float
    started: float | None
    ended: float | None
    num_trials: int
    gc_is_due: bool
    checkpoint_count: int
    checkpoint_size: int
    best_validation: float | None
    best_trial_id: int | None
    origin: str | None
    """The home and the id, or the tracker and its name there, that it was imported from."""

    @cached_property
    def configuration(self) -> Configuration:
        """`config` as a typed value, made when it is first asked for."""
        from determined.config import stored

        try:
            return stored(self.config)
        except ConfigurationError as error:
            line = str(error).partition("\n")[0]
            raise StoreError(f"Experiment {self.id} has a damaged configuration: {line}") from error

    @property
    def checkpoint_storage(self) -> dict[str, Any]:
        """The section that `determined.storage.build` takes, as a checkpoint's record has it."""
        section: dict[str, Any] = self.config["checkpoint_storage"]
        return section


@dataclass(frozen=True)
class Trial:
    id: int
    experiment_id: int
    request_id: str
    task_id: str
    external_id: str | None
    seed: int
    hparams: dict[str, Any]
    state: str
    reason: str
    status: str
    early_exit: str | None
    progress: float
    restarts: int
    run_id: int
    total_batches: int
    best_validation: float | None
    best_validation_steps: int | None
    latest_validation: float | None
    latest_validation_steps: int | None
    warm_start_checkpoint: str | None
    metadata: dict[str, Any]
    is_held: bool
    last_error: str
    not_before: float
    checkpoint_count: int
    checkpoint_size: int
    created: float
    started: float | None
    ended: float | None


@dataclass(frozen=True)
class Run:
    trial_id: int
    run_id: int
    allocation_id: str
    folder: str
    host: str
    slots: list[int]
    steps_completed: int
    from_checkpoint: str | None
    acknowledged: bool
    preempted: str
    exit_code: int | None
    reason: str
    created: float
    started: float | None
    ended: float | None
    heartbeat: float | None


@dataclass(frozen=True)
class Checkpoint:
    uuid: str
    trial_id: int | None
    experiment_id: int | None
    run_id: int | None
    task_id: str
    allocation_id: str
    state: str
    steps_completed: int
    resources: dict[str, int]
    metadata: dict[str, Any]
    size: int
    storage: dict[str, Any]
    report_time: float
    is_foreign: bool
    """Whether its files belong to another home, and are never deleted by this one."""


@dataclass(frozen=True)
class Fork:
    """A trial whose first `at` batches are its parent's.

    `checkpoint_uuid` is where it starts, None for the beginning. `changed` has the old and the new
    value of each hyperparameter that changes at that batch, `seed` a new seed, if any.
    """

    trial_id: int
    parent_trial_id: int
    at: int
    checkpoint_uuid: str | None
    changed: dict[str, Any]
    seed: int | None
    is_checked: bool = False
    """Whether the changes are known to be possible."""


def is_exact(table: str) -> str:
    """The condition for checkpoints from which a run continues as if it had not been interrupted.

    A search in the text: SQLite cannot parse the NaN that metrics may contain.
    """
    return f"instr({table}.metadata, '\"not_exact\"')=0"


@dataclass(frozen=True)
class RatedCheckpoint:
    """A checkpoint and the validation at its step; `value` is the searcher's metric."""

    checkpoint: Checkpoint
    metrics: dict[str, Any] | None
    value: float | None
    validated: int | None


@dataclass(frozen=True)
class Deletion:
    """Files of a checkpoint to delete, or that could not be deleted (`failure` says why)."""

    uuid: str
    globs: list[str]
    failure: str


@dataclass(frozen=True)
class JournalPosition:
    path: str
    trial_id: int
    run_id: int
    offset: int
    damage: str


@dataclass(frozen=True)
class SearchStep:
    """An event for the searcher, what it decided, and the sentence that explains it."""

    experiment_id: int
    number: int
    time: float
    event: dict[str, Any]
    actions: list[dict[str, Any]]
    sentence: str


@dataclass(frozen=True)
class Report:
    """What a run reported at a step; `id` grows in the order in which reports were read."""

    id: int
    trial_id: int
    run_id: int
    group: str
    steps_completed: int
    time: float
    metrics: dict[str, Any]
    batch_metrics: list[dict[str, Any]] | None
    archived: bool


@dataclass(frozen=True)
class Samples:
    id: int
    trial_id: int
    run_id: int
    grp: str
    time: float
    samples: dict[str, Any]


@dataclass(frozen=True)
class Model:
    id: int
    name: str
    description: str
    metadata: dict[str, Any]
    labels: list[str]
    owner: str
    workspace_id: int
    archived: bool
    created: float
    updated: float
    last_version: int


@dataclass(frozen=True)
class ModelVersion:
    id: int
    model_id: int
    number: int
    checkpoint_uuid: str
    name: str
    comment: str
    notes: str
    metadata: dict[str, Any]
    created: float


@dataclass(frozen=True)
class Event:
    """Something that users should know: an alert, a conflict, a restart, a damaged journal."""

    id: int
    time: float
    kind: str
    level: str
    experiment_id: int | None
    trial_id: int | None
    run_id: int | None
    text: str
    details: dict[str, Any]


@dataclass(frozen=True)
class Command:
    """A request from a client to the supervisor; unanswered while `answered` is None."""

    number: int
    uuid: str
    verb: str
    arguments: dict[str, Any]
    sender: str
    created: float
    answered: float | None
    is_ok: bool | None
    answer: dict[str, Any] | None


@dataclass(frozen=True)
class NewExperiment:
    """What an experiment is created with."""

    config: dict[str, Any]
    owner: str
    name: str
    state: str = "ACTIVE"
    description: str = ""
    labels: list[str] = field(default_factory=list)
    notes: str = ""
    original_config: str = ""
    project_id: int = 1
    parent_id: int | None = None
    snapshot_id: str | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    searcher_metric: str | None = None
    smaller_is_better: bool = True
    priority: int | None = None
    max_slots: int | None = None
    weight: float | None = None
    unmanaged: bool = False
    external_id: str | None = None


def columns_of(configuration: Configuration) -> dict[str, Any]:
    """The columns of an experiment that its configuration determines."""
    searcher, resources = configuration.searcher, configuration.resources
    return {
        "name": configuration.name,
        "description": configuration.description or "",
        "labels": list(configuration.labels),
        "searcher_metric": searcher.metric,
        "smaller_is_better": searcher.smaller_is_better,
        "priority": resources.priority,
        "max_slots": resources.max_slots,
        "weight": resources.weight,
    }


@dataclass(frozen=True)
class NewTrial:
    """What a trial is created with."""

    experiment_id: int
    request_id: str
    seed: int
    hparams: dict[str, Any]
    state: str = "ACTIVE"
    warm_start_checkpoint: str | None = None
    external_id: str | None = None


WORKSPACES = Table("workspace", Workspace)
PROJECTS = Table("project", Project)
EXPERIMENTS = Table("experiment", Experiment)
TRIALS = Table("trial", Trial)
RUNS = Table("run", Run)
CHECKPOINTS = Table("checkpoint", Checkpoint)
DELETIONS = Table("deletion", Deletion)
JOURNALS = Table("journal", JournalPosition)
SEARCH_STEPS = Table("search_step", SearchStep)
SAMPLES = Table("sample", Samples)
MODELS = Table("model", Model)
MODEL_VERSIONS = Table("model_version", ModelVersion)
EVENTS = Table("event", Event)
COMMANDS = Table("command", Command)
FORKS = Table("fork", Fork)

BY_NAME: dict[str, Table[Any]] = {
    table.name: table
    for table in (
        *(WORKSPACES, PROJECTS, EXPERIMENTS, TRIALS, RUNS, CHECKPOINTS, DELETIONS, JOURNALS),
        *(SEARCH_STEPS, SAMPLES, MODELS, MODEL_VERSIONS, EVENTS, COMMANDS),
        FORKS,
    )
}
