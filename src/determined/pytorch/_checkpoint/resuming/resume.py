"""Resume a run from a checkpoint: find it first, restore it when the data is open."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from determined._code.trial_code import find_trial_code
from determined._contracts.checkpoint_layout import (
    BUFFERS,
    COUNTS,
    GRADIENTS,
    HOOKS,
    MODULES,
    OWN,
    RANDOM,
    STATE,
    WEIGHTS,
    count_rank_files,
    is_storage_id,
    rank_file,
)
from determined._contracts.tensor_hashes import TensorHashes, read_tensor_hashes
from determined.core import CheckpointContext
from determined.errors import CheckpointNotFound, InvalidCheckpointException
from determined.pytorch._checkpoint.files.encoding import living_in
from determined.pytorch._checkpoint.files.reading import (
    make_objects,
    read_counters,
    read_dict,
    read_state,
    state_file,
)
from determined.pytorch._checkpoint.files.seal import sealed_files
from determined.pytorch._checkpoint.files.shards import join
from determined.pytorch._checkpoint.files.trust import Trust
from determined.pytorch._checkpoint.forking.base import as_own, find_base
from determined.pytorch._checkpoint.resuming.environment import current_environment, differences
from determined.pytorch._checkpoint.resuming.settings import (
    apply_settings,
    began_with,
    other_settings,
    say_other_settings,
)
from determined.pytorch._checkpoint.state.modules import restore_changes
from determined.pytorch._checkpoint.state.numpy_states import checked
from determined.pytorch._checkpoint.state.rank_local_state import (
    describe_rank_local,
    with_rank_local_state,
)
from determined.pytorch._checkpoint.state.training_state import (
    RunRecord,
    batches_trained_in,
    collect,
    mean_gradients,
    read_run,
    restore,
    restore_buffers,
    restore_counters,
    restore_gradients,
)
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._context.counts import joined_counts
from determined.pytorch._context.loss_weights import joined_weights
from determined.pytorch._data.seed import mix, seeded_rng_state
from determined.pytorch._identity.naming import former_checkpoint, warn_of_other_runs
from determined.pytorch._plan import FitPlan
from determined.pytorch._ranks.comm_hooks import restore_hook_states
from determined.pytorch._ranks.ddp import continue_window
from determined.pytorch._run import Fit
from determined.pytorch._schedule import _TrialState
from determined.storage import SharedFSStorageManager

logger = logging.getLogger("determined.pytorch")


@dataclasses.dataclass(frozen=True)
class SavedRun:
    """A checkpoint whose counters were read, but not its tensors.

    `continues` if the counters continue from it; else it is a warm start of another trial.
    """

    name: str
    path: pathlib.Path
    counters: dict[str, int] | None
    record: RunRecord | None
    rank: dict[str, Any]
    trust: Trust
    continues: bool
    hashes: TensorHashes | None = None

    def batches_trained(self, trial_id: int) -> int:
        """Return where the run continues."""
        return batches_trained_in(self.counters, trial_id) if self.continues else 0

    def continued(self, record: RunRecord) -> RunRecord:
        """Continue the saved run: its seed decides the data order, its best what is better."""
        saved = self.record
        if not self.continues or saved is None:
            return record
        if saved.metric == record.metric and saved.smaller_is_better == record.smaller_is_better:
            record = dataclasses.replace(record, best=saved.best)
            if saved.run_id == record.run_id:
                record = dataclasses.replace(record, best_checkpoint=saved.best_checkpoint)
        _warn_of_differences(record, saved)
        return dataclasses.replace(
            record,
            seed=saved.seed,
            validation_pending=saved.validation_pending,
            departures=saved.departures,
            fork=saved.fork,
        )

    def environment(self, rank: int) -> Mapping[str, Any] | None:
        """Return in what environment this rank was saved; None if that is not known."""
        saved = self.record.environments if self.continues and self.record is not None else []
        known = rank < len(saved) and isinstance(saved[rank], dict)
        return saved[rank] if known else None

    def departures(self, context: PyTorchTrialContext) -> list[str]:
        """Say in words what of the environment differs from the one that the run was saved in."""
        rank, size = context.distributed.rank, context.distributed.size
        saved = self.environment(rank)
        if saved is not None:
            return differences(saved, current_environment(context.device, size, context.models))
        if rank > 0:
            return []  # the chief knows that the number of ranks is another one
        return [
            "the checkpoint does not say in which environment it was saved (earlier releases did "
            "not), so threads, instruction set and versions are compared from here on only"
        ]

    def settle_settings(self, fit: Fit, record: RunRecord, state: _TrialState) -> list[str]:
        """Decide whose settings of optimizers and schedulers count; return what that changes."""
        began = began_with(None if self.record is None else self.record.constructed)
        found = [] if began is None else other_settings(fit.context, began)
        if began is None or not found or fit.plan.is_finished(state):
            return []
        if fit.plan.settings_from == "script":
            apply_settings(fit.context, began)
            return [f"{text}, as settings_from={fit.plan.settings_from!r} asks" for text in found]
        if self.continues:
            record.constructed = dict(began)
        if fit.context.distributed.rank == 0:
            say_other_settings(found)
        return []

    def restore(self, fit: Fit, epoch_length: int) -> tuple[_TrialState, dict[str, Any] | None]:
        """Load everything; return the counters, and the random states to continue with."""
        context, trial_id = fit.context, fit.context.get_trial_id()
        checkpoint = read_state(self.path, context._allow_pickle)
        checkpoint = join(self.path, checkpoint, context.models, context._allow_pickle)
        if self.continues:
            checkpoint = with_rank_local_state(checkpoint, self.rank)
        checkpoint = make_objects(
            checkpoint,
            state_file(self.path),
            self.trust,
            lambda: living_in(collect(context, fit.callbacks)),
        )
        fit.hooks.call("on_checkpoint_load_start", checkpoint)
        names = self.record.optimizers if self.record is not None else ()
        restore(context, fit.callbacks, checkpoint, names)
        state = restore_counters(self.counters, trial_id, epoch_length)
        if self.continues:
            restore_changes(context.models, checkpoint.get(MODULES, []))
            self._restore_rank(context, state)
        if context._core.train._get_last_validation() == state.batches_trained:
            state.last_val = state.batches_trained
        rng = self._random_state(context, state) or checkpoint.get(RANDOM)
        if rng is None:
            logger.warning(
                "The checkpoint has no random state: random numbers (dropout and the like) start "
                "afresh."
            )
        return state, rng

    def _random_state(
        self, context: PyTorchTrialContext, state: _TrialState
    ) -> dict[str, Any] | None:
        """Return the random state of this rank; a new one must not draw what another one draws."""
        record, rank = self.record, context.distributed.rank
        if self.continues and record is not None and rank >= record.world_size:
            return seeded_rng_state(mix(record.seed, rank, state.batches_trained))
        return self.rank.get(RANDOM)

    def _restore_rank(self, context: PyTorchTrialContext, state: _TrialState) -> None:
        if GRADIENTS in self.rank:
            in_window = _ends_in_window(self.record, self.counters, state.trial_id)
            restore_gradients(context, self.rank[GRADIENTS], in_window)
        if state.batches_trained % context._aggregation_frequency:
            continue_window(context.models)
        if BUFFERS in self.rank:
            restore_buffers(context, self.rank[BUFFERS])
        restore_hook_states(context.models, self.rank.get(HOOKS, ()))
        context._restore_loss_weights(self.rank.get(WEIGHTS))
        context._restore_counts(self.rank.get(COUNTS))


def find_saved_run(restoring: contextlib.ExitStack, fit: Fit, new: RunRecord) -> SavedRun | None:
    """Return what `latest_checkpoint` names, on disk until `restoring` closes; for all ranks."""
    context, trial_id = fit.context, fit.context.get_trial_id()
    found = _find(restoring, fit, new)
    if found is None:
        return None
    name, path = found
    logger.info(f"Restoring checkpoint {name}.")
    state_file(path)  # raises where there is none
    counters, record = read_counters(path), read_run(path)
    if fit.plan.fork is not None:
        counters = as_own(counters, trial_id, name)
    rank_files = [rank_file(rank) for rank in range(count_rank_files(path))]
    rank = _read_rank(path, context, _ends_in_window(record, counters, trial_id))
    own = {OWN: rank.pop(OWN)} if OWN in rank else {}  # becomes a part of the state
    trust = _trust_in(path, record, fit, rank_files)
    return SavedRun(
        name=name,
        path=path,
        counters=counters,
        record=record,
        rank={**make_objects(rank, path / rank_file(0), trust), **own},
        trust=_trust_in(path, record, fit, [STATE, *(rank_files if own else [])]),
        continues=counters is not None and counters.get("trial_id", trial_id) == trial_id,
        hashes=_read_hashes(path),
    )


def _read_hashes(path: pathlib.Path) -> TensorHashes | None:
    """Return the hashes of a checkpoint; without them, nothing is shared with it."""
    try:
        return read_tensor_hashes(path)
    except ValueError as e:
        logger.debug(f"{path} has no readable hashes: {e}")
        return None


def _trust_in(
    path: pathlib.Path, record: RunRecord | None, fit: Fit, files: Iterable[str]
) -> Trust:
    """Trust classes of the trial's own code in files that a run of this home wrote."""
    anything = fit.context._allow_pickle
    if record is None or record.seal is None or anything:
        return Trust(anything=anything)
    is_ours = sealed_files(path, record.run_id, record.seal).issuperset(files)
    return Trust(own_code=find_trial_code(type(fit.trial)).source if is_ours else None)


def _find(
    restoring: contextlib.ExitStack, fit: Fit, record: RunRecord
) -> tuple[str, pathlib.Path] | None:
    context, plan, name = fit.context, fit.plan, fit.plan.latest_checkpoint
    source = None if plan.fork is None else plan.fork.source
    if name is None:
        return None if source is None else _fork_base(restoring, context, plan)
    if name not in ("latest", "best"):
        return name, restoring.enter_context(_restored(name, context))
    checkpoints = context._core.checkpoint
    _check_metric(name, plan)
    restored = checkpoints.restore_named(
        name, record.run_id, metric_name=plan.metric, smaller_is_better=plan.smaller_is_better
    )
    try:
        return restoring.enter_context(restored)
    except CheckpointNotFound as e:
        if source is not None:
            return _fork_base(restoring, context, plan)
        former = former_checkpoint(context, type(fit.trial)) if name == "latest" else None
        if former is not None:
            return former, restoring.enter_context(checkpoints.restore_path(former))
        if (newer := checkpoints.newest_inexact(record.run_id)) is None:
            logger.info(f"{e} Training starts from the beginning.")
        else:
            logger.warning(
                f"Training starts from the beginning: the only checkpoint of this run, {newer}, "
                "was saved after an error and is not exact. To continue from it anyway: "
                f'fit(latest_checkpoint="{newer}").'
            )
        if context.distributed.rank == 0:
            warn_of_other_runs(context)
        return None


def _fork_base(
    restoring: contextlib.ExitStack, context: PyTorchTrialContext, plan: FitPlan
) -> tuple[str, pathlib.Path]:
    assert plan.fork is not None
    name = find_base(context, plan.fork)
    return name, restoring.enter_context(_restored(name, context))


def _check_metric(name: str, plan: FitPlan) -> None:
    if name == "best" and plan.metric is None:
        raise ValueError(
            "`latest_checkpoint='best'` needs to know the metric: pass fit(metric=...)."
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


def _ends_in_window(
    record: RunRecord | None, counters: dict[str, int] | None, trial_id: int
) -> bool:
    """Say whether gradients of a checkpoint are those that each rank had added up by itself."""
    frequency = 1 if record is None else max(1, record.aggregation_frequency)
    return batches_trained_in(counters, trial_id) % frequency != 0


def _read_rank(path: pathlib.Path, context: PyTorchTrialContext, in_window: bool) -> dict[str, Any]:
    """Read this rank's own state, or the chief's if the run had fewer ranks."""
    rank, size = context.distributed.rank, context.distributed.size
    saved_size = count_rank_files(path)
    if saved_size == 0:
        return {}
    state = _read_rank_file(path, 0, context)
    if 0 < rank < saved_size:
        is_shared = GRADIENTS in state and not in_window
        gradients = {GRADIENTS: state[GRADIENTS]} if is_shared else {}
        state = {**gradients, **_read_rank_file(path, rank, context)}
    if saved_size != size:
        ranks = [_read_rank_file(path, other, context) for other in range(saved_size)]
        for name in (BUFFERS, OWN, HOOKS):
            state.pop(name, None)
        if in_window:
            state[GRADIENTS] = mean_gradients(ranks)
        if WEIGHTS in state:
            state[WEIGHTS] = joined_weights([other[WEIGHTS] for other in ranks], rank)
        if any(COUNTS in other for other in ranks):
            state[COUNTS] = joined_counts([other.get(COUNTS, {}) for other in ranks], rank)
        if rank == 0 and (what := describe_rank_local(ranks)):
            logger.warning(
                f"{', '.join(what)} differed between the {saved_size} ranks of the run; with "
                f"{size}, all continue with the chief's."
            )
    return join(path, state, context.models, context._allow_pickle)  # type: ignore[no-any-return]  # still a dict


def _read_rank_file(path: pathlib.Path, rank: int, context: PyTorchTrialContext) -> dict[str, Any]:
    file = path / rank_file(rank)
    state = read_dict(file, context._allow_pickle)
    if RANDOM not in state:
        raise InvalidCheckpointException(f"{file} holds no random states: no rank has written it.")
    try:
        checked(state[RANDOM]["np_rng_state"])
    except KeyError:
        pass  # what is missing is said when the states are restored
    except (ValueError, TypeError, IndexError) as e:
        raise InvalidCheckpointException(f"{file} cannot be used: {e}.") from e
    return state


def _warn_of_differences(record: RunRecord, saved: RunRecord) -> None:
    if saved.not_exact is not None:
        logger.warning(
            f"This checkpoint was saved after an error and is not exact: {saved.not_exact}. What "
            "failed may have changed it, so the run will not end like an unbroken one."
        )
    if saved.aggregation_frequency != record.aggregation_frequency:
        logger.warning(
            f"The run was saved with aggregation_frequency={saved.aggregation_frequency} and "
            f"continues with {record.aggregation_frequency}: accumulation windows have a "
            "different length from here on."
        )
