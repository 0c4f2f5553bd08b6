"""What somebody else than the script decides about its `init` and `fit`.

A tool that runs a user's script as it is, such as `verify_resume`, installs its own decisions with
`overriding` around it; `init` and `Trainer.fit` ask for them.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._observer import UNOBSERVED, Observer
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
        """Run when a `fit` came to its end, or stopped as it was asked to."""


_current: contextvars.ContextVar[Overrides] = contextvars.ContextVar("overrides")
_NONE = Overrides()


def current_overrides() -> Overrides:
    """Return what is in force here."""
    return _current.get(_NONE)


@contextlib.contextmanager
def overriding(overrides: Overrides) -> Iterator[None]:
    """Have scripts that run in this block do as they are told."""
    token = _current.set(overrides)
    try:
        yield
    finally:
        _current.reset(token)
