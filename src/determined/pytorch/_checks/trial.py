"""What must be true of a trial before it trains."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from determined.errors import InvalidExperimentException
from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._ranks.fsdp import is_sharded
from determined.pytorch._trial import PyTorchTrial
from determined.util import is_overridden


def check_trial(
    trial: PyTorchTrial, context: PyTorchTrialContext, callbacks: Mapping[str, PyTorchCallback]
) -> None:
    """Raise, or warn, about what would not work."""
    for name, callback in callbacks.items():
        if is_overridden(callback.on_checkpoint_end, PyTorchCallback):
            warnings.warn(
                f"The callback {name!r} overrides on_checkpoint_end, which is deprecated: use "
                "on_checkpoint_write_end.",
                FutureWarning,
                stacklevel=4,
            )
    if not context.models:
        raise InvalidExperimentException(
            "The trial wraps no model: in its __init__, call self.model = "
            "context.wrap_model(model)."
        )
    if not context.optimizers:
        raise InvalidExperimentException(
            "The trial wraps no optimizer: in its __init__, call "
            "self.optimizer = context.wrap_optimizer(optimizer)."
        )
    by_batch = is_overridden(trial.evaluate_batch, PyTorchTrial)
    full_dataset = is_overridden(trial.evaluate_full_dataset, PyTorchTrial)
    if by_batch == full_dataset:
        raise InvalidExperimentException(
            "The trial must override exactly one of evaluate_batch and evaluate_full_dataset; it "
            "overrides "
            f"{'both' if by_batch else 'neither'}."
        )
    if full_dataset and any(map(is_sharded, context.models)):
        raise InvalidExperimentException(
            "evaluate_full_dataset runs on one rank, which has only a part of a model wrapped with "
            "parallel='fsdp': override evaluate_batch instead, which runs on all."
        )
