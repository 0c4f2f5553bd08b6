"""An experiment's configuration as a typed, frozen value: every key, its type and its default."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from determined.config.model.hyperparameters import Hyperparameter
from determined.config.model.searcher import AnySearcher
from determined.config.model.sections import (
    BindMount,
    Environment,
    Integrations,
    LogPolicy,
    Optimizations,
    Profiling,
    Reproducibility,
    Resources,
    RetentionPolicy,
    Slurm,
)
from determined.config.model.storage import AnyStorage
from determined.config.model.types import (
    AtLeast0,
    AtLeast1,
    ClassName,
    Command,
    Duration,
    Expected,
    Flag,
    Free,
    FreeMap,
    Items,
    Length,
    Repeats,
    Section,
    Text,
)

DEFAULT_WORKSPACE = "Uncategorized"
_DEAD = "No effect."


def _once(labels: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(labels))


class Configuration(Section):
    """One experiment: its entrypoint, its search, and how its trials run."""

    name: Text = Field(description="The experiment's name.")
    description: Text | None = Field(default=None, description="A longer description, for people.")
    labels: Annotated[Items[Text], AfterValidator(_once)] = Field(
        default=(), description="Labels to filter experiments by."
    )
    data: FreeMap = Field(
        default={},
        description="Free-form settings for training code; `data.secrets` is masked when shown.",
    )
    workspace: Text = Field(
        default=DEFAULT_WORKSPACE, description="The workspace that holds the project."
    )
    project: Text = Field(
        default=DEFAULT_WORKSPACE, description="The project that holds the experiment."
    )
    entrypoint: Command | None = Field(
        default=None,
        description="The command that starts a trial: text for the shell, or a list of arguments.",
    )
    hyperparameters: Annotated[
        dict[str, Hyperparameter], Expected("a mapping of names to values or ranges")
    ] = Field(default={}, description="Constants, ranges to search, and nested groups of both.")
    searcher: AnySearcher = Field(description="Which trials run, and for how long.")
    repeat: Repeats = Field(
        default=1,
        description="How many seeds to train each configuration with; `single` and `grid` only.",
    )
    resources: Resources = Field(default=Resources(), description="What each trial runs on.")
    checkpoint_storage: AnyStorage = Field(
        description="Where checkpoints are stored, and which are kept."
    )
    checkpoint_policy: Literal["best", "all", "none"] = Field(
        default="best",
        description="Which validations save a checkpoint; `module:Class` entrypoints only.",
    )
    trusted_classes: Items[ClassName] = Field(
        default=(),
        description="Classes, each as `module:Class`, whose objects checkpoints may hold, beside "
        "those of the trial's own code.",
    )
    max_restarts: AtLeast0 = Field(
        default=5,
        description="How many times to restart a trial that fails without making progress.",
    )
    max_wall_time: Duration | None = Field(
        default=None,
        description="Time limit of the experiment; its trials then save a checkpoint and it ends.",
    )
    max_slot_time: Duration | None = Field(
        default=None,
        description="Limit of the time of all slots together, such as 12h: 4 slots for 3 hours. "
        "Trials then save a checkpoint and the experiment ends.",
    )
    max_trial_wall_time: Duration | None = Field(
        default=None, description="Time limit of each trial; it then saves a checkpoint and ends."
    )
    preemption_timeout: AtLeast0 = Field(
        default=300,
        description="Seconds a trial has to save a checkpoint when it is asked to stop.",
    )
    reproducibility: Reproducibility = Field(description="What makes runs reproducible.")
    debug: Flag = Field(
        default=False, description="Whether trials log more and dump their stacks regularly."
    )
    profiling: Profiling = Field(
        default=Profiling(), description="System metrics, sampled while trials run."
    )
    environment: Environment = Field(
        default=Environment(),
        description="The trials' Python interpreter and environment variables.",
    )
    log_policies: Items[LogPolicy] = Field(
        default=(),
        description="Actions on log lines that match a pattern; merged by name with the defaults.",
    )
    retention_policy: RetentionPolicy = Field(
        default=RetentionPolicy(), description="How long logs are kept."
    )
    integrations: Integrations = Field(
        default=Integrations(), description="Commands and URLs to call when the experiment ends."
    )
    min_validation_period: Length = Field(
        default={"batches": 0}, description="Old form, `module:Class` only: how often to validate."
    )
    min_checkpoint_period: Length = Field(
        default={"batches": 0}, description="Old form, `module:Class` only: how often to save."
    )
    scheduling_unit: AtLeast1 = Field(
        default=100, description="Old form, `module:Class` only: batches between metric reports."
    )
    records_per_epoch: AtLeast0 = Field(default=0, description="Old form: records in an epoch.")
    perform_initial_validation: Flag = Field(
        default=False, description="Old form, `module:Class` only: validate before training."
    )
    optimizations: Optimizations = Field(
        default=Optimizations(),
        description="Old form, `module:Class` only: settings of distributed training.",
    )
    bind_mounts: Items[BindMount] = Field(
        default=(), description="No effect: there are no containers."
    )
    slurm: Slurm = Field(
        default=Slurm(), description="How jobs are submitted; no effect without a Slurm cluster."
    )
    pbs: FreeMap = Field(default={}, description="No effect: PBS is not supported.")
    security: Free = Field(default=None, description=_DEAD)
    tensorboard_storage: Free = Field(default=None, description=_DEAD)
    data_layer: Free = Field(default=None, description=_DEAD)
    internal: Free = Field(default=None, description=_DEAD)
