"""Experiments that the platform did not start: their configuration, and their state. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from determined.config import Completion, load
from determined.errors import ConfigurationError
from determined.journal import Introduction
from determined.platform.rules.states import State

METRIC = "unmanaged"
"""The searcher's metric of those that name none: nothing is reported by that name."""

WORKSPACE = "Uncategorized"
"""The workspace of projects that are named alone."""

_ALL_STAY = {"save_trial_latest": 1_000_000}
# If trials ended differently, the worst state is the experiment's.
_WORST_FIRST = (State.ERROR, State.CANCELED, State.COMPLETED)


def completed_config(
    values: Mapping[str, Any], storage: Mapping[str, Any], hparams: Mapping[str, Any], created: int
) -> dict[str, Any]:
    """A complete configuration with all defaults; ConfigurationError if values are wrong.

    Hyperparameters are those that are used, whatever they look like. No checkpoint is ever deleted
    for the sake of a policy: the files belong to the script.
    """
    completion = Completion(
        created=created, checkpoint_storage={**_ALL_STAY, **storage}, managed=False
    )
    effective = load(values, completion=completion).effective
    return {**effective, "hyperparameters": dict(hparams)}


def config_of(introduction: Introduction) -> dict[str, Any]:
    """The configuration of a script, from its introduction."""
    values = {
        "name": introduction.name[:120] or "python",
        "entrypoint": shlex.join(introduction.command) or "python",
        "searcher": {
            "name": "single",
            "metric": introduction.metric or METRIC,
            "smaller_is_better": introduction.smaller_is_better,
        },
    }
    hparams, seed = introduction.hparams, max(introduction.seed, 0)
    try:
        return completed_config(values | _filed(introduction), introduction.storage, hparams, seed)
    except ConfigurationError:  # a storage, or a seed, that only the script understands
        storage = {"type": "directory", "container_path": "/nonexistent"}
        return completed_config(values, storage, hparams, 0)


def _filed(introduction: Introduction) -> dict[str, Any]:
    """Where a script wants its run to be filed."""
    given: dict[str, Any] = {
        "labels": introduction.labels,
        "description": introduction.description,
    }
    if introduction.project:
        given["workspace"], given["project"] = project_of(introduction.project)
    return {key: value for key, value in given.items() if value}


def project_of(project: str) -> tuple[str, str]:
    """The workspace and the project that `project` or `workspace/project` means."""
    workspace, slash, name = project.partition("/")
    return (workspace, name) if slash and workspace and name else (WORKSPACE, project)


def state_of(trial_states: Iterable[str]) -> State:
    """The state of an experiment with such trials."""
    states = {State(state) for state in trial_states}
    if any(not state.is_terminal for state in states):
        return State.ACTIVE
    return next((state for state in _WORST_FIRST if state in states), State.COMPLETED)


def has_no_meaning(verb: str, what: str) -> str:
    """Why a command is refused."""
    return (
        f"{what} is unmanaged: its script was started manually, not by the platform, which cannot "
        f"{verb} it. Do that where it runs."
    )
