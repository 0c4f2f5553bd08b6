"""From a plan to a run that is ready to train: callbacks, data, and the state of a checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from determined._contracts.checkpoint_layout import DATA, SEGMENT
from determined.core.backends.backend import RunDescription
from determined.core.hangs.watchdog import Watchdog
from determined.pytorch._checkpoint.checkpoints import Checkpoints
from determined.pytorch._checkpoint.files.trust import trusting_configured
from determined.pytorch._checkpoint.forking.fork import (
    fork_seed,
    refusing_other_architectures,
    settle_fork,
)
from determined.pytorch._checkpoint.resuming.departures import record_departures
from determined.pytorch._checkpoint.resuming.environment import current_environment, threads_of
from determined.pytorch._checkpoint.resuming.fetching import other_draws
from determined.pytorch._checkpoint.resuming.resume import SavedRun, find_saved_run
from determined.pytorch._checkpoint.resuming.settings import Settings
from determined.pytorch._checkpoint.state.optimizers import optimizer_name
from determined.pytorch._checkpoint.state.training_state import RunRecord
from determined.pytorch._checks.manual_steps import ManualStepCheck
from determined.pytorch._checks.trial import (
    check_evaluates,
    check_set_names,
    warn_of_no_validation,
)
from determined.pytorch._checks.updates import (
    Checks,
    FirstUpdateCheck,
    UpdateCheck,
    warn_of_windows,
)
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._data.batches import DataLoader, _dataset_repro_warning
from determined.pytorch._data.iterable import StreamLoader
from determined.pytorch._data.loader import Loader
from determined.pytorch._data.samples import Samples
from determined.pytorch._data.seed import mix, seeded_rng_state, set_rng_state
from determined.pytorch._data.training.opening import open_training_data
from determined.pytorch._data.training.training_data import TrainingData
from determined.pytorch._data.validation_parts import ValidationParts
from determined.pytorch._display.hints import add_hints
from determined.pytorch._evaluate import uses_evaluate_batch
from determined.pytorch._identity.identity import main_script
from determined.pytorch._identity.naming import continue_tensorboard_files, lock_run
from determined.pytorch._instrumentation.observer import UNOBSERVED
from determined.pytorch._metrics.segment import Segment
from determined.pytorch._plan import FitPlan
from determined.pytorch._ranks.stopping import StopRequests
from determined.pytorch._ranks.together import agree, start_watchdog
from determined.pytorch._reporter import Reporter
from determined.pytorch._run import Fit, Run
from determined.pytorch._schedule import Epoch, Schedule, _TrialState
from determined.pytorch._trial import PyTorchTrial
from determined.pytorch.samplers import SkipBatchSampler, SkipSampler

logger = logging.getLogger("determined.pytorch")


@dataclasses.dataclass(frozen=True)
class _Data:
    training: TrainingData
    validation: Mapping[str | None, Any]
    validation_parts: ValidationParts
    validates: bool
    epoch_length: int


@dataclasses.dataclass(frozen=True)
class _StartingPoint:
    """Where a run starts: at its beginning, or where a checkpoint left it."""

    state: _TrialState
    record: RunRecord
    rng_state: dict[str, Any] | None
    started_from: str | None
    saved: SavedRun | None
    changes: list[str]  # that the user asked for, of what the checkpoint restored
    is_forked: bool  # it leaves its parent here, with other settings

    @property
    def continues(self) -> str | None:
        """The checkpoint, by id or path, if counters continue from it."""
        return self.saved.name if self.saved is not None and self.saved.continues else None

    @property
    def segment(self) -> dict[str, Any] | None:
        """What the checkpoint has of an open report, if counters continue from it."""
        return self.saved.rank.get(SEGMENT) if self.saved and self.saved.continues else None


def open_run(
    stack: contextlib.ExitStack, fit: Fit, reporter: Reporter, checkpoints: Checkpoints
) -> Run:
    """Bring everything to where training begins; `stack` undoes it in reverse."""
    context, plan, train = fit.context, fit.plan, fit.context._core.train
    watchdog = _take_run(stack, fit)
    stack.callback(reporter.close)
    checkpoints.start(stack)
    place, data = _open_data(stack, fit)
    state, record = place.state, place.record
    train._describe_run(_description(fit, place))
    # Even if the script continues after a failure, its training has failed.
    stack.push(lambda kind, error, tb: None if error is None else train._note_failure(error))
    pauses_at = plan.interval_end(
        state.batches_trained, data.epoch_length, record.validation_pending
    )
    ends = [batch for batch in (plan.ends_at, pauses_at) if batch is not None]
    stop = StopRequests(context, state.batches_trained, min(ends, default=None))
    warn_of_windows(context, plan.batches(data.epoch_length))
    if record.best is not None:
        train._set_best_tracking(plan.metric, plan.smaller_is_better, record.best)
    reporter.start(plan, state, place.continues, data.training, checkpoints.is_writing)
    fit.hooks.call("on_training_start")
    _compare_environment(fit, place, data)
    context._set_observer(fit.observer)
    stack.callback(context._set_observer, UNOBSERVED)
    if context.profiler is not None:
        stack.enter_context(context.profiler)
    # Last, so that nothing above moves the random numbers of the resumed run.
    if place.rng_state is not None:
        set_rng_state(place.rng_state)
    updates = UpdateCheck(context, state.batches_trained)
    stack.callback(updates.close)
    first = FirstUpdateCheck(context, state.batches_trained, checkpoints.dry_run)
    stack.callback(ManualStepCheck(context, fit.trial).close)
    segment = Segment(context)
    if (saved_segment := place.segment) is not None:
        segment.load_state_dict(saved_segment)
    run = Run(
        plan=plan,
        state=state,
        record=record,
        training_data=data.training,
        validation_sets=data.validation,
        validation_parts=data.validation_parts,
        validates=data.validates,
        epoch_length=data.epoch_length,
        started_from=place.started_from,
        schedule=Schedule(
            plan.units, data.epoch_length, every_batch=plan.test_mode, pauses_at=pauses_at
        ),
        watchdog=watchdog,
        stop=stop,
        updates=Checks(updates, first),
        segment=segment,
        samples=Samples(data.training, record.seed),
    )
    checkpoints.follow(run)
    if place.saved is not None:
        checkpoints.continue_from(place.saved)
    stack.push(lambda kind, error, tb: add_hints(context, error, tb))
    return run


def _take_run(stack: contextlib.ExitStack, fit: Fit) -> Watchdog:
    """Check that all ranks ask for the same, and that no other process trains this run."""
    context, plan, core = fit.context, fit.plan, fit.context._core
    agree(context.distributed, "fit", plan.shared)
    watchdog = start_watchdog(stack, core)
    stack.enter_context(core.preempt.catch_signals())
    core.preempt.should_preempt()  # refuses to work outside of `pytorch.init()`
    core.train._set_best_tracking(plan.metric, plan.smaller_is_better)
    lock_run(stack, context, type(fit.trial), plan)
    return watchdog


def _open_data(stack: contextlib.ExitStack, fit: Fit) -> tuple[_StartingPoint, _Data]:
    """Start callbacks, build the loaders and restore the checkpoint, in this order."""
    context = fit.context
    stack.enter_context(trusting_configured(context._exp_conf))
    state, rng = _TrialState(trial_id=context.get_trial_id()), None
    changes: list[str] = []
    is_forked = False
    with contextlib.ExitStack() as restoring:
        record = _new_record(fit)
        saved = find_saved_run(restoring, fit, record)
        start = 0
        if saved is not None:
            stack.enter_context(threads_of(saved.environment(context.distributed.rank)))
            start, record = saved.batches_trained(state.trial_id), saved.continued(record)
            record.seed = fork_seed(fit, saved, record)
        context._start_at(start, record.seed)
        continue_tensorboard_files(context, is_continued=start > 0)
        for callback in fit.callbacks.values():
            callback.on_trial_startup(start, None if saved is None else saved.name)
            stack.callback(callback.on_trial_shutdown)
        data = _build_data(stack, fit, start, saved)
        context._remember_models_as_built()
        if saved is not None:
            with refusing_other_architectures(fit, saved, record):
                state, rng = saved.restore(fit, data.epoch_length)
            is_forked = settle_fork(fit, saved, record, state)
            if is_forked and saved.record is not None and record.seed != saved.record.seed:
                rng = seeded_rng_state(mix(record.seed, context.distributed.rank, start))
            if not is_forked:
                changes = saved.settle_settings(fit, record, state)
        context._set_batches_trained(state.batches_trained)
    started_from = None if saved is None else pathlib.Path(saved.name).name
    if record.best_checkpoint == started_from:
        record.best_checkpoint = None  # it has a second use now, so nothing takes its place
    return _StartingPoint(state, record, rng, started_from, saved, changes, is_forked), data


def _compare_environment(fit: Fit, place: _StartingPoint, data: _Data) -> None:
    """Say what differs from where the run was saved, when user code has set all it sets."""
    saved, context, found = place.saved, fit.context, list[str]()
    is_to_be_exact = saved is not None and saved.continues and not place.is_forked
    if saved is not None and is_to_be_exact and not fit.plan.is_finished(place.state):
        found = [*place.changes, *saved.departures(context)]
        found += other_draws(saved.rank.get(DATA), data.training)
        found = record_departures(context, place.record, place.state.batches_trained, found)
    if context.distributed.rank == 0:
        environment = current_environment(context.device, context.distributed.size, context.models)
        context._core.train._report_environment(environment, found)


def _description(fit: Fit, place: _StartingPoint) -> RunDescription:
    """What the record of a run says of it, where no platform knows."""
    context, plan = fit.context, fit.plan
    return RunDescription(
        run_id=context._run_id,
        hparams=context._hparams or {},
        seed=context.get_trial_seed(),
        continues=None if place.continues is None else pathlib.Path(place.continues).name,
        steps_completed=place.state.batches_trained,
        forked_at=None if plan.fork is None else plan.fork.at,
        metric=plan.metric,
        smaller_is_better=plan.smaller_is_better,
        is_trial_run=plan.test_mode,
    )


def _new_record(fit: Fit) -> RunRecord:
    context, plan = fit.context, fit.plan
    assert context._run_id is not None, "lock_run() comes first"
    return RunRecord(
        run_id=context._run_id,
        seed=context.get_trial_seed(),
        world_size=context.distributed.size,
        aggregation_frequency=context._aggregation_frequency,
        metric=plan.metric,
        smaller_is_better=plan.smaller_is_better,
        optimizers=[optimizer_name(optimizer) for optimizer in context.optimizers],
        constructed=Settings.of(context).as_json(),
        command={
            "script": main_script(),
            "arguments": sys.argv[1:],
            "folder": str(pathlib.Path.cwd()),
        },
    )


# The data.


def _build_data(stack: contextlib.ExitStack, fit: Fit, start: int, saved: SavedRun | None) -> _Data:
    trial, context = fit.trial, fit.context
    training_loader = trial.build_training_data_loader()
    _check_loader(training_loader, context, trial.build_training_data_loader)
    validation_sets = _validation_sets(trial, context, fit.plan)
    for loader in validation_sets.values():
        if isinstance(loader, (Loader, StreamLoader)):
            stack.callback(loader.close)
    # Before a dataset that training shares is restored.
    validation_parts = ValidationParts(validation_sets.values())
    # When both are built: this draws a random number, and those of the trial come first.
    training = _open_training_data(training_loader, fit, start, saved)
    stack.callback(training.close)
    epoch_length = context.distributed.broadcast(training.epoch_length or sys.maxsize)
    context._set_epoch_length(epoch_length)
    if epoch_length == sys.maxsize and not fit.plan.test_mode:
        _check_no_epochs(fit.plan)
    return _Data(training, validation_sets, validation_parts, bool(validation_sets), epoch_length)


def _open_training_data(loader: Any, fit: Fit, start: int, saved: SavedRun | None) -> TrainingData:
    context = fit.context
    position = saved.rank.get(DATA) if saved is not None and saved.continues else None
    if not isinstance(loader, DataLoader) and _skips(loader):
        start, position = 0, None  # a pipeline made by hand, which is in place already
    return open_training_data(
        loader,
        seed=context.get_trial_seed(),
        rank=context.distributed.rank,
        size=context.distributed.size,
        start=start,
        saved=position,
        observer=fit.observer,
    )


def _check_no_epochs(plan: FitPlan) -> None:
    """Refuse to train for epochs of unknown length: that would never end."""
    why = "the number of training batches is unknown"
    if isinstance(plan.max_length, Epoch):
        raise ValueError(
            f"`max_length={plan.max_length}` needs the length of an epoch, but {why}. Give the "
            "dataset a `__len__`, or use `max_length=Batch(n)`."
        )
    for boundary, unit in plan.units.items():
        if isinstance(unit, Epoch):
            logger.warning(f"{unit} for {boundary.value} is never reached: {why}. Use Batch(n).")


def _skips(loader: Any) -> bool:
    """Say whether a torch loader skips, as `context.get_initial_batch()` tells hand-made ones."""
    sampler = loader
    while sampler is not None:
        if isinstance(sampler, (SkipBatchSampler, SkipSampler)) and sampler.skip > 0:
            return True
        inner = getattr(sampler, "batch_sampler", None)
        sampler = getattr(sampler, "sampler", None) if inner is None else inner
    return False


def _validation_sets(
    trial: PyTorchTrial, context: PyTorchTrialContext, plan: FitPlan
) -> dict[str | None, Any]:
    """Return the loaders of this rank by the names of their sets; the name of one alone is None."""
    built = trial.build_validation_data_loader()
    if built is None:
        warn_of_no_validation(context, plan)
        return {}
    check_evaluates(trial)
    sets: Mapping[Any, Any] = built if isinstance(built, Mapping) else {None: built}
    if isinstance(built, Mapping):
        check_set_names(built)
    return {name: _validation_loader(trial, context, loader) for name, loader in sets.items()}


def _validation_loader(trial: PyTorchTrial, context: PyTorchTrialContext, loader: Any) -> Any:
    """Return the loader of this rank, None if another validates alone."""
    _check_loader(loader, context, trial.build_validation_data_loader)
    if not isinstance(loader, DataLoader):
        return loader
    distributed = context.distributed
    is_shared = uses_evaluate_batch(trial) and distributed.size > 1
    if not is_shared and distributed.rank != 0:
        return None
    if is_shared:
        batches = loader.get_data_loader(num_replicas=distributed.size, rank=distributed.rank)
    else:
        batches = loader.get_data_loader()
    if isinstance(batches, Loader):
        seed = context.get_trial_seed()
        batches.derive_passes(lambda: mix(seed, context._current_batch_idx or 0), is_shared)
    return batches


def _check_loader(
    loader: Any, context: PyTorchTrialContext, build_method: Callable[[], Any]
) -> None:
    if not isinstance(loader, DataLoader) and not context.experimental._data_repro_checks_disabled:
        raise RuntimeError(_dataset_repro_warning(build_method, loader))
