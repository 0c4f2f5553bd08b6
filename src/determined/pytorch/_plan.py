"""What `fit` was asked for: checked once, then trusted."""

from __future__ import annotations

import dataclasses
import logging
import numbers
import os
import re
import sys
import warnings
from collections.abc import Container
from typing import Any

from determined.core._searcher import parse_length
from determined.pytorch._checkpoint.files.export import require_safetensors
from determined.pytorch._checkpoint.forking.request import Fork, asked_fork
from determined.pytorch._checkpoint.state.averages import EXPORT
from determined.pytorch._checks.arguments import (
    check_choice,
    check_count,
    check_flag,
    check_kind,
    check_path,
)
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._display.profile import ProfileOptions
from determined.pytorch._schedule import (
    Batch,
    Epoch,
    TrainUnit,
    _TrainBoundaryType,
    _TrialState,
    is_whole_number,
)

logger = logging.getLogger("determined.pytorch")

_POLICIES = ("best", "all", "none")
NEVER = Batch(sys.maxsize)


@dataclasses.dataclass(frozen=True)
class FitPlan:
    """The arguments of `fit`, with defaults filled in from the experiment configuration."""

    max_length: TrainUnit
    validation_period: TrainUnit = NEVER
    checkpoint_period: TrainUnit = NEVER
    reporting_period: TrainUnit | None = None
    checkpoint_policy: str = "none"
    latest_checkpoint: str | None = None
    step_zero_validation: bool = False
    test_mode: bool = False
    profile: ProfileOptions = ProfileOptions()
    metric: str | None = None
    is_metric_configured: bool = False  # by the experiment configuration, not by `fit`
    smaller_is_better: bool = True
    async_checkpoint: bool = True
    on_checkpoint_error: str = "raise"
    export: str | None = None
    progress: bool | None = None
    sanity_validation: int = 0
    keep_last: int | None = None
    keep_best: int | None = None
    limit_validation_batches: int | None = None
    settings_from: str = "checkpoint"
    fork: Fork | None = None
    interval: TrainUnit | None = None  # of a search that compares trials: they stop after each

    @property
    def ends_at(self) -> int | None:
        """Return the batch at which a fork's part of its parent's training ends, if this is one."""
        return None if self.fork is None else self.fork.ends_at

    def interval_end(self, trained: int, epoch_length: int, is_pending: bool) -> int | None:
        """Return the batch at which the current interval of a search ends, if there are any.

        Args:
            trained: how many batches were trained.
            epoch_length: how many make an epoch.
            is_pending: whether the last of them is yet to be validated: its interval goes on then.

        Raises:
            ValueError: if it is counted in epochs, and nobody knows how long these are.
        """
        if self.interval is None:
            return None
        assert isinstance(self.interval.value, int)
        length = self.interval.value
        if isinstance(self.interval, Epoch):
            if epoch_length == sys.maxsize:
                raise ValueError(
                    "searcher.time_metric is epochs, but the training data has no known length: "
                    "count searcher.interval and searcher.max_time in batches."
                )
            length *= epoch_length
        if is_pending and trained and trained % length == 0:
            return trained
        return (trained // length + 1) * length

    @property
    def length(self) -> int:
        """Return the number of batches or epochs in `max_length`."""
        assert isinstance(self.max_length.value, numbers.Integral)
        return int(self.max_length.value)

    def batches(self, epoch_length: int) -> int | None:
        """Return how many batches that is; None if unknown."""
        if self.test_mode:
            return None
        if isinstance(self.max_length, Batch):
            return self.length
        return None if epoch_length == sys.maxsize else self.length * epoch_length

    def fraction_done(self, state: _TrialState) -> float:
        """Return how much of the training is done, 1 or more at its end."""
        in_epochs = isinstance(self.max_length, Epoch)
        done = state.epochs_trained if in_epochs else state.batches_trained
        return done / self.length if self.length > 0 else 1.0

    def is_finished(self, state: _TrialState) -> bool:
        """Say whether training has come to its length, one batch in test mode."""
        return state.batches_trained >= 1 if self.test_mode else self.fraction_done(state) >= 1

    @property
    def shared(self) -> dict[str, str]:
        """Return what must be the same on all ranks, or they would do different things."""
        names = (
            "max_length",
            "validation_period",
            "checkpoint_period",
            "reporting_period",
            "checkpoint_policy",
            "latest_checkpoint",
            "step_zero_validation",
            "test_mode",
            "sanity_validation",
            "limit_validation_batches",
            "settings_from",
            "fork",
            "interval",
        )
        return {name: re.sub(" at 0x[0-9a-f]+", "", repr(getattr(self, name))) for name in names}

    @property
    def units(self) -> dict[_TrainBoundaryType, TrainUnit]:
        """What falls due by which unit."""
        units = {
            _TrainBoundaryType.TRAIN: self.max_length,
            _TrainBoundaryType.VALIDATE: self.validation_period,
            _TrainBoundaryType.CHECKPOINT: self.checkpoint_period,
        }
        if self.reporting_period is not None:
            units[_TrainBoundaryType.REPORT] = self.reporting_period
        return units


def plan_fit(
    context: PyTorchTrialContext,
    profile: ProfileOptions,
    *,
    checkpoint_period: TrainUnit | None,
    validation_period: TrainUnit | None,
    max_length: TrainUnit | None,
    reporting_period: TrainUnit | None,
    checkpoint_policy: str,
    latest_checkpoint: str | None,
    step_zero_validation: bool,
    test_mode: bool,
    profiling_enabled: bool,
    metric: str | None,
    smaller_is_better: bool | None,
    async_checkpoint: bool,
    on_checkpoint_error: str,
    export: str | None,
    progress: bool | None,
    sanity_validation: int,
    keep_last: int | None,
    keep_best: int | None,
    limit_validation_batches: int | None,
    settings_from: str,
    fork_from: tuple[str, int] | None,
) -> FitPlan:
    """Check the arguments of `fit`, fill in what is configured elsewhere, and return the plan."""
    for name, flag in (
        ("step_zero_validation", step_zero_validation),
        ("test_mode", test_mode),
        ("profiling_enabled", profiling_enabled),
        ("smaller_is_better", smaller_is_better),
        ("async_checkpoint", async_checkpoint),
        ("progress", progress),
    ):
        check_flag(name, flag)
    _check_checkpoint_name(latest_checkpoint)
    check_count("sanity_validation", sanity_validation)
    check_kind("metric", metric, str, "a string")
    check_count("limit_validation_batches", limit_validation_batches, 1, optional=True)
    check_choice("on_checkpoint_error", on_checkpoint_error, ("raise", "continue"))
    check_choice("settings_from", settings_from, ("checkpoint", "script"))
    check_choice("export", export, (None, "safetensors", EXPORT))
    fork = asked_fork(fork_from, is_managed=context._core._trial is not None)
    _check_one_source(fork_from, latest_checkpoint)
    length = _checked_length(max_length, context)
    if context._core._trial is not None:
        _check_max_time(length, context._exp_conf)
        if test_mode:
            raise ValueError("`test_mode` is for runs outside the platform.")
        latest_checkpoint = _checkpoint_of_trial(latest_checkpoint, context, fork)
    if export is not None:
        require_safetensors()
    policy, deciding, smaller = _checked_policy(
        checkpoint_policy, context, metric, smaller_is_better, validation_period is not None
    )
    _check_kept(keep_last, keep_best, deciding)
    return FitPlan(
        max_length=length,
        validation_period=_checked_period("validation_period", validation_period),
        checkpoint_period=_checked_period("checkpoint_period", checkpoint_period),
        reporting_period=None
        if reporting_period is None
        else _checked_period("reporting_period", reporting_period),
        checkpoint_policy=policy,
        latest_checkpoint=None if latest_checkpoint is None else os.fspath(latest_checkpoint),
        step_zero_validation=step_zero_validation,
        test_mode=test_mode,
        profile=dataclasses.replace(profile, enabled=profile.enabled or profiling_enabled),
        metric=deciding,
        is_metric_configured=metric is None,
        smaller_is_better=smaller,
        async_checkpoint=async_checkpoint,
        on_checkpoint_error=on_checkpoint_error,
        export=export,
        progress=progress,
        sanity_validation=int(sanity_validation),
        keep_last=keep_last,
        keep_best=keep_best,
        limit_validation_batches=limit_validation_batches,
        settings_from=settings_from,
        fork=fork,
        interval=None if context._core._trial is None else _interval(context._exp_conf),
    )


def plan_validation(
    latest_checkpoint: str | None,
    limit_validation_batches: int | None,
    progress: bool | None,
    last: FitPlan | None,
) -> FitPlan:
    """Return the plan of `Trainer.validate`; the last `fit`, if any, has said what is best."""
    check_path("latest_checkpoint", latest_checkpoint)
    check_count("limit_validation_batches", limit_validation_batches, 1, optional=True)
    check_flag("progress", progress)
    return FitPlan(
        max_length=Batch(0),
        latest_checkpoint=None if latest_checkpoint is None else os.fspath(latest_checkpoint),
        metric=None if last is None else last.metric,
        smaller_is_better=last is None or last.smaller_is_better,
        limit_validation_batches=limit_validation_batches,
        progress=progress,
    )


def _check_checkpoint_name(latest_checkpoint: Any) -> None:
    check_path("latest_checkpoint", latest_checkpoint)
    if latest_checkpoint in ("last", "newest", "auto"):
        raise ValueError(
            f"`latest_checkpoint` is {latest_checkpoint!r}: to continue from the newest "
            "checkpoint of this run, write fit(latest_checkpoint='latest')."
        )


def _check_one_source(fork_from: Any, latest_checkpoint: Any) -> None:
    if fork_from is not None and latest_checkpoint not in (None, "latest"):
        raise ValueError(
            f"`latest_checkpoint={latest_checkpoint!r}` and `fork_from` both say where to start. "
            "Besides `fork_from` it may be 'latest': then a fork that has checkpoints of its own "
            "continues."
        )


def _checkpoint_of_trial(
    asked: str | None, context: PyTorchTrialContext, fork: Fork | None
) -> str | None:
    """Return what a trial of the platform continues from: its own newest, unless told otherwise."""
    info = context._core.info
    newest = None if info is None else info.latest_checkpoint
    if fork is not None:
        return newest or asked
    if asked is None and newest is not None:
        logger.info(
            "Training continues from the trial's checkpoint although fit was not given one: "
            'write fit(latest_checkpoint="latest") to make that explicit.'
        )
    return newest if asked in (None, "latest") else asked


def _check_kept(keep_last: Any, keep_best: Any, metric: str | None) -> None:
    """Check how many checkpoints to keep, and that there is a metric to rank them by."""
    check_count("keep_last", keep_last, at_least=1, optional=True)
    check_count("keep_best", keep_best, optional=True)
    if keep_best and metric is None:
        raise ValueError(
            f"`keep_best={keep_best}` needs to know the metric: pass fit(metric='...', "
            "smaller_is_better=...)."
        )


def _checked_period(name: str, unit: TrainUnit | None) -> TrainUnit:
    """Return the period, `None` meaning never."""
    if unit is None:
        return NEVER
    is_schedule = isinstance(unit, TrainUnit) and (
        isinstance(unit.value, Container) and not isinstance(unit.value, (str, bytes))
    )
    if not isinstance(unit, TrainUnit) or not (is_whole_number(unit.value) or is_schedule):
        raise TypeError(
            f"`{name}` must be pytorch.Batch or pytorch.Epoch of an integer or a container of "
            f"integers, got {unit!r}."
        )
    _refuse_negative(name, unit)
    return unit


def _checked_length(max_length: TrainUnit | None, context: PyTorchTrialContext) -> TrainUnit:
    """Return how long to train, taken from the experiment configuration if `fit` was not told."""
    if max_length is None:
        max_length = _configured_length(context)
    if not isinstance(max_length, (Batch, Epoch)):
        raise TypeError(
            f"`max_length` must be pytorch.Batch(n) or pytorch.Epoch(n), got {max_length!r}."
        )
    if not is_whole_number(max_length.value):
        raise TypeError(f"`max_length` must be Batch or Epoch of an integer, got {max_length!r}.")
    _refuse_negative("max_length", max_length)
    return max_length


def _refuse_negative(name: str, unit: TrainUnit) -> None:
    if isinstance(unit.value, numbers.Integral) and int(unit.value) < 0:
        raise ValueError(f"`{name}` must not be negative, got {unit!r}.")


def _configured_length(context: PyTorchTrialContext) -> TrainUnit:
    if context._core._trial is None:
        raise ValueError("`max_length` is required, for example fit(max_length=pytorch.Epoch(10)).")
    searcher = (context._exp_conf or {}).get("searcher", {})
    length, unit = parse_length(searcher) or (0, None)
    if unit is None:
        raise ValueError(
            "`max_length` is required: pass fit(max_length=...) (the experiment configuration's "
            "searcher.max_length and unit are not set either)."
        )
    warnings.warn(
        "Taking the length of training from searcher.max_length is deprecated: pass "
        "fit(max_length=...).",
        FutureWarning,
        stacklevel=5,
    )
    return TrainUnit._from_searcher_unit(length, unit, context._global_batch_size)


def _check_max_time(max_length: TrainUnit, exp_conf: dict[str, Any] | None) -> None:
    """Warn when a search counts time in other units, or to another end, than this training."""
    searcher = (exp_conf or {}).get("searcher", {})
    metric = searcher.get("time_metric")
    if metric is None:
        return
    max_time = searcher.get("max_time")
    assert max_time is not None, "searcher.time_metric needs searcher.max_time."
    expected = {"batches": Batch, "epochs": Epoch}.get(metric)
    if expected is None or max_length != expected(max_time):
        logger.warning(
            f"searcher.max_time is {max_time} {metric}, but fit trains for {max_length}; make "
            "them agree."
        )


def _interval(exp_conf: dict[str, Any] | None) -> TrainUnit | None:
    searcher = (exp_conf or {}).get("searcher") or {}
    if searcher.get("name") != "pbt":
        return None
    unit = Epoch if searcher.get("time_metric") == "epochs" else Batch
    return unit(int(searcher["interval"]))


def _checked_policy(
    policy: str,
    context: PyTorchTrialContext,
    metric: str | None,
    smaller_is_better: bool | None,
    validates_often: bool,
) -> tuple[str, str | None, bool]:
    """Return the policy, the metric that decides what is best, and its direction."""
    check_choice("checkpoint_policy", policy, _POLICIES)
    searcher = (context._exp_conf or {}).get("searcher") or {}
    if policy == "best" and context._core._trial is not None:
        for name, given in (("metric", metric), ("smaller_is_better", smaller_is_better)):
            if given is None and name not in searcher:
                raise KeyError(f"searcher.{name} is missing from the experiment configuration")
    if metric is None:
        metric = searcher.get("metric")
    if smaller_is_better is None:
        smaller_is_better = bool(searcher.get("smaller_is_better", True))
    if policy == "best" and metric is None:
        policy = "all"
        if validates_often:  # else there is only the last checkpoint, whatever the policy
            logger.warning(
                "checkpoint_policy='best' needs to know the metric: pass fit(metric='...', "
                "smaller_is_better=...). Until then each validation saves a checkpoint, as with "
                "'all'."
            )
    return policy, metric, smaller_is_better
