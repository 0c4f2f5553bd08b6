"""What one contender is asked to do: a value that travels to its process as JSON."""

from __future__ import annotations

import dataclasses
import json


@dataclasses.dataclass(frozen=True)
class Job:
    """One training run, the same for every contender of a comparison.

    Attributes:
        workload: Model and data, a name in `workloads.py`.
        is_lean: Everything switched off that can be, instead of the contender's defaults.
        warmup, lead, turn, rounds: Batches before the first turn; batches that begin each turn, not
            timed, as caches are cold; batches timed in each turn; number of turns.
        validation_batches: Validate so many batches after each training batch.
        save_every: Save a checkpoint every so many batches.
        is_resumed: Continue from the checkpoint that an earlier process left.
        metrics, callbacks, models, report_every: Sizes that are grown, one at a time.
    """

    workload: str = "tiny"
    is_lean: bool = False
    warmup: int = 200
    lead: int = 20
    turn: int = 100
    rounds: int = 10
    ranks: int = 1
    aggregation: int = 1
    validation_batches: int = 0
    save_every: int = 0
    is_resumed: bool = False
    metrics: int = 1
    callbacks: int = 0
    models: int = 1
    report_every: int = 100
    in_terminal: bool = False

    @property
    def batches(self) -> int:
        """The length of training: a little more, so that the last turn ends inside of it."""
        return self.warmup + self.rounds * (self.lead + self.turn) + 2

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> Job:
        return Job(**json.loads(text))
