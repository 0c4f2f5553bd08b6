"""An experiment's configuration as a typed, frozen value: every key, its type and its default."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from determined.config._hyperparameters import Hyperparameter
from determined.config._searcher import AnySearcher
from determined.config._sections import (
    BindMount,
    Environment,
    Integrations,
    LogPolicy,
    Optimizations,
    Profiling,
    Reproducibility,
    Resources,
    RetentionPolicy,
)
from determined.config._storage import AnyStorage
from determined.config._types import (
    AtLeast0,
    AtLeast1,
    Command,
    Duration,
    Expected,
    Flag,
    Free,
    FreeMap,
    Items,
    Length,
    Section,
    Text,
)

DEFAULT_WORKSPACE = "Uncategorized"
_DEAD = "No effect."


def _once(labels: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(labels))


class Configuration(Section):
    """What an experiment is: its code's entrypoint, its search, and how its trials are run."""

    name: Text = Field(description="The name of the experiment; three random words by default.")
    description: Text | None = Field(default=None, description="What the experiment is about.")
    labels: Annotated[Items[Text], AfterValidator(_once)] = Field(
        default=(), description="Words to find the experiment by."
    )
    data: FreeMap = Field(
        default={},
        description="Anything for the training code; `data.secrets` is masked when shown.",
    )
    workspace: Text = Field(default=DEFAULT_WORKSPACE, description="The workspace of the project.")
    project: Text = Field(default=DEFAULT_WORKSPACE, description="The project of the experiment.")
    entrypoint: Command | None = Field(
        default=None,
        description="What a trial runs: a command, as text for the shell or as its words.",
    )
    hyperparameters: Annotated[
        dict[str, Hyperparameter], Expected("a mapping of names to values or ranges")
    ] = Field(
        default={}, description="What trials differ in: constants, ranges and groups of them."
    )
    searcher: AnySearcher = Field(description="Which trials are run, and to which length.")
    resources: Resources = Field(default=Resources(), description="What trials run on.")
    checkpoint_storage: AnyStorage = Field(
        description="Where checkpoints live; which of them stay."
    )
    checkpoint_policy: Literal["best", "all", "none"] = Field(
        default="best", description="Save after which validations; `module:Class` entrypoints only."
    )
    max_restarts: AtLeast0 = Field(
        default=5, description="How often a trial that fails without progress is started again."
    )
    max_wall_time: Duration | None = Field(
        default=None,
        description="How long the experiment may run; then its trials save and it ends.",
    )
    max_trial_wall_time: Duration | None = Field(
        default=None, description="How long each trial may run; then it saves and ends."
    )
    preemption_timeout: AtLeast0 = Field(
        default=300, description="Seconds that a trial has to save when it is asked to stop."
    )
    reproducibility: Reproducibility = Field(description="What makes a second run the same.")
    debug: Flag = Field(
        default=False, description="Whether trials log more, and dump stacks regularly."
    )
    profiling: Profiling = Field(default=Profiling(), description="Samples of the machine.")
    environment: Environment = Field(
        default=Environment(), description="The interpreter and environment of trials."
    )
    log_policies: Items[LogPolicy] = Field(
        default=(),
        description="What lines in the log lead to; merged by name with the default ones.",
    )
    retention_policy: RetentionPolicy = Field(
        default=RetentionPolicy(), description="How long records stay."
    )
    integrations: Integrations = Field(
        default=Integrations(), description="What is told when the experiment ends."
    )
    min_validation_period: Length = Field(
        default={"batches": 0}, description="Old form, `module:Class` only: how often to validate."
    )
    min_checkpoint_period: Length = Field(
        default={"batches": 0}, description="Old form, `module:Class` only: how often to save."
    )
    scheduling_unit: AtLeast1 = Field(
        default=100, description="Old form, `module:Class` only: batches between two reports."
    )
    records_per_epoch: AtLeast0 = Field(default=0, description="Old form: records of an epoch.")
    perform_initial_validation: Flag = Field(
        default=False, description="Old form, `module:Class` only: validate before training."
    )
    optimizations: Optimizations = Field(
        default=Optimizations(), description="Old form, `module:Class` only: distributed training."
    )
    bind_mounts: Items[BindMount] = Field(
        default=(), description="No effect: there are no containers."
    )
    slurm: FreeMap = Field(default={}, description="No effect: no Slurm is involved.")
    pbs: FreeMap = Field(default={}, description="No effect: no PBS is involved.")
    security: Free = Field(default=None, description=_DEAD)
    tensorboard_storage: Free = Field(default=None, description=_DEAD)
    data_layer: Free = Field(default=None, description=_DEAD)
    internal: Free = Field(default=None, description=_DEAD)


def plain(value: Any) -> Any:
    """Write a model, and all in it, as dictionaries and lists, what tells its kind first."""
    if isinstance(value, Section):
        fields = type(value).model_fields
        names = sorted(fields, key=lambda name: name not in ("name", "type"))
        own = {fields[name].alias or name: getattr(value, name) for name in names}
        return {key: plain(item) for key, item in {**own, **(value.model_extra or {})}.items()}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value
