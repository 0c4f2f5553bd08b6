"""From a plan to a run that is ready to train: callbacks, data, and the state of a checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from determined.core import CheckpointContext
from determined.errors import CheckpointNotFound
from determined.pytorch._callback import Hooks, PyTorchCallback
from determined.pytorch._checkpoint.optimizers import optimizer_name
from determined.pytorch._checkpoint.reading import read_counters, read_dict, read_state, state_file
from determined.pytorch._checkpoint.shards import join
from determined.pytorch._checkpoint.state import (
    RunRecord,
    batches_trained_in,
    mean_gradients,
    read_run,
    restore,
    restore_buffers,
    restore_counters,
    restore_gradients,
)
from determined.pytorch._checks.trial import check_evaluates, warn_of_no_validation
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._data.batches import DataLoader, _dataset_repro_warning
from determined.pytorch._data.iterable import StreamLoader
from determined.pytorch._data.loader import Loader
from determined.pytorch._data.seed import mix
from determined.pytorch._data.training_data import TrainingData, open_training_data
from determined.pytorch._evaluate import uses_evaluate_batch
from determined.pytorch._naming import former_checkpoint, place_curves, tell_of_others
from determined.pytorch._plan import FitPlan
from determined.pytorch._ranks.ddp import continue_window
from determined.pytorch._ranks.fsdp import is_sharded
from determined.pytorch._schedule import Epoch, _TrialState
from determined.pytorch._trial import PyTorchTrial
from determined.pytorch.samplers import SkipBatchSampler, SkipSampler
from determined.storage import SharedFSStorageManager
from determined.storage._base import is_storage_id

logger = logging.getLogger("determined.pytorch")


@dataclasses.dataclass
class Opened:
    """A run that is ready to train."""

    state: _TrialState
    run: RunRecord
    training_data: TrainingData
    validation_loader: Any
    validates: bool
    epoch_length: int
    rng_state: dict[str, Any] | None
    started_from: str | None
    continues: str | None  # the same checkpoint, by id or path, if counters go on from it


@dataclasses.dataclass
class _Checkpoint:
    """A checkpoint that was found and whose counters were read, but not its tensors."""

    name: str
    path: pathlib.Path
    counters: dict[str, int] | None
    run: RunRecord | None
    rank: dict[str, Any]
    continues: bool


def open_run(
    stack: contextlib.ExitStack,
    trial: PyTorchTrial,
    context: PyTorchTrialContext,
    plan: FitPlan,
    callbacks: Mapping[str, PyTorchCallback],
    hooks: Hooks,
) -> Opened:
    """Start callbacks, build the data and restore the checkpoint; `stack` undoes it in reverse."""
    trial_id = context.get_trial_id()
    assert context._run_id is not None, "hold_run() comes first"
    run = RunRecord(
        run_id=context._run_id,
        seed=context.get_trial_seed(),
        world_size=context.distributed.size,
        aggregation_frequency=context._aggregation_frequency,
        metric=plan.metric,
        smaller_is_better=plan.smaller_is_better,
        optimizers=[optimizer_name(optimizer) for optimizer in context.optimizers],
    )
    with contextlib.ExitStack() as restoring:
        saved = _find(restoring, context, plan, run, trial_id, type(trial))
        start = 0
        if saved is not None and saved.continues:
            start = batches_trained_in(saved.counters, trial_id)
            if saved.run is not None:
                run = _continued(run, saved.run)
                context._trial_seed = run.seed
        context._steps_completed = start
        place_curves(context, is_continued=start > 0)

        for callback in callbacks.values():
            callback.on_trial_startup(start, None if saved is None else saved.name)
            stack.callback(callback.on_trial_shutdown)

        training_loader = trial.build_training_data_loader()
        _check_loader(training_loader, context, trial.build_training_data_loader)
        validation_loader, validates = _validation_loader(trial, context, plan)
        if isinstance(validation_loader, (Loader, StreamLoader)):
            stack.callback(validation_loader.close)
        # When both are built: this draws a random number, and those of the trial come first.
        data = _open_training_data(training_loader, context, start, saved)
        stack.callback(data.close)
        epoch_length = context.distributed.broadcast(data.epoch_length or sys.maxsize)
        context._epoch_len = epoch_length
        if epoch_length == sys.maxsize and not plan.test_mode:
            _check_no_epochs(plan)

        state, rng = _TrialState(trial_id=trial_id), None
        if saved is not None:
            state, rng = _restore(saved, context, callbacks, hooks, trial_id, epoch_length)
        # A validation may come before the first batch; it is about the last one trained.
        context._current_batch_idx = state.batches_trained - 1 if state.batches_trained else None
    started_from = None if saved is None else pathlib.Path(saved.name).name
    if run.best_checkpoint == started_from:
        run.best_checkpoint = None  # it has a second use now, so nothing takes its place
    continues = saved.name if saved is not None and saved.continues else None
    return Opened(
        state, run, data, validation_loader, validates, epoch_length, rng, started_from, continues
    )


# The checkpoint.


def _find(
    restoring: contextlib.ExitStack,
    context: PyTorchTrialContext,
    plan: FitPlan,
    run: RunRecord,
    trial_id: int,
    trial_class: type,
) -> _Checkpoint | None:
    checkpoints = context._core.checkpoint
    name = plan.latest_checkpoint
    if name is None:
        return None
    if name == "best" and plan.metric is None:
        raise ValueError(
            "`latest_checkpoint='best'` needs to know the metric: pass fit(metric=...)."
        )
    if name in ("latest", "best"):
        restored = checkpoints.restore_named(
            name,
            run.run_id,
            metric_name=plan.metric,
            smaller_is_better=plan.smaller_is_better,
        )
        try:
            name, path = restoring.enter_context(restored)
        except CheckpointNotFound as e:
            former = former_checkpoint(context, trial_class) if name == "latest" else None
            if former is None:
                logger.info(f"{e} Training starts from the beginning.")
                if context.distributed.rank == 0:
                    tell_of_others(context)
                return None
            name, path = former, restoring.enter_context(checkpoints.restore_path(former))
    else:
        path = restoring.enter_context(_restored(name, context))
    logger.info(f"Restoring checkpoint {name}.")
    state_file(path)  # raises where there is none
    counters, saved_run = read_counters(path), read_run(path)
    return _Checkpoint(
        name=name,
        path=path,
        counters=counters,
        run=saved_run,
        rank=_read_rank(path, context),
        continues=counters is not None and counters.get("trial_id", trial_id) == trial_id,
    )


def _restored(
    name: str, context: PyTorchTrialContext
) -> contextlib.AbstractContextManager[pathlib.Path]:
    if pathlib.Path(name).is_absolute():  # of another storage, perhaps of another kind
        storage = SharedFSStorageManager(pathlib.Path(name).parent)
        return CheckpointContext(context.distributed, storage).restore_path(name)
    if not is_storage_id(name):
        raise ValueError(
            "`latest_checkpoint` must be the id of a checkpoint, an absolute path, 'latest' or "
            f"'best', got {name!r}."
        )
    return context._core.checkpoint.restore_path(name)


def _read_rank(path: pathlib.Path, context: PyTorchTrialContext) -> dict[str, Any]:
    """Read this rank's own state, or the chief's if the run had fewer ranks."""
    rank, size = context.distributed.rank, context.distributed.size
    saved_size = len(list((path / "ranks").glob("rank_*.pth")))
    if saved_size == 0:
        return {}
    state = _read_rank_file(path, 0, context)
    if 0 < rank < saved_size:
        gradients = {"gradients": state["gradients"]} if "gradients" in state else {}
        state = {**gradients, **_read_rank_file(path, rank, context)}
    if saved_size != size and not any(map(is_sharded, context.models)):
        state.pop("buffers", None)
        ranks = [_read_rank_file(path, other, context) for other in range(saved_size)]
        if any("gradients" in other for other in ranks[1:]):  # inside of an aggregation window
            state["gradients"] = mean_gradients(ranks)
    return join(path, state, context.models, context._allow_pickle)  # type: ignore[no-any-return]  # still a dict


def _read_rank_file(path: pathlib.Path, rank: int, context: PyTorchTrialContext) -> dict[str, Any]:
    return read_dict(path / "ranks" / f"rank_{rank}.pth", context._allow_pickle)


def _continued(run: RunRecord, saved: RunRecord) -> RunRecord:
    """Continue the saved run: its seed decides the data order, its best value what is better."""
    if saved.metric == run.metric and saved.smaller_is_better == run.smaller_is_better:
        run = dataclasses.replace(run, best=saved.best)
        if saved.run_id == run.run_id:
            run = dataclasses.replace(run, best_checkpoint=saved.best_checkpoint)
    if saved.not_exact is not None:
        logger.warning(
            f"This checkpoint was saved after an error and is not exact: {saved.not_exact}. The "
            "batch that failed is trained again."
        )
    if saved.aggregation_frequency != run.aggregation_frequency:
        logger.warning(
            f"The run was saved with aggregation_frequency={saved.aggregation_frequency} and "
            "continues with "
            f"{run.aggregation_frequency}: its windows are cut differently from here on."
        )
    return dataclasses.replace(run, seed=saved.seed, validation_pending=saved.validation_pending)


def _restore(
    saved: _Checkpoint,
    context: PyTorchTrialContext,
    callbacks: Mapping[str, PyTorchCallback],
    hooks: Hooks,
    trial_id: int,
    epoch_length: int,
) -> tuple[_TrialState, dict[str, Any] | None]:
    checkpoint = read_state(saved.path, context._allow_pickle)
    checkpoint = join(saved.path, checkpoint, context.models, context._allow_pickle)
    hooks.call("on_checkpoint_load_start", checkpoint)
    names = saved.run.optimizers if saved.run is not None else ()
    restore(context, callbacks, checkpoint, names)
    state = restore_counters(saved.counters, trial_id, epoch_length)
    if saved.continues and "gradients" in saved.rank:
        frequency = 1 if saved.run is None else max(1, saved.run.aggregation_frequency)
        in_window = state.batches_trained % frequency != 0
        restore_gradients(context, saved.rank["gradients"], in_window)
    if saved.continues and state.batches_trained % context._aggregation_frequency:
        continue_window(context.models)
    if saved.continues and "buffers" in saved.rank:
        restore_buffers(context, saved.rank["buffers"])
    if context._core.train._get_last_validation() == state.batches_trained:
        state.last_val = state.batches_trained
    rng = saved.rank.get("rng_state") or checkpoint.get("rng_state")
    if rng is None:
        logger.warning("The checkpoint has no random state: dropout and the like start afresh.")
    return state, rng


# The data.


def _open_training_data(
    loader: Any, context: PyTorchTrialContext, start: int, saved: _Checkpoint | None
) -> TrainingData:
    position = saved.rank.get("data") if saved is not None and saved.continues else None
    if not isinstance(loader, DataLoader) and _skips(loader):
        start, position = 0, None  # a pipeline made by hand, which is in place already
    return open_training_data(
        loader,
        seed=context.get_trial_seed(),
        rank=context.distributed.rank,
        size=context.distributed.size,
        start=start,
        saved=position,
    )


def _check_no_epochs(plan: FitPlan) -> None:
    """Refuse to train for epochs whose length nobody knows: that would never end."""
    why = "the training data does not tell its number of batches"
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


def _validation_loader(
    trial: PyTorchTrial, context: PyTorchTrialContext, plan: FitPlan
) -> tuple[Any, bool]:
    """Return the loader of this rank, and whether there is anything to validate on."""
    loader = trial.build_validation_data_loader()
    if loader is None:
        warn_of_no_validation(context, plan)
        return None, False
    check_evaluates(trial)
    _check_loader(loader, context, trial.build_validation_data_loader)
    if not isinstance(loader, DataLoader):
        return loader, True
    distributed = context.distributed
    is_shared = uses_evaluate_batch(trial) and distributed.size > 1
    if not is_shared and distributed.rank != 0:
        return None, True
    if is_shared:
        batches = loader.get_data_loader(num_replicas=distributed.size, rank=distributed.rank)
    else:
        batches = loader.get_data_loader()
    if isinstance(batches, Loader):
        seed = context.get_trial_seed()
        batches.derive_passes(lambda: mix(seed, context._current_batch_idx or 0), is_shared)
    return batches, True


def _check_loader(
    loader: Any, context: PyTorchTrialContext, build_method: Callable[[], Any]
) -> None:
    if not isinstance(loader, DataLoader) and not context.experimental._data_repro_checks_disabled:
        raise RuntimeError(_dataset_repro_warning(build_method, loader))
