"""The points where a run can be interrupted, and which of them to choose.

A run that is not interrupted records the points that it passes; an interrupted one acts at one of
them. A point is named by the batch, so that every start of the run means the same by it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._instrumentation.observer import Observer, Part

P = ParamSpec("P")
R = TypeVar("R")

_PARTS: tuple[Part, ...] = (
    "data",
    "train_batch",
    "backward",
    "optimizer",
    "scheduler",
    "callbacks",
    "validation",
    "checkpoint",
)
_AFTER = "after "

BETWEEN, IN_BATCH, IN_HOOK = "between two batches", "in a batch", "in a hook"
IN_VALIDATION, IN_SAVE = "in a validation", "at a save"
KINDS = (BETWEEN, IN_BATCH, IN_HOOK, IN_VALIDATION, IN_SAVE)


@dataclasses.dataclass(frozen=True, order=True)
class StopPoint:
    """Just before or after a stage: the `nth` time since batch `batch` began (-1: before any)."""

    batch: int
    stage: str
    nth: int = 1

    @property
    def kind(self) -> str:
        """What the point is in, in words."""
        stage = self.stage.removeprefix(_AFTER)
        if "validation" in stage or stage == "evaluate_batch":
            return IN_VALIDATION
        if "checkpoint" in stage or stage == "state_dict":
            return IN_SAVE
        if stage.startswith("on_"):
            return IN_HOOK
        return BETWEEN if self.stage == "data" else IN_BATCH

    def __str__(self) -> str:
        where = self.stage if self.stage.startswith(_AFTER) else f"before {self.stage}"
        often = f", {self.nth} times" if self.nth > 1 else ""
        return f"{self.kind} ({where}{often}, batch {self.batch})"


class StopPoints(Observer):
    """Sees every point that a run passes, and interrupts it at one."""

    def __init__(
        self, context: PyTorchTrialContext, at: StopPoint | None, interrupt: Callable[[], None]
    ) -> None:
        self._context = context
        self._at = at
        self._interrupt = interrupt
        self._batch: int | None = None
        self._times: Counter[str] = Counter()
        self.passed: list[StopPoint] = []

    def reach(self, stage: str) -> None:
        """Note a point, and interrupt the run if it is the one."""
        index = self._context._current_batch_idx
        batch = -1 if index is None else index
        if batch != self._batch:
            self._batch, self._times = batch, Counter()
        self._times[stage] += 1
        point = StopPoint(batch, stage, self._times[stage])
        self.passed.append(point)
        if point == self._at:
            self._interrupt()

    def watch(self, part: Part, call: Callable[P, R]) -> Callable[P, R]:
        if part not in _PARTS:
            return call
        stage = getattr(call, "__name__", part) if part == "callbacks" else part

        def passing(*args: P.args, **kwargs: P.kwargs) -> R:
            self.reach(stage)
            result = call(*args, **kwargs)
            self.reach(_AFTER + stage)
            return result

        return passing


def plan_stops(passed: Sequence[StopPoint], kinds: Sequence[str] = KINDS) -> list[StopPoint]:
    """Choose a point of each kind that the run has, spread over it, each in a later batch."""
    plan: list[StopPoint] = []
    for index, kind in enumerate(kinds):
        wanted = (index + 1) / (len(kinds) + 1) * len(passed)
        last = plan[-1].batch if plan else -1
        found = [i for i, point in enumerate(passed) if point.kind == kind and point.batch > last]
        if found:
            plan.append(passed[min(found, key=lambda i: abs(i - wanted))])
    return plan
