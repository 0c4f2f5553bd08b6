"""The checkpoints of one fit: when one is saved, what goes into it, and what follows from it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import torch

from determined._code.trial_code import find_trial_code
from determined._contracts.checkpoint_layout import ENVIRONMENT, SEGMENT
from determined._version import __version__
from determined.core import EarlyExitReason
from determined.errors import CheckpointError, InvalidHP
from determined.pytorch._checkpoint.files.seal import can_seal
from determined.pytorch._checkpoint.files.trust import Trust
from determined.pytorch._checkpoint.resuming.departures import record_departures
from determined.pytorch._checkpoint.resuming.environment import current_environment
from determined.pytorch._checkpoint.resuming.resume import SavedRun
from determined.pytorch._checkpoint.saving.dry_run import DryRun
from determined.pytorch._checkpoint.saving.frozen import frozen_places, save_frozen
from determined.pytorch._checkpoint.saving.job import SaveJob
from determined.pytorch._checkpoint.saving.policy import CheckpointPolicy
from determined.pytorch._checkpoint.saving.retention import Retention, configured_policy
from determined.pytorch._checkpoint.saving.save_on_error import SaveOnError
from determined.pytorch._checkpoint.saving.saver import Saver
from determined.pytorch._checkpoint.state.averages import averages_weights, check_export
from determined.pytorch._checkpoint.state.rank_local_state import ReplicaCheck, rank_local_state
from determined.pytorch._checkpoint.state.training_state import (
    collect,
    collect_rank,
    load_data_of,
    named_states,
)
from determined.pytorch._ranks.comm_hooks import forgetful_hooks
from determined.pytorch._ranks.fsdp import is_sharded
from determined.pytorch._reporter import Reporter
from determined.pytorch._run import Fit, Run
from determined.pytorch._schedule import _ShouldExit
from determined.util import is_numerical_scalar

logger = logging.getLogger("determined.pytorch")

# What goes into `state_dict.pth`, and what only ranks know.
_State = tuple[dict[str, Any], list[dict[str, Any]]]


class Checkpoints:
    """Saves when it is asked to, when a validation is worth it, and after an error.

    Every rank calls the same methods in the same order. `start` comes first, `follow` when the run
    is open.
    """

    def __init__(self, fit: Fit, reporter: Reporter) -> None:
        plan, core = fit.plan, fit.context._core
        check_export(plan.export, fit.callbacks)
        self._fit = fit
        self._context = fit.context
        self._reporter = reporter
        self._policy = CheckpointPolicy(plan)
        self._metrics: dict[str, Any] = {}  # of the last validation
        self._before_validation: _State | None = None
        self._newest: str | None = None
        self._is_first = True  # of the saves
        self._code = find_trial_code(type(fit.trial))
        self._dry_run = DryRun([self._trust_without_seal, self._trust_with_seal])
        self._had_dry_run = False
        self._saver = Saver(
            core.checkpoint,
            fit.callbacks,
            fit.hooks,
            background=plan.async_checkpoint,
            goes_on_after_errors=plan.on_checkpoint_error == "continue",
            export=plan.export,
            code=self._code.source,
            outside_code=reporter.directories(),
            on_saved=self._saved,
            observer=fit.observer,
            save_frozen=save_frozen(fit.context),
        )

    def start(self, stack: contextlib.ExitStack) -> None:
        """Begin to copy the user's code as it is now; `stack` ends the background work."""
        stack.callback(self._saver.close)
        if self._context.distributed.rank == 0:
            self._saver.start()

    def follow(self, run: Run) -> None:
        """Take the run whose checkpoints these are, at the place where its training begins."""
        plan = self._fit.plan
        self._run = run
        self._retention = Retention(
            self._context._core.checkpoint,
            configured_policy(self._context, plan),
            run.record.run_id,
            run.started_from,
            is_managed=self._context._core._backend.restarts_trials,
        )
        self._replicas = ReplicaCheck(self._context, self._record_departure)
        self.on_error = SaveOnError(self._fit, run, self._saver, self._save_after_error)

    def continue_from(self, saved: SavedRun) -> None:
        """Let the first save share with the checkpoint that the run started from."""
        storage_id = self._context._core.checkpoint._own_id(saved.name)
        if saved.hashes is not None and storage_id is not None:
            self._saver.continue_from(storage_id, saved.hashes)

    def is_writing(self) -> bool:
        """Say whether a checkpoint is being written."""
        return self._saver.is_writing

    def check_metric(self, metrics: dict[str, Any]) -> None:
        """Raise if these metrics lack the one that decides what is best."""
        self._policy.has_metric(metrics)

    def dry_run(self) -> None:
        """Try whether what checkpoints will hold can be loaded again.

        Every rank calls it: asking for states may take all of them, as it does when one saves.
        """
        self._had_dry_run = True
        states = named_states(collect(self._context, self._fit.callbacks))
        data = self._run.training_data.state_dict(self._run.state.batches_trained)
        if self._context.distributed.rank == 0:
            self._dry_run.try_states({**states, "the training data": data})

    def _trust_without_seal(self) -> Trust:
        return Trust(anything=self._context._allow_pickle)

    def _trust_with_seal(self) -> Trust:
        return Trust(own_code=self._code.source if can_seal() else None)

    # When.

    def after_validation(self, metrics: dict[str, Any], is_best: bool) -> None:
        """Save if the policy asks for it; the chief decides, who has the metrics."""
        self._metrics = metrics
        is_worth_it = (
            self._context.distributed.rank == 0
            and not self._run.is_saved
            and self._policy.asks_for(metrics, is_best)
        )
        if self._context.distributed.broadcast(is_worth_it):
            self._save(is_best=is_best and self._fit.plan.checkpoint_policy == "best")

    def save_unless_current(self, already_exiting: bool = False) -> None:
        """Save the state after the last trained batch, unless that was done."""
        if not self._run.is_saved:
            self._save(already_exiting=already_exiting)

    def raise_failure(self) -> None:
        """Raise what went wrong in the background, if anything did; do not wait."""
        self._saver.raise_failure()

    def finish(self) -> None:
        """Wait for the last checkpoint, which must have worked."""
        self._fit.observer.watch("checkpoint", self._saver.finish)()

    @contextlib.contextmanager
    def unchanged_until_validated(self) -> Iterator[None]:
        """Save the state of before a validation if anything ends this block early.

        Hooks and `evaluate_batch` may change anything: swap weights, count, step a scheduler. So
        the state is copied first, into the memory of background saves.
        """
        if self.can_interrupt_validations and not self._fit.plan.test_mode:
            self._before_validation = self._saver.copy(self._state())
        if self._before_validation is not None:
            yield
            self._before_validation = None
        else:
            with self.on_error.during("a validation"):
                yield

    @property
    def can_interrupt_validations(self) -> bool:
        """Whether there can be a copy of before, and there is no other rank to agree with."""
        has_copy = self._fit.plan.async_checkpoint and self._saver.can_copy
        return has_copy and self._context.distributed.size == 1

    def _save_after_error(self) -> str | None:
        """Save and wait for it; if a callback prevents it, leave all of them out."""
        run, record = self._run, self._run.record
        earlier = self._context._core.checkpoint.newest_inexact(record.run_id)
        if self._before_validation is not None or (run.is_validation_due and not run.is_validated):
            record.validation_pending = True
        try:
            self._save(already_exiting=True)
        except (OSError, CheckpointError):
            raise
        except Exception as error:
            record.not_exact = f"without callbacks, one of which raised {type(error).__name__}"
            self._fit = self._fit.without(self._fit.callbacks)
            self._saver.show_files_to(self._fit.callbacks)
            self._save(already_exiting=True)
        self.finish()
        if earlier is not None and record.not_exact is not None:
            self._retention.after_error(earlier, run.state.batches_trained)
        return self._newest

    # What.

    def _save(self, is_best: bool = False, already_exiting: bool = False) -> None:
        self._run.watchdog.beat("checkpoint")
        self._reporter.status("checkpointing")
        self._reporter.before_save()
        self._run.state.last_ckpt = self._run.state.batches_trained
        try:
            with self.on_error.during("a save"):  # callbacks have hooks in it
                self._fit.observer.watch("checkpoint", self._hand_over)(is_best)
        except InvalidHP:
            if already_exiting or self._context.distributed.size > 1:
                raise
            self._context._core.train.report_early_exit(EarlyExitReason.INVALID_HP)
            raise _ShouldExit(skip_exit_checkpoint=True) from None

    def _hand_over(self, is_best: bool) -> None:
        """Give the saver the state of all ranks, or have each of them write its part."""
        distributed, hooks = self._context.distributed, self._fit.hooks
        if not self._had_dry_run:
            self.dry_run()
        state = self._before_validation or self._state()
        storage_id = None
        if any(map(is_sharded, self._context.models)):
            storage_id = self._saver.save_together(self._job(state, is_best), distributed)
        elif distributed.rank == 0:
            storage_id = self._saver.save(self._job(state, is_best))
        if hooks.of("on_checkpoint_upload_end"):
            storage_id = distributed.broadcast(storage_id)
            if storage_id is not None:
                hooks.call("on_checkpoint_upload_end", uuid=storage_id)

    def _state(self) -> _State:
        """Return the state, tensors being the live ones, and what only ranks know.

        The chief gets that of all ranks; of sharded models each rank keeps its own.
        """
        context, batches = self._context, self._run.state.batches_trained
        mine = collect_rank(context, batches, self._run.training_data.state_dict(batches))
        mine[ENVIRONMENT] = current_environment(
            context.device, context.distributed.size, context.models
        )
        if (segment := self._run.segment.state_dict()) is not None:
            mine[SEGMENT] = segment
        tensors = collect(context, self._fit.callbacks)
        if context.distributed.size > 1:
            self._say_what_is_not_saved()
            self._replicas.check()
            mine |= rank_local_state(context, tensors)
        is_split = any(map(is_sharded, context.models))
        ranks = [mine] if is_split else context.distributed.gather(mine)
        if ranks is None:
            return {}, []
        self._run.record.environments = [rank.pop(ENVIRONMENT) for rank in ranks]
        return tensors, ranks

    def _job(self, state: _State, is_best: bool) -> SaveJob:
        tensors, ranks = state
        self._fit.hooks.call("on_checkpoint_save_start", tensors)
        return SaveJob(
            tensors=tensors,
            ranks=ranks,
            state=self._run.state,
            run=self._run.record,
            load_data=load_data_of(self._fit.trial, self._context, self._code),
            metadata=self._metadata(),
            is_best=is_best,
            is_asked_for=not is_best or self._run.is_save_due,
            is_copy=state is self._before_validation,
            frozen=frozen_places(self._context.models),
            data=self._run.samples.take(),
        )

    def _say_what_is_not_saved(self) -> None:
        is_first, self._is_first = self._is_first, False
        hooks = forgetful_hooks(self._context.models) if is_first else []
        if hooks and self._context.distributed.rank == 0:
            logger.warning(
                f"Checkpoints do not hold the state of the communication hook {', '.join(hooks)}: "
                "a resumed run continues without it. Give it `state_dict` and `load_state_dict` "
                "methods."
            )

    def _record_departure(self, departure: str) -> None:
        record_departures(
            self._context, self._run.record, self._run.state.batches_trained, [departure]
        )

    def _metadata(self) -> dict[str, Any]:
        record = self._run.record
        is_measured = self._run.is_validated and record.not_exact is None
        metrics = self._metrics if is_measured else {}
        metadata = {
            "determined_version": __version__,
            "steps_completed": self._run.state.batches_trained,
            "framework": f"torch-{torch.__version__}",
            "format": "pickle",
            "run_id": record.run_id,
            "run": self._context._run_facts,
            "metrics": {name: float(v) for name, v in metrics.items() if is_numerical_scalar(v)},
        }
        if record.not_exact:
            metadata["not_exact"] = record.not_exact
        if record.departures:
            metadata["departures"] = record.departures
        if record.fork is not None:
            metadata["fork"] = record.fork
        if averages_weights(self._fit.callbacks):
            metadata["measured"] = "averaged weights"
        return metadata

    # What follows.

    def _saved(self, storage_id: str, job: SaveJob) -> None:
        """Follow up on a checkpoint that is safe now; runs in the saver's thread."""
        record, self._newest = self._run.record, storage_id
        if job.run.not_exact is None:
            self._reporter.saved(storage_id, job.state.batches_trained)
        self.on_error.saved_at = job.state.batches_trained
        superseded = record.best_checkpoint if job.is_best else None
        record.best_checkpoint = job.replaceable(storage_id)
        self._retention.after_save(storage_id, superseded)
