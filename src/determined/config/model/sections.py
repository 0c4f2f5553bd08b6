"""The smaller sections: resources, environment, log policies, old optimizations and others."""

from __future__ import annotations

import re
import warnings
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from determined.config.model.types import (
    AtLeast0,
    AtLeast1,
    Command,
    Days,
    Expected,
    Flag,
    Free,
    FreeMap,
    Items,
    Number,
    Priority,
    Section,
    Seed,
    Size,
    Text,
    matching,
    wrong,
)

_NO_CONTAINERS = "No effect: there are no containers."


class Device(Section):
    """A host device that a container would see."""

    host_path: Text = Field(description=_NO_CONTAINERS)
    container_path: Text = Field(description=_NO_CONTAINERS)
    mode: Text = Field(default="mrw", description=_NO_CONTAINERS)


def _device(value: Any) -> Any:
    """Read `host:container:mode`, the form on one line."""
    if not isinstance(value, str):
        return value
    parts = value.split(":")
    if not 2 <= len(parts) <= 3:
        raise wrong("a mapping, or text as host_path:container_path:mode")
    return dict(zip(("host_path", "container_path", "mode"), parts, strict=False))


class Resources(Section):
    """What each trial runs on."""

    slots_per_trial: AtLeast0 = Field(
        default=1,
        description="Slots per trial: GPUs, or CPU slots if there are none. 0: one CPU process.",
    )
    trials_per_slot: AtLeast1 = Field(
        default=1, description="How many trials share a slot; needs `slots_per_trial` of at most 1."
    )
    max_slots: AtLeast0 | None = Field(
        default=None, description="The most slots the experiment may use at once; null: no limit."
    )
    priority: Priority | None = Field(
        default=None, description="Priority from 1 to 99; lower numbers run first."
    )
    resource_pool: Text = Field(
        default="",
        description="On a cluster: the custom resource or the `pool` label of the nodes to use.",
    )
    weight: Annotated[Number, Field(gt=0)] = Field(
        default=1.0, description="No effect: scheduling is by priority, not fair share."
    )
    is_single_node: Flag | None = Field(default=None, description="No effect on one machine.")
    shm_size: Size | None = Field(default=None, description=_NO_CONTAINERS)
    devices: Items[
        Annotated[Device, BeforeValidator(_device, json_schema_input_type=Device | str)]
    ] = Field(default=(), description=_NO_CONTAINERS)
    native_parallel: Flag = Field(default=False, description="No effect.")
    agent_label: Text | None = Field(default=None, description="No effect.")


class Optimizations(Section):
    """Old settings of distributed training, read for `module:Class` entrypoints."""

    aggregation_frequency: AtLeast1 = Field(
        default=1, description="Batches to accumulate gradients over before an optimizer step."
    )
    average_aggregated_gradients: Flag = Field(
        default=True,
        description="Whether to average accumulated gradients instead of summing them.",
    )
    average_training_metrics: Flag = Field(
        default=True,
        description="No effect: training metrics are always averaged over ranks.",
    )
    gradient_compression: Flag = Field(
        default=False, description="Whether to all-reduce gradients in half precision."
    )
    mixed_precision: Literal["O0", "O1", "O2", "O3"] = Field(default="O0", description="No effect.")
    grad_updates_size_file: Text | None = Field(default=None, description="No effect.")
    tensor_fusion_threshold: AtLeast0 = Field(default=64, description="No effect.")
    tensor_fusion_cycle_time: AtLeast0 = Field(default=1, description="No effect.")
    auto_tune_tensor_fusion: Flag = Field(default=False, description="No effect.")


class Profiling(Section):
    """System metrics, sampled while trials run."""

    enabled: Flag = Field(
        default=False, description="Whether to sample CPU, memory, disk and GPU usage."
    )
    begin_on_batch: AtLeast0 = Field(default=0, description="No effect.")
    end_after_batch: AtLeast0 | None = Field(default=None, description="No effect.")
    sync_timings: Flag = Field(default=True, description="No effect.")


Variable = Annotated[
    Text,
    matching(
        re.compile(r"[^=\s\0][^=\0]*(=[^\0]*)?", re.DOTALL).fullmatch,
        "an environment variable as NAME=VALUE",
    ),
    Expected("an environment variable as NAME=VALUE"),
]


class VariablesByDevice(Section):
    """Environment variables of trials, by device."""

    cpu: Items[Variable] = Field(default=(), description="Variables of trials without a GPU.")
    cuda: Items[Variable] = Field(default=(), description="Variables of trials on NVIDIA GPUs.")
    rocm: Items[Variable] = Field(default=(), description="Variables of trials on AMD GPUs.")


class Environment(Section):
    """What trials run in; by default, the environment that created the experiment."""

    environment_variables: Annotated[
        VariablesByDevice, Expected("a list of NAME=VALUE, or such lists by device")
    ] = Field(
        default=VariablesByDevice(),
        description="A list of NAME=VALUE, or one such list per device (cpu, cuda, rocm).",
    )
    python: Text | None = Field(
        default=None, description="The Python interpreter to run trials with."
    )
    virtualenv: Text | None = Field(
        default=None, description="The virtual environment to run trials in, instead of `python`."
    )
    warm_start: Flag = Field(
        default=True,
        description="Whether trials may start from a process that has already imported their "
        "libraries.",
    )
    image: (
        Annotated[
            Text | dict[str, Text],
            Expected("text, or a mapping by device"),
            BeforeValidator(lambda value: _image(value)),
        ]
        | None
    ) = Field(default=None, description=_NO_CONTAINERS)
    force_pull_image: Flag = Field(default=False, description=_NO_CONTAINERS)
    registry_auth: FreeMap | None = Field(default=None, description=_NO_CONTAINERS)
    add_capabilities: Items[Text] = Field(default=(), description=_NO_CONTAINERS)
    drop_capabilities: Items[Text] = Field(default=(), description=_NO_CONTAINERS)
    pod_spec: FreeMap | None = Field(default=None, description=_NO_CONTAINERS)
    ports: FreeMap | None = Field(default=None, description=_NO_CONTAINERS)
    proxy_ports: Items[Free] = Field(default=(), description=_NO_CONTAINERS)


def _image(value: Any) -> Any:
    images = list(value.values()) if isinstance(value, dict) else [value]
    if not all(isinstance(image, str) for image in images):
        raise wrong("text, or a mapping by device")
    return value


class BindMount(Section):
    """A host folder that a container would mount."""

    host_path: Text = Field(description=_NO_CONTAINERS)
    container_path: Text = Field(description=_NO_CONTAINERS)
    read_only: Flag = Field(default=False, description=_NO_CONTAINERS)
    propagation: Text = Field(default="rprivate", description=_NO_CONTAINERS)


def _is_pattern(text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a later Python may read differently
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError):
            return False
    return True


class LogPolicy(Section):
    """What to do about log lines that match a pattern."""

    keeps_null: ClassVar[frozenset[str]] = frozenset({"pattern"})
    name: Annotated[Text, Field(min_length=1)] = Field(
        description="The tag that matching trials get."
    )
    pattern: Annotated[Text, matching(_is_pattern, "a regular expression")] | None = Field(
        default=None,
        description="A regular expression, searched in every log line; null turns the policy off.",
    )
    action: Literal["cancel_retries", "exclude_node"] | None = Field(
        default=None,
        description="Do not restart after a failure, or restart on another node; null: only tag.",
    )


class RetentionPolicy(Section):
    """How long logs are kept."""

    log_retention_days: Days | None = Field(
        default=None,
        description="Days to keep logs: -1 keeps them forever, 0 until the next cleanup.",
    )


class Slurm(Section):
    """How the jobs of an experiment are submitted to Slurm."""

    sbatch_args: Items[Text] = Field(
        default=(),
        description="More options of `sbatch`, such as `--time=12:00:00`; those that the platform "
        "decides itself are refused.",
    )
    slots_per_node: AtLeast1 | None = Field(
        default=None,
        description="The most slots of a trial on one node; without it, those of the largest node.",
    )
    gpu_type: Text | None = Field(default=None, description="The type of GPU, as Slurm calls it.")


class Reproducibility(Section):
    """What makes runs reproducible."""

    experiment_seed: Seed = Field(
        description="The seed of the search and of all trials; by default the time of creation."
    )


class Integrations(Section):
    """Commands and URLs to call when an experiment ends."""

    on_end: Command | None = Field(
        default=None,
        description="A command to run, or a URL to post to, when the experiment ends.",
    )
    on_failure: Command | None = Field(
        default=None,
        description="A command to run, or a URL to post to, when the experiment fails.",
    )
    pachyderm: FreeMap | None = Field(default=None, description="No effect.")
    webhooks: FreeMap | None = Field(
        default=None, description="No effect: use `on_end` and `on_failure`."
    )
