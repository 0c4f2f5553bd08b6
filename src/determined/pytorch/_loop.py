"""The training loop: train a segment, then report, validate, save and stop as the schedule says."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from typing import Any

import torch

from determined._trial_code import find_trial_code
from determined._version import __version__
from determined.core import EarlyExitReason
from determined.errors import CheckpointNotFound, InvalidHP
from determined.pytorch._callback import Hooks
from determined.pytorch._checkpoint.averages import averages_weights, check_export
from determined.pytorch._checkpoint.moment import Stage
from determined.pytorch._checkpoint.policy import CheckpointPolicy
from determined.pytorch._checkpoint.rescue import Rescue
from determined.pytorch._checkpoint.retention import Retention, configured_policy
from determined.pytorch._checkpoint.saver import SaveJob, Saver
from determined.pytorch._checkpoint.state import collect, collect_rank, load_data_of
from determined.pytorch._checks.signatures import train_call
from determined.pytorch._checks.trial import check_trial
from determined.pytorch._checks.updates import UpdateCheck, warn_of_windows
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._data.seed import apart_from_training, mix, rng_state, set_rng_state
from determined.pytorch._display.hints import explain
from determined.pytorch._display.profile import TimeProfile, profile_loop
from determined.pytorch._display.reports import Tracker, checkpoint_address
from determined.pytorch._evaluate import (
    Evaluation,
    Interrupted,
    check_limit,
    try_validation,
    uses_evaluate_batch,
)
from determined.pytorch._metrics.batch_metrics import BatchMetrics, average_over_ranks, averages
from determined.pytorch._naming import hold_run
from determined.pytorch._opening import open_run
from determined.pytorch._plan import FitPlan
from determined.pytorch._ranks.ddp import validating
from determined.pytorch._ranks.fsdp import is_sharded
from determined.pytorch._ranks.stopping import StopWatch
from determined.pytorch._ranks.together import agree, ending_together, start_watchdog
from determined.pytorch._schedule import (
    Epoch,
    Schedule,
    _ShouldExit,
    _TrainBoundaryType,
)
from determined.pytorch._trial import PyTorchTrial
from determined.util import is_numerical_scalar

logger = logging.getLogger("determined.pytorch")


class TrainLoop:
    """One `fit` call. Every rank runs the same lines in the same order."""

    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext, plan: FitPlan) -> None:
        self._trial = trial
        self._context = context
        self._core = context._core
        self._plan = plan
        self._callbacks = trial.build_callbacks()
        self._hooks = Hooks(self._callbacks)
        self._averages_weights = averages_weights(self._callbacks)
        check_export(plan.export, self._callbacks)
        self._tracker = Tracker(context, self._averages_weights)
        self._metrics = BatchMetrics()
        self._validated: dict[str, Any] = {}
        self._policy = CheckpointPolicy(plan)
        self._code = find_trial_code(type(trial))
        self._saver = Saver(
            self._core.checkpoint,
            self._callbacks,
            self._hooks,
            background=plan.async_checkpoint,
            goes_on_after_errors=plan.on_checkpoint_error == "continue",
            export=plan.export,
            code=self._code.source,
            outside_code=self._tracker.directories(),
            on_saved=self._saved,
        )
        check_trial(trial, context, self._callbacks)
        self._train_batch = train_call(trial.train_batch)
        check_limit(plan.limit_validation_batches, trial)

    def run(self) -> None:
        """Train until the schedule, a stop request or an exception ends it."""
        distributed = self._context.distributed
        with contextlib.ExitStack() as stack, ending_together(distributed, self._is_saving):
            self._open(stack)
            if self._plan.sanity_validation:
                self._try_validation()
            with self._rescue:  # saves what there is when user code raises
                try:
                    self._check_stop(preemption_only=True)
                    if self._run.validation_pending or self._wants_step_zero_validation():
                        self._validate()
                    while not self._is_finished():
                        self._train_segment()
                        self._report_training()
                        self._handle(self._schedule.due(self.state.batches_trained))
                    self._updates.look(self.state.batches_trained)
                    if self.state.last_val != self.state.batches_trained:
                        self._validate()
                    self._save_unless_current()
                except _ShouldExit as e:
                    if not e.skip_exit_checkpoint:
                        self._save_unless_current(already_exiting=True)
            self._saver.finish()
            # The others leave when the last checkpoint is safe.
            self._tracker.latest_checkpoint = distributed.broadcast(self.latest_checkpoint)
            self._tracker.finish(is_finished=self._is_finished())

    def _train_segment(self) -> None:
        """Train up to the next batch at which anything is due."""
        context, state, hooks = self._context, self.state, self._hooks
        train_batch, epoch_length, beat = self._train_batch, self._epoch_length, self._watchdog.beat
        batch_start, batch_end = (
            hooks.of("on_training_batch_start"),
            hooks.of("on_training_batch_end"),
        )
        moment = self._rescue.moment
        self._tracker.begin_segment()
        for model in context.models:
            model.train()
        context.reset_reducers()
        self._metrics = BatchMetrics()
        moment.begin_segment()
        look_at = min(self._schedule.next_look(state.batches_trained), self._updates.look_at)
        counts_passes = epoch_length == sys.maxsize
        while True:
            batch_idx = state.batches_trained
            beat("training batch", batch_idx)
            moment.begin_batch()
            epoch_idx, batch_in_epoch = divmod(batch_idx, epoch_length)
            is_update = context._begin_batch(batch_idx)
            if batch_in_epoch == 0:
                hooks.call("on_training_epoch_start", epoch_idx)
            batch = next(self._training_data)
            if counts_passes and self._training_data.passes is not None:
                epoch_idx = state.epochs_trained = self._training_data.passes
            if context.experimental._auto_to_device:
                batch = context.to_device(batch)
            for on_batch_start in batch_start:
                on_batch_start(epoch_idx, batch_idx, batch)

            moment.stage = Stage.TRAINING
            metrics = train_batch(batch, epoch_idx, batch_idx)

            metrics = self._finish_batch(metrics, batch_idx, is_update)
            state.batches_trained = self._tracker.display.batches_trained = batch_idx + 1
            ends_epoch = batch_in_epoch == epoch_length - 1
            state.epochs_trained += ends_epoch
            moment.stage = Stage.BETWEEN
            for on_batch_end in batch_end:
                on_batch_end(epoch_idx, batch_idx, metrics)
            del batch, metrics  # the next batch can have their memory
            if ends_epoch:
                hooks.call("on_training_epoch_end", epoch_idx)
            if state.batches_trained >= look_at:
                if state.batches_trained >= self._updates.look_at:
                    self._updates.look(state.batches_trained)
                if self._schedule.due(state.batches_trained):
                    return
                look_at = min(
                    self._schedule.next_look(state.batches_trained), self._updates.look_at
                )
            if self._stop.seen_after(state.batches_trained):
                return

    def _finish_batch(
        self, metrics: torch.Tensor | dict[str, Any], batch_idx: int, is_update: bool
    ) -> dict[str, Any]:
        """Do what follows `train_batch`: profiler, loss scale, learning rates, metrics."""
        context = self._context
        if context.profiler is not None:
            context.profiler.step()
        if is_update:
            if context.experimental._auto_amp and context._scaler is not None:
                context._scaler.update()
            for scheduler in context.lr_schedulers:
                steps = scheduler._steps_due(
                    batch_idx, context._aggregation_frequency, self._epoch_length
                )
                for _ in range(steps):
                    scheduler.step()
        if isinstance(metrics, torch.Tensor):
            metrics = {"loss": metrics}
        elif not isinstance(metrics, dict):
            raise TypeError(
                "train_batch must return a dictionary of metrics or the loss as a tensor, got "
                f"{type(metrics).__name__} from batch {batch_idx}."
            )
        self._metrics.append(metrics)
        return metrics

    def _report_training(self) -> None:
        distributed = self._context.distributed
        columns, length = self._metrics.columns(), len(self._metrics)
        if distributed.size > 1:
            gathered = distributed.gather((length, columns))
            if gathered is not None:
                columns = average_over_ranks(gathered)
        avg_metrics = averages(columns)
        avg_metrics.update(self._context.reduce_metrics(for_training=True))
        rows = self._tracker.training(self.state, avg_metrics, columns, length)
        if self._hooks.of("on_training_workload_end"):
            avg_metrics, batch_metrics = distributed.broadcast((avg_metrics, list(rows or ())))
            self._hooks.call(
                "on_training_workload_end", avg_metrics=avg_metrics, batch_metrics=batch_metrics
            )

    def _handle(self, due: list[_TrainBoundaryType]) -> None:
        """Do what the batch brought due; then see whether to stop."""
        progress_reported = False
        for boundary in due:
            if boundary is _TrainBoundaryType.VALIDATE:
                if self.state.last_val != self.state.batches_trained:
                    self._validate()
            elif boundary is _TrainBoundaryType.CHECKPOINT:
                self._save_unless_current()
            elif not progress_reported:
                self._tracker.progress(self._fraction_done())
                progress_reported = True
            self._tracker.sync()
            self._saver.raise_failure()
            self._check_stop(preemption_only=True)
        if not self._is_finished():  # else the end of training, validated and saved, comes next
            self._check_stop()

    # Validation.

    def validate(self) -> dict[str, Any]:
        """Validate once and return the metrics; nothing is trained, reported or saved."""
        random_state = rng_state()
        distributed = self._context.distributed
        with contextlib.ExitStack() as stack, ending_together(distributed, self._is_saving):
            stack.callback(set_rng_state, random_state)
            self._open(stack)
            if self._plan.latest_checkpoint in ("latest", "best") and not self._is_restored:
                raise CheckpointNotFound(
                    f"This run has no {self._plan.latest_checkpoint} checkpoint to validate."
                )
            with contextlib.suppress(_ShouldExit):  # a signal cut it short: no metrics
                self._validated = self._measure()
            self._tracker.only_validated(self._validated)
            metrics: dict[str, Any] = distributed.broadcast(self.latest_metrics)
        return metrics

    def _validate(self) -> None:
        context, state = self._context, self.state
        if not self._validates:
            state.last_val = state.batches_trained
            return
        metrics = self._measure()
        best_before = self._core.train.get_experiment_best_validation()
        is_best = self._policy.is_best(metrics, best_before)
        self._tracker.validation(state, metrics, is_best)
        self._run.best = self._core.train.get_experiment_best_validation()
        self._validated = metrics
        if context.distributed.broadcast(self._is_worth_saving(metrics, is_best)):
            self._save(is_best=is_best and self._plan.checkpoint_policy == "best")

    def _measure(self) -> dict[str, Any]:
        """Return the metrics of a validation, which the chief has.

        What it draws at random derives from seed, rank and position: training must not depend on
        when somebody looks at it, and a validation that is repeated must see the same.
        """
        context, batches = self._context, self.state.batches_trained
        self._rescue.moment.begin_validation()
        with apart_from_training(mix(self._run.seed, context.distributed.rank, batches)):
            return self._measure_now()

    def _measure_now(self) -> dict[str, Any]:
        context, state = self._context, self.state
        began = time.monotonic()
        self._watchdog.beat("validation")
        self._tracker.status("validating")
        context.reset_reducers()
        for model in context.models:
            model.eval()
        evaluation = Evaluation(
            self._trial,
            context,
            self._validation_loader,
            self._hooks,
            limit=self._validation_limit,
        )
        with torch.no_grad(), validating(context.models):
            self._hooks.call("on_validation_start")
            try:
                metrics = evaluation.run(self._after_validation_batch)
            except Interrupted:
                # The resumed run validates first, as if this attempt had never been.
                self._run.validation_pending = True
                self._core.preempt.should_preempt()  # acknowledges, else it looks like the end
                raise _ShouldExit from None
            if self._hooks.of("on_validation_end"):
                metrics = context.distributed.broadcast(metrics)
                self._hooks.call("on_validation_end", metrics)
        state.last_val = state.batches_trained
        self._rescue.moment.stage = Stage.BETWEEN
        self._run.validation_pending = False
        if evaluation.num_batches:
            self._tracker.validation_speed(began, evaluation.num_records, evaluation.num_batches)
        return metrics

    @property
    def _validation_limit(self) -> int | None:
        return 1 if self._plan.test_mode else self._plan.limit_validation_batches

    def _try_validation(self) -> None:
        """Validate a few batches before training, so that mistakes show at once."""
        if self._validates and uses_evaluate_batch(self._trial):
            metrics = try_validation(
                self._trial, self._context, self._validation_loader, self._plan.sanity_validation
            )
            if self._context.distributed.rank == 0:
                self._policy.has_metric(metrics)

    def _is_worth_saving(self, metrics: dict[str, Any], is_best: bool) -> bool:
        if self._context.distributed.rank != 0 or self._is_saved():
            return False  # the chief decides
        return self._policy.asks_for(metrics, is_best)

    # Checkpoints.

    def _is_saved(self) -> bool:
        return self.state.last_ckpt == self.state.batches_trained

    def _is_save_due(self) -> bool:
        """Say whether a checkpoint of this batch is wanted, however good it is."""
        due = self._schedule.due(self.state.batches_trained)
        return self._is_finished() or _TrainBoundaryType.CHECKPOINT in due

    def _is_validation_due(self) -> bool:
        return _TrainBoundaryType.VALIDATE in self._schedule.due(self.state.batches_trained)

    def _save_unless_current(self, already_exiting: bool = False) -> None:
        if not self._is_saved():
            self._save(already_exiting=already_exiting)

    def _save(self, is_best: bool = False, already_exiting: bool = False) -> None:
        distributed, state = self._context.distributed, self.state
        self._watchdog.beat("checkpoint")
        self._tracker.status("checkpointing")
        self._tracker.before_save()
        state.last_ckpt = state.batches_trained
        try:
            mine = collect_rank(
                self._context,
                state.batches_trained,
                self._training_data.state_dict(state.batches_trained),
            )
            storage_id = None
            if any(map(is_sharded, self._context.models)):  # every rank writes what it has
                job = self._save_job([mine], is_best)
                storage_id = self._saver.save_together(job, distributed)
            elif (ranks := distributed.gather(mine)) is not None:
                storage_id = self._saver.save(self._save_job(ranks, is_best))
            if self._hooks.of("on_checkpoint_upload_end"):
                storage_id = distributed.broadcast(storage_id)
                if storage_id is not None:
                    self._hooks.call("on_checkpoint_upload_end", uuid=storage_id)
        except InvalidHP:
            if already_exiting or distributed.size > 1:
                raise
            self._core.train.report_early_exit(EarlyExitReason.INVALID_HP)
            raise _ShouldExit(skip_exit_checkpoint=True) from None

    def _save_without(self, culprits: set[str]) -> str | None:
        """Save after an error, without callbacks that raised it, and wait for it."""
        self._callbacks = {n: c for n, c in self._callbacks.items() if n not in culprits}
        self._hooks = Hooks(self._callbacks)
        self._saver.callbacks = self._callbacks
        self._save(already_exiting=True)
        self._saver.finish()
        return self.latest_checkpoint

    def _save_job(self, ranks: list[dict[str, Any]], is_best: bool) -> SaveJob:
        is_validated = self.state.last_val == self.state.batches_trained
        tensors = collect(self._context, self._callbacks)
        self._hooks.call("on_checkpoint_save_start", tensors)
        return SaveJob(
            tensors=tensors,
            ranks=ranks,
            state=self.state,
            run=self._run,
            load_data=load_data_of(self._trial, self._context, self._code),
            metadata={
                "determined_version": __version__,
                "steps_completed": self.state.batches_trained,
                "framework": f"torch-{torch.__version__}",
                "format": "pickle",
                "run_id": self._run.run_id,
                "run": self._context._run_facts,
                "metrics": _numbers(self._validated) if is_validated else {},
                **({"not_exact": self._run.not_exact} if self._run.not_exact else {}),
                **({"measured": "averaged weights"} if self._averages_weights else {}),
            },
            is_best=is_best,
            is_asked_for=not is_best or self._is_save_due(),
        )

    # Beginning and end.

    @property
    def latest_checkpoint(self) -> str | None:
        """Return the newest checkpoint of this run; until the end it is known to the chief only."""
        return self._tracker.latest_checkpoint

    @property
    def latest_metrics(self) -> dict[str, Any]:
        """Return the metrics of the last validation, on the chief; numbers are Python's own."""
        return {
            name: value.item() if is_numerical_scalar(value) and hasattr(value, "item") else value
            for name, value in self._validated.items()
        }

    def _open(self, stack: contextlib.ExitStack) -> None:
        context, plan, train = self._context, self._plan, self._core.train
        agree(context.distributed, "fit", plan.shared)
        self._watchdog = start_watchdog(stack, self._core)
        stack.enter_context(self._core.preempt.catch_signals())
        self._core.preempt.should_preempt()  # refuses to work outside of `pytorch.init()`
        train._set_best_tracking(plan.metric, plan.smaller_is_better)
        hold_run(stack, context, type(self._trial), plan)
        stack.callback(self._tracker.close)
        stack.callback(self._saver.close)
        if context.distributed.rank == 0:
            self._saver.start()
        opened = open_run(stack, self._trial, context, plan, self._callbacks, self._hooks)
        self.state, self._run = opened.state, opened.run
        self._is_restored = opened.started_from is not None
        self._retention = Retention(
            self._core.checkpoint,
            configured_policy(context, plan),
            opened.run.run_id,
            opened.started_from,
            is_managed=self._core._backend.restarts_trials,
        )
        if opened.continues is not None:
            self._tracker.latest_checkpoint = checkpoint_address(context, opened.continues)
        self._training_data = opened.training_data
        self._validation_loader = opened.validation_loader
        self._validates = opened.validates
        self._epoch_length = opened.epoch_length
        self._schedule = Schedule(plan.units, opened.epoch_length, every_batch=plan.test_mode)
        self._stop = StopWatch(context, self.state.batches_trained)
        warn_of_windows(context, plan.batches(opened.epoch_length))
        if self._run.best is not None:
            train._set_best_tracking(plan.metric, plan.smaller_is_better, self._run.best)
        self._tracker.start(
            plan, self.state, self._epoch_length, self._training_data, self._is_saving
        )
        if opened.continues is not None and not plan.test_mode and self._is_finished():
            self._tracker.already_finished()
        self._hooks.call("on_training_start")
        if plan.profile.enabled:
            self._start_profile(stack)
        if context.profiler is not None:
            stack.enter_context(context.profiler)
        # Last, so that nothing above moves the random numbers of the resumed run.
        if opened.rng_state is not None:
            set_rng_state(opened.rng_state)
        self._updates = UpdateCheck(context, self.state.batches_trained)
        stack.callback(self._updates.close)
        self._rescue = Rescue(
            context,
            self.state,
            self._run,
            self._callbacks,
            self._saver,
            self._save_without,
            self._is_validation_due,
            enabled=not plan.test_mode,
        )
        stack.push(lambda kind, error, tb: explain(context, error, tb))

    def _start_profile(self, stack: contextlib.ExitStack) -> None:
        profile = TimeProfile(self._plan.profile, self._context.device, self._core.profiler)
        self._tracker.profile = profile
        stack.callback(profile.stop)
        stack.callback(profile_loop(profile, self))

    def _check_stop(self, preemption_only: bool = False) -> None:
        """Leave the loop if all ranks agree that someone wants it. Every rank must call it."""
        self._stop.look(self.state.batches_trained)
        if self._stop.is_preempted or (self._stop.is_stop_requested and not preemption_only):
            raise _ShouldExit

    def _after_validation_batch(self) -> bool:
        """Say whether the validation may be cut short; with several ranks it is not."""
        self._watchdog.beat("validation")
        return (
            self._context.distributed.size == 1 and self._core.preempt.preempt_requested_locally()
        )

    def _wants_step_zero_validation(self) -> bool:
        return (
            self._plan.step_zero_validation
            and self.state.batches_trained == 0
            and self._core.train._get_last_validation() is None
        )

    def _is_saving(self) -> bool:
        return self._saver.is_writing

    def _saved(self, storage_id: str, job: SaveJob) -> None:
        """Follow up on a checkpoint that is safe now; runs in the saver's thread."""
        self._tracker.saved(storage_id, job.state.batches_trained)
        self._rescue.safe_at = job.state.batches_trained
        superseded = self._run.best_checkpoint if job.is_best else None
        if job.is_best:
            self._run.best_checkpoint = None if job.is_asked_for else storage_id
        self._retention.after_save(storage_id, superseded)

    def _is_finished(self) -> bool:
        if self._plan.test_mode:
            return self.state.batches_trained >= 1
        return self._fraction_done() >= 1

    def _fraction_done(self) -> float:
        in_epochs = isinstance(self._plan.max_length, Epoch)
        done = self.state.epochs_trained if in_epochs else self.state.batches_trained
        return done / self._plan.length if self._plan.length > 0 else 1.0


def _numbers(metrics: dict[str, Any]) -> dict[str, float]:
    return {name: float(v) for name, v in metrics.items() if is_numerical_scalar(v)}
