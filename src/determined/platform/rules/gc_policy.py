"""The gc policy of an experiment: how many checkpoints its configuration keeps. Pure.

Which ones these are is decided in `_contracts/retention.py`, for all that delete checkpoints.
"""

from __future__ import annotations

from typing import Any

from determined.store import Experiment, Retention


def has_policy(experiment: Experiment) -> bool:
    """Whether the platform decides which checkpoints stay; not for runs it did not start."""
    return "save_trial_latest" in (experiment.config.get("checkpoint_storage") or {})


def no_policy(experiment: Experiment) -> str:
    """The message for experiments without a policy."""
    return (
        f"experiment {experiment.id} was not started by the platform: its run decides which "
        "checkpoints it keeps."
    )


def policy_of(experiment: Experiment) -> Retention:
    """What the configuration of an experiment says."""
    section = experiment.checkpoint_storage
    return Retention(
        section["save_experiment_best"], section["save_trial_best"], section["save_trial_latest"]
    )


def with_policy(config: dict[str, Any], policy: Retention) -> dict[str, Any]:
    """The configuration with another policy."""
    section = config["checkpoint_storage"] | {
        "save_experiment_best": policy.experiment_best,
        "save_trial_best": policy.trial_best,
        "save_trial_latest": policy.trial_latest,
    }
    return config | {"checkpoint_storage": section}
