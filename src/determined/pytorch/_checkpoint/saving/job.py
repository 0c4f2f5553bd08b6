"""What one checkpoint consists of."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from determined._contracts.checkpoint_layout import (
    APEX,
    CALLBACKS,
    MODELS,
    MODULES,
    OPTIMIZERS,
    RANDOM,
    SCALER,
    SCHEDULERS,
)
from determined.pytorch._checkpoint.files.encoding import to_plain
from determined.pytorch._checkpoint.saving.frozen import Place
from determined.pytorch._checkpoint.state.training_state import RunRecord
from determined.pytorch._schedule import _TrialState


@dataclasses.dataclass(frozen=True)
class SaveJob:
    """Everything one checkpoint consists of.

    `is_best` if the policy had it written as the best so far; `is_asked_for` if it would have been
    written anyway; `is_copy` if its tensors are what `Saver.copy` returned. `frozen` are weights
    that require no gradient, `data` says what was trained on since the last checkpoint.
    """

    tensors: dict[str, Any]
    ranks: list[dict[str, Any]]
    state: _TrialState
    run: RunRecord
    load_data: Mapping[str, Any]
    metadata: dict[str, Any]
    is_best: bool
    is_asked_for: bool
    is_copy: bool = False
    frozen: Mapping[Place, str] = dataclasses.field(default_factory=dict)
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def plain(self) -> SaveJob:
        """Return the same with states of plain values only, which can be read again."""
        if self.is_copy:  # made of plain values already, but for what a callback added
            own = (MODELS, OPTIMIZERS, SCHEDULERS, CALLBACKS, RANDOM, MODULES, SCALER, APEX)
            tensors = {k: v if k in own else to_plain(v) for k, v in self.tensors.items()}
            return dataclasses.replace(self, tensors=tensors)
        return dataclasses.replace(
            self, tensors=to_plain(self.tensors), ranks=[to_plain(rank) for rank in self.ranks]
        )

    def replaceable(self, storage_id: str) -> str | None:
        """Return which checkpoint the next best one replaces, once this one is stored."""
        if not self.is_best:
            return self.run.best_checkpoint
        return None if self.is_asked_for else storage_id
