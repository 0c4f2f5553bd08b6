"""What a fork is for the platform: where it starts, and the parts in which its trial trains. Pure.

A fork of trial 1 at batch 8000 that starts from a checkpoint at batch 7500 trains two parts, each
a run of its own: up to batch 8000 with the configuration of trial 1, and from there on with its
own. A fork of that one at batch 9000 may have three. Before the first part, a run with the new
values finds out whether they are possible, and trains nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from determined.errors import RefusedError
from determined.store import Fork, Trial


@dataclass(frozen=True)
class Part:
    """What one run of a fork trains.

    `trial_id` is whose configuration and hyperparameters it has: the fork's own in the last part.
    """

    trial_id: int
    fork: Fork | None
    """The fork that this part begins with, if that is not done yet; None before the first."""
    ends_at: int | None
    is_check: bool


@dataclass(frozen=True)
class ForkedRun:
    """What a run of a fork trains, and with what."""

    part: Part
    hparams: dict[str, Any]
    seed: int
    config: dict[str, Any]
    told: dict[str, Any]
    """The content of its info file."""


def part_of(lineage: Sequence[Fork], steps: int, from_checkpoint: str | None) -> Part:
    """Return what a run of a fork trains that starts at a step.

    Args:
        lineage: the forks that led to the trial, the oldest first.
        steps: how many batches were trained.
        from_checkpoint: what it starts from; a check needs a checkpoint.
    """
    last = lineage[-1]
    if last.changed and not last.is_checked and steps < last.at and from_checkpoint is not None:
        return Part(last.trial_id, last, None, is_check=True)
    passed = [fork for fork in lineage if fork.at <= steps]
    if len(passed) == len(lineage):
        return Part(last.trial_id, last, None, is_check=False)
    following = lineage[len(passed)]
    current = passed[-1] if passed else None
    return Part(following.parent_trial_id, current, following.at, is_check=False)


def told(part: Part, overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what the training process is told; `overrides` replace a script's own values."""
    fork = part.fork
    return {
        "at": None if fork is None else fork.at,
        "name": None if fork is None else f"trial {fork.trial_id}",
        "changed": {} if fork is None else fork.changed,
        "seed": None if fork is None else fork.seed,
        "ends_at": part.ends_at,
        "is_check": part.is_check,
        "overrides": overrides,
    }


def check_place(trial: Trial, at: int, trained: int, fork: Fork | None) -> None:
    """Refuse a batch at which a trial cannot be forked."""
    if at < 1:
        raise RefusedError(f"--at: expected a batch from 1 on, got {at}.")
    if at > trained:
        raise RefusedError(
            f"Trial {trial.id} has trained {trained} batches: it cannot be forked at batch {at}."
        )
    if fork is not None and at <= fork.at:
        raise RefusedError(
            f"Trial {trial.id} is a fork itself, and its first {fork.at} batches are those of "
            f"trial {fork.parent_trial_id}: fork that one at batch {at}."
        )


def changed_hparams(
    hparams: Mapping[str, Any], changes: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Return hyperparameters with changes, and the old and new value of each one that differs.

    Names of nested ones have dots.
    """
    new, changed = copy.deepcopy(dict(hparams)), {}
    for name, value in changes.items():
        place, key = _place(new, name)
        if key not in place:
            known = ", ".join(sorted(_names(hparams))) or "none"
            raise RefusedError(
                f"There is no hyperparameter {name!r} to change. There are: {known}."
            )
        if place[key] != value:
            changed[name] = [place[key], value]
            place[key] = value
    return new, changed


def fork_config(
    config: Mapping[str, Any],
    hparams: Mapping[str, Any],
    name: str,
    max_length: int | None = None,
) -> dict[str, Any]:
    """Return the configuration of an experiment with one trial that has these hyperparameters."""
    from determined.config import load

    searcher = config["searcher"]
    kept = ("metric", "smaller_is_better", "max_length")
    single = {key: searcher[key] for key in kept if searcher.get(key) is not None}
    if max_length is not None:
        length = single.get("max_length")
        is_in_units = isinstance(length, Mapping)
        single["max_length"] = (
            dict.fromkeys(length or {}, max_length) if is_in_units else max_length
        )
    new = {
        **copy.deepcopy(dict(config)),
        "name": name,
        "hyperparameters": _constants(hparams),
        "searcher": {"name": "single", **single},
        "repeat": 1,
    }
    return load(new).effective


def _place(hparams: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    if name in hparams:
        return hparams, name
    *groups, key = name.split(".")
    for group in groups:
        inner = hparams.get(group)
        if not isinstance(inner, dict):
            return {}, key
        hparams = inner
    return hparams, key


def _names(hparams: Mapping[str, Any], before: str = "") -> list[str]:
    found = []
    for name, value in hparams.items():
        is_group = isinstance(value, dict) and value
        found += _names(value, f"{before}{name}.") if is_group else [f"{before}{name}"]
    return found


def _constants(hparams: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _constants(value)
        if isinstance(value, dict) and value
        else {"type": "const", "val": value}
        for name, value in hparams.items()
    }
