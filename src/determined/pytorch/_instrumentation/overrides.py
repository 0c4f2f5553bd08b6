"""Overrides of a script's `init` and `fit` from outside.

A tool that runs a user's script as it is, such as `verify_resume`, installs its own decisions with
`overriding` around it; `init` and `Trainer.fit` ask for them. `DET_TEST_MODE=1` does the same from
outside the process, for the platform's test mode.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import os
from collections.abc import Iterator
from typing import Any

from determined._info import TEST_MODE_VARIABLE
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._instrumentation.observer import UNOBSERVED, Observer
from determined.pytorch._plan import FitPlan
from determined.pytorch._trial import PyTorchTrial


class Overrides:
    """Leaves everything as the script has it; subclasses override what they decide."""

    def init(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of `init`."""
        return options

    def fit(self, plan: FitPlan) -> FitPlan:
        """Return what a `fit` does."""
        return plan

    def observer(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> Observer:
        """Return who watches it."""
        return UNOBSERVED

    def after_fit(self, latest_checkpoint: str | None) -> None:
        """Run when a `fit` has finished, or stopped on request."""


class _TestMode(Overrides):
    """Whatever its length, a `fit` trains one batch, validates one and saves."""

    def fit(self, plan: FitPlan) -> FitPlan:
        return dataclasses.replace(plan, test_mode=True)


_current: contextvars.ContextVar[Overrides] = contextvars.ContextVar("overrides")


def current_overrides() -> Overrides:
    """Return what is in force here."""
    is_test = os.environ.get(TEST_MODE_VARIABLE) == "1"
    return _current.get(_TestMode() if is_test else Overrides())


@contextlib.contextmanager
def overriding(overrides: Overrides) -> Iterator[None]:
    """Have scripts that run in this block do as they are told."""
    token = _current.set(overrides)
    try:
        yield
    finally:
        _current.reset(token)
