"""What makes a run a fork: the run that it branches off from, and the batch where it does."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from determined._info import fork_of_trial
from determined.pytorch._schedule import is_whole_number


@dataclasses.dataclass(frozen=True)
class Fork:
    """A run whose first `at` batches are another one's; None while it is before all forks.

    `name` tells it from other forks. `source` is the parent's run id, or a checkpoint of it by id
    or path; None if the platform has found the checkpoint. `changed` has old and new values of
    hyperparameters; None if they follow from the checkpoint.

    A trial that is a fork of the platform trains in parts: each has the hyperparameters of one of
    its ancestors, and ends where the next one begins (`ends_at`). With `is_check`, the process only
    finds out whether the changes are possible.
    """

    at: int | None
    name: str | None = None
    source: str | None = None
    changed: Mapping[str, tuple[Any, Any]] | None = None
    seed: int | None = None
    ends_at: int | None = None
    is_check: bool = False


def asked_fork(fork_from: Any, is_managed: bool) -> Fork | None:
    """Return what `fit` or the platform asks for."""
    if is_managed:
        if fork_from is not None:
            raise ValueError(
                "`fork_from` is for runs outside the platform: use `det trial fork TRIAL --at K`."
            )
        return _of_trial(fork_of_trial())
    if fork_from is None:
        return None
    if not isinstance(fork_from, tuple) or len(fork_from) != 2:
        raise TypeError(
            "`fork_from` must be a pair: a run id, or the path or id of a checkpoint, and the "
            f"number of batches to branch off after, such as ('my-run', 8000), got {fork_from!r}."
        )
    source, at = fork_from
    if not isinstance(source, (str, os.PathLike)) or not os.fspath(source):
        raise TypeError(
            "`fork_from` must name a run id, or the path or id of a checkpoint, first, got "
            f"{source!r}."
        )
    if not is_whole_number(at) or at < 1:
        raise ValueError(
            "`fork_from` must name the batch to branch off after, a whole number of at least 1, "
            f"second, got {at!r}."
        )
    return Fork(int(at), source=str(os.fspath(source)))


def _of_trial(told: Mapping[str, Any] | None) -> Fork | None:
    if told is None:
        return None
    changed = {name: (old, new) for name, (old, new) in told["changed"].items()}
    return Fork(
        told["at"],
        name=told["name"],
        changed=changed,
        seed=told["seed"],
        ends_at=told["ends_at"],
        is_check=told["is_check"],
    )


def with_overrides(hparams: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a script's hyperparameters with those of its fork, which the script cannot know.

    Only of a script that was first started by hand, where it has values of its own.
    """
    overrides = (fork_of_trial() or {}).get("overrides")
    return {**(hparams or {}), **overrides} if overrides else hparams
