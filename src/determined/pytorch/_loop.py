"""The training loop: train a segment, then report, validate, save and stop as the schedule says."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

import torch

from determined.errors import CheckpointNotFound
from determined.pytorch._checkpoint.checkpoints import Checkpoints
from determined.pytorch._checkpoint.state.averages import averages_weights
from determined.pytorch._checks.signatures import train_call
from determined.pytorch._checks.trial import check_trial
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._context.lr_scheduler import LRScheduler
from determined.pytorch._data.seed import apart_from_training, mix, rng_state, set_rng_state
from determined.pytorch._display.profile import ProfileObserver, TimeProfile
from determined.pytorch._evaluate import (
    Evaluation,
    Interrupted,
    begin_training,
    check_limit,
    end_training,
    try_validation,
    uses_evaluate_batch,
)
from determined.pytorch._instrumentation.observer import UNOBSERVED, Observer
from determined.pytorch._metrics.batch_metrics import average_over_ranks, averages, batch_means
from determined.pytorch._opening import open_run
from determined.pytorch._plan import FitPlan
from determined.pytorch._ranks.together import ending_together
from determined.pytorch._reporter import Reporter
from determined.pytorch._run import Fit
from determined.pytorch._schedule import _ShouldExit, _TrainBoundaryType
from determined.pytorch._trial import PyTorchTrial
from determined.util import is_numerical_scalar


class TrainLoop:
    """One `fit` call. Every rank runs the same lines in the same order."""

    def __init__(
        self,
        trial: PyTorchTrial,
        context: PyTorchTrialContext,
        plan: FitPlan,
        observer: Observer = UNOBSERVED,
    ) -> None:
        profile = None
        if plan.profile.enabled:
            profile = TimeProfile(plan.profile, context.device, context._core.profiler)
            observer = ProfileObserver(profile, context, observer)
        fit = Fit.of(trial, context, plan, observer)
        self._fit = fit
        self._context = context
        self._core = context._core
        self._plan = plan
        self._hooks = fit.hooks
        self._observer = observer
        self._profile = profile
        self._reporter = Reporter(context, averages_weights(fit.callbacks), profile)
        self._checkpoints = Checkpoints(fit, self._reporter)
        self._validated: dict[str, Any] = {}
        check_trial(trial, context, fit.callbacks)
        self._train_batch = train_call(trial.train_batch)
        self._step_scheduler = observer.watch("scheduler", LRScheduler.step)
        check_limit(plan.limit_validation_batches, trial)

    def run(self) -> None:
        """Train until the schedule, a stop request or an exception ends it."""
        checkpoints = self._checkpoints
        ending = ending_together(self._context.distributed, checkpoints.is_writing)
        with contextlib.ExitStack() as stack, ending:
            begin_training(self._context.models)  # before a checkpoint restores its modes
            self._open(stack)
            run = self._run
            if self._plan.fork is not None and self._plan.fork.is_check:
                self._core.preempt._stop_here()
                return
            if self._plan.sanity_validation:
                self._try_validation()
            with checkpoints.on_error as user_code:
                try:
                    self._check_stop(preemption_only=True)
                    if run.segment.is_open and run.due:  # whose report had failed
                        self._report_training()
                    is_pending = run.record.validation_pending
                    if is_pending or self._wants_step_zero_validation():
                        self._validate()
                    if is_pending and run.stop.is_end(run.state.batches_trained):
                        run.state.last_ckpt = 0  # the saved state would be validated again
                        self._end_at_fork()
                    while not run.is_finished:
                        with user_code("a batch or its callbacks"):
                            self._train_segment()
                        if not run.due:  # leaves the report to the run that continues
                            self._end_at_fork()
                            self._check_stop(preemption_only=True)
                        self._observer.watch("metrics", self._report_training)()
                        self._handle(run.due)
                    run.updates.check(run.state.batches_trained)
                    if not run.is_validated:
                        self._validate()
                    checkpoints.save_unless_current()
                    self._end_at_fork()
                except _ShouldExit as e:
                    self._reporter.progress(self._plan.fraction_done(run.state))
                    if not e.skip_exit_checkpoint:
                        checkpoints.save_unless_current(already_exiting=True)
            checkpoints.finish()
            self._reporter.finish(run.is_finished)

    def _train_segment(self) -> None:
        """Train up to the next batch at which anything is due."""
        context, run, hooks, watch = self._context, self._run, self._hooks, self._observer.watch
        state, data, epoch_length = run.state, run.training_data, run.epoch_length
        beat, stop_seen = run.watchdog.beat, run.stop.seen_after
        fetch = watch("data", data.__next__)
        train_batch = watch("train_batch", self._train_batch)
        collect = watch("metrics", self._collect)
        batch_start = hooks.of("on_training_batch_start")
        batch_end = hooks.of("on_training_batch_end")
        to_device, device, warned = context._copy, context.device, context._warned_types
        moves_batches = context.experimental._auto_to_device
        self._reporter.status("training")
        run.segment.begin()
        check_at, first = run.next_check, state.batches_trained
        counts_passes = epoch_length == sys.maxsize
        epoch_idx, batch_in_epoch = divmod(state.batches_trained, epoch_length)
        while True:
            batch_idx = state.batches_trained
            beat("training batch", batch_idx)
            is_update = context._begin_batch(batch_idx)
            if batch_in_epoch == 0:
                hooks.call("on_training_epoch_start", epoch_idx)
            batch = fetch()
            if batch_idx == first or batch_idx + 1 >= check_at:
                run.samples.note(batch_idx, batch)
            if counts_passes and data.passes is not None:
                epoch_idx = state.epochs_trained = data.passes
            if moves_batches:
                batch = to_device(batch, device, warned)
            for on_batch_start in batch_start:
                on_batch_start(epoch_idx, batch_idx, batch)

            metrics = train_batch(batch, epoch_idx, batch_idx)

            metrics = collect(metrics, batch_idx, is_update)
            state.batches_trained = batch_idx + 1
            batch_in_epoch += 1
            state.epochs_trained += batch_in_epoch == epoch_length
            for on_batch_end in batch_end:
                on_batch_end(epoch_idx, batch_idx, metrics)
            del batch, metrics  # the next batch can have their memory
            if batch_in_epoch == epoch_length:
                hooks.call("on_training_epoch_end", epoch_idx)
                epoch_idx, batch_in_epoch = epoch_idx + 1, 0
            if batch_idx + 1 >= check_at:
                if batch_idx + 1 >= run.updates.check_at:
                    run.updates.check(batch_idx + 1)
                if run.due:
                    return
                check_at = run.next_check
            if stop_seen(batch_idx + 1):
                return

    def _collect(
        self, metrics: torch.Tensor | dict[str, Any], batch_idx: int, is_update: bool
    ) -> dict[str, Any]:
        """Do what follows `train_batch`: profiler, loss scale, learning rates, metrics."""
        context = self._context
        if context.profiler is not None:
            context.profiler.step()
        if is_update and (context.lr_schedulers or context._scaler is not None):
            self._after_update(batch_idx)
        if not isinstance(metrics, dict):
            if not isinstance(metrics, torch.Tensor):
                raise TypeError(
                    "train_batch must return a dictionary of metrics or the loss as a tensor, got "
                    f"{type(metrics).__name__} from batch {batch_idx}."
                )
            metrics = {"loss": metrics}
        self._run.segment.metrics.append(metrics)
        return metrics

    def _after_update(self, batch_idx: int) -> None:
        context = self._context
        if context.experimental._auto_amp and context._scaler is not None:
            context._scaler.update()
        for scheduler in context.lr_schedulers:
            steps = scheduler._steps_due(
                batch_idx, context._aggregation_frequency, self._run.epoch_length
            )
            for _ in range(steps):
                self._step_scheduler(scheduler)

    def _report_training(self) -> None:
        distributed, segment = self._context.distributed, self._run.segment
        user_code = self._checkpoints.on_error.during
        columns, length = segment.metrics.columns(), len(segment.metrics)
        counted_by = [self._context._own_counts()]
        if distributed.size > 1:
            gathered = distributed.gather((length, columns, counted_by[0]))
            if gathered is not None:
                columns = average_over_ranks([(n, found) for n, found, _ in gathered])
                counted_by = [own for _, _, own in gathered]
        counted = self._context._report_counts(counted_by)
        avg_metrics = averages(columns)
        columns = batch_means(columns)
        with user_code("a reducer"):
            avg_metrics.update(self._context.reduce_metrics(for_training=True))
        rows = self._reporter.training(
            self._run.state, avg_metrics, columns, length, segment.seconds, counted
        )
        segment.close()
        if self._hooks.of("on_training_workload_end"):
            avg_metrics, batch_metrics = distributed.broadcast((avg_metrics, list(rows or ())))
            reported = set(avg_metrics)
            with user_code("on_training_workload_end"):
                self._hooks.call(
                    "on_training_workload_end", avg_metrics=avg_metrics, batch_metrics=batch_metrics
                )
            self._reporter.add_to_training(self._run.state, avg_metrics, reported)

    def _handle(self, due: list[_TrainBoundaryType]) -> None:
        """Do what the batch brought due; then see whether to stop."""
        progress_reported = False
        for boundary in due:
            if boundary is _TrainBoundaryType.VALIDATE:
                if not self._run.is_validated:
                    self._validate()
            elif boundary is _TrainBoundaryType.CHECKPOINT:
                self._checkpoints.save_unless_current()
            elif not progress_reported:
                self._reporter.progress(self._plan.fraction_done(self._run.state))
                progress_reported = True
            self._reporter.sync()
            self._checkpoints.raise_failure()
            self._check_stop(preemption_only=True)
        if not self._run.is_finished:  # else the end of training, validated and saved, comes next
            self._end_at_fork()
            self._check_stop()

    # Validation.

    def validate(self) -> dict[str, Any]:
        """Validate once and return the metrics; nothing is trained, reported or saved."""
        random_state, distributed = rng_state(), self._context.distributed
        ending = ending_together(distributed, self._checkpoints.is_writing)
        with contextlib.ExitStack() as stack, ending:
            stack.callback(set_rng_state, random_state)
            self._open(stack)
            if self._plan.latest_checkpoint in ("latest", "best") and not self._run.started_from:
                raise CheckpointNotFound(
                    f"This run has no {self._plan.latest_checkpoint} checkpoint to validate."
                )
            with contextlib.suppress(_ShouldExit):  # a signal cut it short: no metrics
                self._validated = self._measure()
            self._reporter.only_validated(self._validated)
            metrics: dict[str, Any] = distributed.broadcast(self.latest_metrics)
        return metrics

    def _validate(self) -> None:
        if self._run.validates:
            self._observer.watch("validation", self._measure_and_report)()
        else:
            self._run.state.last_val = self._run.state.batches_trained

    def _measure_and_report(self) -> None:
        run, train = self._run, self._core.train
        with self._checkpoints.unchanged_until_validated():
            metrics = self._measure()
            is_best = train._is_best(metrics)
            self._reporter.validation(run.state, metrics, is_best)
        run.state.last_val = run.state.batches_trained
        run.record.validation_pending = False
        run.record.best = train._get_own_best()
        self._validated = metrics
        self._checkpoints.after_validation(metrics, is_best)

    def _measure(self) -> dict[str, Any]:
        """Return the metrics of a validation, which the chief has.

        What it draws at random derives from seed, rank and position: training must not depend on
        when somebody looks at it, and a validation that is repeated must see the same.
        """
        run = self._run
        limit = 1 if self._plan.test_mode else self._plan.limit_validation_batches
        rank, batches = self._context.distributed.rank, run.state.batches_trained
        began = time.monotonic()
        with apart_from_training(mix(run.record.seed, rank, batches)), run.validation_parts:
            run.watchdog.beat("validation")
            self._reporter.status("validating")
            evaluation = Evaluation(
                self._fit.trial, self._context, run.validation_sets, self._hooks, limit
            )
            try:
                metrics = evaluation.run(self._after_validation_batch)
            except Interrupted:
                # The resumed run validates first, as if this attempt had never been.
                run.record.validation_pending = True
                self._core.preempt.should_preempt()  # acknowledges, else it looks like the end
                raise _ShouldExit from None
        if evaluation.num_batches:
            self._reporter.validation_speed(began, evaluation.num_records, evaluation.num_batches)
        return metrics

    def _after_validation_batch(self) -> bool:
        """Say whether to cut the validation short, which is possible if there is a copy."""
        self._run.watchdog.beat("validation")
        can_stop = self._checkpoints.can_interrupt_validations
        return can_stop and self._core.preempt.preempt_requested_locally()

    def _try_validation(self) -> None:
        """Validate a few batches before training, so that mistakes show at once."""
        trial, sets = self._fit.trial, self._run.validation_sets
        if self._run.validates and uses_evaluate_batch(trial):
            metrics = try_validation(trial, self._context, sets, self._plan.sanity_validation)
            if self._context.distributed.rank == 0:
                self._checkpoints.check_metric(metrics)

    def _wants_step_zero_validation(self) -> bool:
        return (
            self._plan.step_zero_validation
            and self._run.state.batches_trained == 0
            and self._core.train._get_last_validation() is None
        )

    # Beginning and end.

    @property
    def latest_checkpoint(self) -> str | None:
        """Return the newest checkpoint of this run; until the end it is known to the chief only."""
        return self._reporter.latest_checkpoint

    @property
    def latest_metrics(self) -> dict[str, Any]:
        """Return the metrics of the last validation, on the chief; numbers are Python's own."""
        return {
            name: value.item() if is_numerical_scalar(value) and hasattr(value, "item") else value
            for name, value in self._validated.items()
        }

    def _open(self, stack: contextlib.ExitStack) -> None:
        stack.callback(end_training, self._context.models)
        self._run = open_run(stack, self._fit, self._reporter, self._checkpoints)
        if self._profile is not None:
            stack.callback(self._profile.stop)

    def _end_at_fork(self) -> None:
        """Leave the loop where a fork's part, or an interval of a search, ends, as if asked to."""
        if self._run.stop.is_end(self._run.state.batches_trained):
            self._core.preempt._stop_here()
            raise _ShouldExit

    def _check_stop(self, preemption_only: bool = False) -> None:
        """Leave the loop if all ranks agree that someone wants it. Every rank must call it."""
        stop = self._run.stop
        stop.check(self._run.state.batches_trained)
        if stop.is_preempted or (stop.is_stop_requested and not preemption_only):
            raise _ShouldExit
