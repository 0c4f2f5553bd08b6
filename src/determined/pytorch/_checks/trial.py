"""What must be true of a trial before it trains."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import Any

from determined.errors import InvalidExperimentException
from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._checks.arguments import check_kind
from determined.pytorch._checks.signatures import (
    check_plain_calls,
    evaluate_call,
    returned_names,
    train_call,
)
from determined.pytorch._checks.updates import warn_of_strays
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._plan import FitPlan
from determined.pytorch._ranks.fsdp import is_sharded
from determined.pytorch._trial import PyTorchTrial
from determined.util import is_overridden

logger = logging.getLogger("determined.pytorch")


def check_takes_part(trial: object, context: object) -> None:
    """Refuse what a `Trainer` cannot train with."""
    if isinstance(trial, type) and issubclass(trial, PyTorchTrial):
        raise TypeError(
            f"`trial` is the class {trial.__name__}: write pytorch.Trainer({trial.__name__}"
            "(context), context)."
        )
    if not isinstance(trial, PyTorchTrial):
        raise TypeError(
            f"`trial` must be an instance of a pytorch.PyTorchTrial subclass, got {trial!r}."
        )
    check_kind(
        "context", context, PyTorchTrialContext, "the context of pytorch.init()", optional=False
    )


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
        _refuse_first_generation(trial)
        raise InvalidExperimentException(
            "The trial wraps no model: in its __init__, call self.model = "
            "context.wrap_model(model)."
        )
    if not context.optimizers:
        raise InvalidExperimentException(
            "The trial wraps no optimizer: in its __init__, call "
            "self.optimizer = context.wrap_optimizer(optimizer)."
        )
    if is_overridden(trial.build_validation_data_loader, PyTorchTrial):
        check_evaluates(trial, neither=True)
    full_dataset = is_overridden(trial.evaluate_full_dataset, PyTorchTrial)
    train_call(trial.train_batch)
    evaluate_call(trial.evaluate_batch)
    methods = ["build_training_data_loader", "build_validation_data_loader", "evaluation_reducer"]
    takes = {"evaluate_full_dataset": 1, "get_batch_length": 1, **dict.fromkeys(methods, 0)}
    check_plain_calls(trial, takes)
    _check_reducer_names(trial)
    warn_of_strays(context, trial)
    if full_dataset and any(map(is_sharded, context.models)):
        raise InvalidExperimentException(
            "evaluate_full_dataset runs on one rank, which holds only a shard of a model wrapped "
            "with parallel='fsdp': override evaluate_batch instead, which runs on all ranks."
        )


def check_evaluates(trial: PyTorchTrial, neither: bool = False) -> None:
    """Raise unless the trial says how to validate, in one way; `neither` may be right as well."""
    by_batch = is_overridden(trial.evaluate_batch, PyTorchTrial)
    full_dataset = is_overridden(trial.evaluate_full_dataset, PyTorchTrial)
    if by_batch == full_dataset and (by_batch or not neither):
        raise InvalidExperimentException(
            "The trial must override exactly one of evaluate_batch and evaluate_full_dataset; it "
            f"overrides {'both' if by_batch else 'neither'}. (To train without validation, leave "
            "out build_validation_data_loader, or return None from it.)"
        )


def check_set_names(sets: Mapping[Any, object]) -> None:
    """Raise unless validation sets have names by which their metrics can be told apart."""
    if not sets:
        raise ValueError(
            "build_validation_data_loader returned a dictionary without any loader: return None "
            "to train without validation."
        )
    for name in sets:
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise ValueError(
                "The keys of build_validation_data_loader's dictionary must be names of "
                f"validation sets, got {name!r}."
            )


def warn_of_no_validation(context: PyTorchTrialContext, plan: FitPlan) -> None:
    """Warn which arguments of `fit` have no effect without validation data."""
    if context.distributed.rank != 0:
        return
    never = FitPlan(plan.max_length)
    asked = {
        "validation_period": plan.validation_period != never.validation_period,
        "metric": plan.metric is not None and not plan.is_metric_configured,
        "step_zero_validation": plan.step_zero_validation,
    }
    without = [name for name, is_asked in asked.items() if is_asked]
    if without:
        logger.warning(
            f"{' and '.join(without)} of fit {'has' if len(without) == 1 else 'have'} no effect: "
            "build_validation_data_loader returns nothing to validate on."
        )
    else:
        logger.info("There is no validation data: training continues without validation.")


def _refuse_first_generation(trial: PyTorchTrial) -> None:
    """Name the API of a trial that hands out its model instead of wrapping it."""
    old = [name for name in ("build_model", "optimizer") if callable(getattr(trial, name, None))]
    if old:
        raise InvalidExperimentException(
            f"{type(trial).__name__} was written for Determined before 0.14, where trials have "
            f"{' and '.join(f'{name}()' for name in old)} and get the model in train_batch. "
            "Since then, trials create both in __init__ and pass them through "
            "context.wrap_model and "
            'context.wrap_optimizer: docs/moving/original.md shows the change, in "Trials from '
            'before 0.14".'
        )


def _check_reducer_names(trial: PyTorchTrial) -> None:
    """Compare the metrics that both methods name, where their source shows them."""
    reduced = returned_names(trial.evaluation_reducer)
    metrics = returned_names(trial.evaluate_batch)
    if reduced is not None and metrics is not None and reduced != metrics:
        raise InvalidExperimentException(
            "`evaluation_reducer` must name exactly the metrics of `evaluate_batch`: it names "
            f"{sorted(reduced)}, the metrics are {sorted(metrics)}."
        )
