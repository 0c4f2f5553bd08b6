"""Where a trial comes from and what branches off from it, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from determined.store import Fork, Reader


@dataclass(frozen=True)
class Relative:
    """The trial on the other side of a fork; `text` says how the two are related."""

    trial_id: int
    experiment_id: int
    at: int
    changed: dict[str, Any]
    text: str


@dataclass(frozen=True)
class Lineage:
    """The parent of a trial, None if it is no fork, and its own forks."""

    parent: Relative | None
    forks: list[Relative]

    @property
    def lines(self) -> list[str]:
        """All of it, one line each."""
        own = [] if self.parent is None else [self.parent.text]
        return own + [fork.text for fork in self.forks]


def lineage_of(reader: Reader, trial_id: int) -> Lineage:
    """Read the lineage of a trial."""
    fork = reader.forks.fork(trial_id)
    parent = None
    if fork is not None:
        parent = _relative(reader, fork, fork.parent_trial_id, "fork of trial {} at batch {}")
    forks = [
        _relative(reader, found, found.trial_id, "forked as trial {} at batch {}")
        for found in reader.forks.forks_of(trial_id)
    ]
    return Lineage(parent, forks)


def _relative(reader: Reader, fork: Fork, other: int, words: str) -> Relative:
    from determined.config import masked_hparams

    sides = [masked_hparams({n: v[i] for n, v in fork.changed.items()}) for i in (0, 1)]
    changed = {name: [old, sides[1][name]] for name, old in sides[0].items()}
    trial = reader.trial(other)
    assert trial is not None, "a fork and its parent refer to each other"
    experiment = reader.experiment(trial.experiment_id)
    changes = [f"{name} {old} -> {new}" for name, (old, new) in changed.items()]
    changes += [] if fork.seed is None else [f"seed {fork.seed}"]
    gone = experiment is not None and experiment.state == "DELETED"
    place = f" (experiment {trial.experiment_id}{', deleted' if gone else ''})"
    said = words.format(f"{other}{place}", fork.at)
    said += f": {', '.join(changes)}" if changes else ", unchanged"
    return Relative(other, trial.experiment_id, fork.at, changed, said)
