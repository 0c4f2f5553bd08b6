"""Training state <-> what a checkpoint holds of it: collected, written, read, restored."""

from __future__ import annotations

import dataclasses
import json
import logging
import pathlib
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from determined._code.trial_code import TrialCode
from determined._contracts.checkpoint_layout import (
    APEX,
    BUFFERS,
    CALLBACKS,
    COUNTERS,
    COUNTS,
    DATA,
    GRADIENTS,
    HOOKS,
    LOAD_DATA,
    MODELS,
    MODULES,
    OLD_MODEL,
    OLD_OPTIMIZER,
    OLD_SCHEDULER,
    OPTIMIZERS,
    RANDOM,
    RUN,
    SCALER,
    SCHEDULERS,
    WEIGHTS,
)
from determined.errors import InvalidCheckpointException
from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._checkpoint.files.reading import read_json
from determined.pytorch._checkpoint.files.shards import place_like, place_optimizer_state
from determined.pytorch._checkpoint.state.copying import copy_state
from determined.pytorch._checkpoint.state.modules import bare_name, make_room, set_buffers
from determined.pytorch._checkpoint.state.optimizers import check_optimizer, load_optimizer
from determined.pytorch._context import apex
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._data.seed import rng_state
from determined.pytorch._ranks.comm_hooks import hook_states
from determined.pytorch._ranks.ddp import count_as_used, inner_module, own_buffers
from determined.pytorch._ranks.fsdp import (
    accumulated_gradients,
    is_sharded,
    restore_accumulated_gradients,
)
from determined.pytorch._schedule import _TrialState
from determined.util import is_overridden, json_encode

logger = logging.getLogger("determined.pytorch")

_FORMAT_VERSION = 2  # 1: states as they were pickled, nothing of flags and modes


@dataclasses.dataclass
class RunRecord:
    """What a run must remember besides the original's files.

    `best_checkpoint` is the one that only `checkpoint_policy="best"` asked for: the next best one
    takes its place. `not_exact` says why this checkpoint, saved after an error, is no exact one.
    `environments` has an entry for each rank, `departures` says where the run left the path of an
    unbroken one, `constructed` are the settings that the script gave to optimizers and schedulers.
    `fork` says of which run this is a fork, from which batch on, and whether what it changes was
    applied. `command` is how the script was started, so that it can be started again.
    """

    run_id: str
    seed: int
    world_size: int
    aggregation_frequency: int
    metric: str | None = None
    smaller_is_better: bool = True
    best: float | None = None
    best_checkpoint: str | None = None
    validation_pending: bool = False
    optimizers: list[str] = dataclasses.field(default_factory=list)
    not_exact: str | None = None
    environments: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    departures: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    constructed: dict[str, Any] | None = None
    seal: dict[str, Any] | None = None
    fork: dict[str, Any] | None = None
    command: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Refuse what another program may have put into `run.json`."""
        for name, kinds in _RUN_TYPES.items():
            value = getattr(self, name)
            if not isinstance(value, kinds):
                raise TypeError(f"`{name}` is {str(value)[:50]!r}")


_RUN_TYPES: dict[str, tuple[type, ...]] = {
    "run_id": (str,),
    "seed": (int,),
    "world_size": (int,),
    "aggregation_frequency": (int,),
    "metric": (str, type(None)),
    "smaller_is_better": (bool,),
    "best": (int, float, type(None)),
    "best_checkpoint": (str, type(None)),
    "validation_pending": (bool,),
    "optimizers": (list,),
    "not_exact": (str, type(None)),
    "environments": (list,),
    "departures": (list,),
    "constructed": (dict, type(None)),
    "seal": (dict, type(None)),
    "fork": (dict, type(None)),
    "command": (dict, type(None)),
}


# Collecting.


def collect(
    context: PyTorchTrialContext, callbacks: Mapping[str, PyTorchCallback]
) -> dict[str, Any]:
    """Return what goes into `state_dict.pth`; tensors are the live ones."""
    checkpoint: dict[str, Any] = {
        MODELS: [inner_module(model).state_dict() for model in context.models],
        OPTIMIZERS: [optimizer.state_dict() for optimizer in context.optimizers],
        SCHEDULERS: [scheduler.state_dict() for scheduler in context.lr_schedulers],
        CALLBACKS: {name: callback.state_dict() for name, callback in callbacks.items()},
        RANDOM: rng_state(),
    }
    if context._as_built is not None:
        changes = context._as_built.changes(context.models)
        if any(changes):
            checkpoint[MODULES] = changes
    if context._scaler is not None:
        checkpoint[SCALER] = context._scaler.state_dict()
    if context._use_apex:
        checkpoint[APEX] = apex.state_dict()
    return checkpoint


def named_states(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the states that `collect` found by what they are of, in words."""
    words = {MODELS: "model", OPTIMIZERS: "optimizer", SCHEDULERS: "scheduler"}
    states = {
        f"{word} {index}": state
        for key, word in words.items()
        for index, state in enumerate(checkpoint[key])
    }
    return states | {f"the callback {n!r}": s for n, s in checkpoint[CALLBACKS].items()}


def collect_rank(
    context: PyTorchTrialContext, batches_trained: int, data: dict[str, Any]
) -> dict[str, Any]:
    """Return what only this rank knows: randomness, data position, gradients not yet applied,
    buffers that are not the chief's, and what communication hooks keep.

    Inside an aggregation window each rank has its own gradients. Those that a trial leaves at other
    times are equal on all ranks, so the chief's do, or each has a part of them.
    """
    rank_state: dict[str, Any] = {RANDOM: rng_state(), DATA: data}
    in_window = batches_trained % context._aggregation_frequency != 0
    if in_window or context.distributed.rank == 0 or any(map(is_sharded, context.models)):
        gradients = [
            accumulated_gradients(model) if in_window and is_sharded(model) else _gradients(model)
            for model in map(inner_module, context.models)
        ]
        if any(gradients):
            rank_state[GRADIENTS] = gradients
    if context.distributed.rank > 0:
        buffers = [own_buffers(model, in_window) for model in context.models]
        if any(buffers):
            rank_state[BUFFERS] = buffers
    if hooks := hook_states(context.models):
        rank_state[HOOKS] = hooks
    if context._weights is not None:
        rank_state[WEIGHTS] = context._weights.state_dict()
    if context._counts is not None:
        rank_state[COUNTS] = context._counts.state_dict()
    return rank_state


def _gradients(module: nn.Module) -> dict[str, Any]:
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


# Writing.


def write_side_files(
    path: pathlib.Path,
    state: _TrialState,
    run: RunRecord,
    load_data: Mapping[str, Any],
) -> None:
    """Write the small files next to the tensors."""
    (path / COUNTERS).write_bytes(pickle.dumps(dataclasses.asdict(state)))
    (path / LOAD_DATA).write_text(_to_json(load_data))
    (path / RUN).write_text(
        _to_json({"format_version": _FORMAT_VERSION, **dataclasses.asdict(run)})
    )


def load_data_of(trial: object, context: PyTorchTrialContext, code: TrialCode) -> dict[str, Any]:
    """Return what `load_trial_from_checkpoint_path` needs to build the trial again."""
    from determined.config import masked

    cls = type(trial)
    load_data: dict[str, Any] = {
        "trial_type": "PyTorchTrial",
        # Whoever may read a checkpoint need not know secrets, such as values of variables.
        "experiment_config": None if context._exp_conf is None else masked(context._exp_conf),
        "hparams": context._hparams,
        "trial_cls_spec": f"{cls.__module__}:{cls.__qualname__}",
    }
    if not context._is_pre_trainer:
        load_data["is_trainer"] = True
    if code.spec is not None:  # ours: where in `code/` to import the class, and under which name
        load_data |= {"code_root": code.import_root, "code_spec": code.spec}
    return load_data


def _to_json(value: Any) -> str:
    try:
        return json_encode(value)
    except TypeError as e:
        logger.warning(f"The checkpoint stores some settings only as text: {e}")
        return json.dumps(value, default=str)


# Reading.


def read_run(path: pathlib.Path) -> RunRecord | None:
    """Return our own record, or None for a checkpoint that the original wrote."""
    file = path / RUN
    values = read_json(file)
    if values is None:
        return None
    version = values.pop("format_version", None)
    if not isinstance(version, int) or version > _FORMAT_VERSION:
        raise InvalidCheckpointException(
            f"{file} has format version {version!r}; this release reads up to {_FORMAT_VERSION}: "
            "upgrade determined-pytorch."
        )
    try:
        known = {field.name for field in dataclasses.fields(RunRecord)}
        return RunRecord(**{key: value for key, value in values.items() if key in known})
    except (TypeError, ValueError) as e:
        raise InvalidCheckpointException(f"{file} cannot be read: {e}.") from e


# Restoring.


def restore(
    context: PyTorchTrialContext,
    callbacks: Mapping[str, PyTorchCallback],
    checkpoint: dict[str, Any],
    optimizer_names: Sequence[str] = (),
) -> None:
    """Put `state_dict.pth` back into models, optimizers, schedulers, scaler and callbacks.

    `optimizer_names` are the classes of the saved optimizers, where that is known.
    """
    models = _states(checkpoint, MODELS, OLD_MODEL, len(context.models))
    for index, (model, saved) in enumerate(zip(context.models, models, strict=False)):
        load_model(inner_module(model), saved, f"model {index}")
    dtypes = _saved_dtypes(context, models)
    optimizers = _states(checkpoint, OPTIMIZERS, OLD_OPTIMIZER, len(context.optimizers))
    for index, (optimizer, saved) in enumerate(zip(context.optimizers, optimizers, strict=False)):
        name = optimizer_names[index] if index < len(optimizer_names) else None
        check_optimizer(optimizer, saved, index, name)
        load_optimizer(optimizer, place_optimizer_state(optimizer, saved), dtypes)
    schedulers = _states(checkpoint, SCHEDULERS, OLD_SCHEDULER, len(context.lr_schedulers))
    for scheduler, saved in zip(context.lr_schedulers, schedulers, strict=False):
        scheduler.load_state_dict(copy_state(saved))
    _restore_amp(context, checkpoint)
    _restore_callbacks(callbacks, checkpoint.get(CALLBACKS) or {})


def _states(checkpoint: dict[str, Any], new: str, old: str, count: int) -> Sequence[Any]:
    """Return the saved states, from the list of today or the single entry of old releases."""
    if old in checkpoint:
        if new in checkpoint:
            raise RuntimeError(f"The checkpoint has both {new!r} and its old form {old!r}.")
        if count > 1:
            raise RuntimeError(
                f"The checkpoint has one {old!r}, but the trial wraps {count} objects of that kind."
            )
        return [checkpoint[old]]
    states: Sequence[Any] = checkpoint.get(new, [])
    if len(states) != count:
        raise RuntimeError(
            f"The checkpoint has {len(states)} entries in {new!r}, the trial wraps {count}. Wrap "
            "the same models, optimizers and schedulers, in the same order, as when it was saved."
        )
    return states


def load_model(module: nn.Module, saved: Mapping[str, Any], what: str) -> None:
    """Load weights; the prefixes that DDP and torch.compile put before names do not matter."""
    targets = module.state_dict()
    wanted = {bare_name(name): name for name in targets}
    forms = [
        {bare_name(name): value for name, value in saved.items()},
        {bare_name(name).removeprefix("module."): value for name, value in saved.items()},
    ]
    fitting = max(forms, key=lambda form: len(form.keys() & wanted.keys()))
    saved = {wanted.get(name, name): value for name, value in fitting.items()}
    saved = {name: place_like(value, targets.get(name)) for name, value in saved.items()}
    make_room(module, saved)
    try:
        module.load_state_dict(saved, strict=True)
    except RuntimeError as e:
        raise RuntimeError(
            f"The checkpoint does not match {what} ({type(module).__name__}): {e}"
        ) from e


def _saved_dtypes(
    context: PyTorchTrialContext, models: Sequence[Mapping[str, Any]]
) -> dict[int, torch.dtype]:
    """Return in which types weights were saved, by the id of the parameter; say which changed."""
    dtypes: dict[int, torch.dtype] = {}
    for index, (model, saved) in enumerate(zip(context.models, models, strict=False)):
        by_name = {_bare(name): value for name, value in saved.items()}
        changed: dict[str, None] = {}
        for name, parameter in inner_module(model).named_parameters():
            value = by_name.get(_bare(name))
            if isinstance(value, torch.Tensor):
                dtypes[id(parameter)] = value.dtype
                if value.dtype != parameter.dtype:
                    changed[f"{value.dtype} and continue as {parameter.dtype}"] = None
        if changed and context.distributed.rank == 0:
            logger.warning(
                f"The weights of model {index} were saved as {', '.join(changed)}: rounded, so "
                "this run is not exact from here on."
            )
    return dtypes


def _bare(name: str) -> str:
    return bare_name(name).removeprefix("module.")


def _restore_amp(context: PyTorchTrialContext, checkpoint: dict[str, Any]) -> None:
    if context._scaler is not None:
        if SCALER not in checkpoint:
            logger.warning("The checkpoint has no scaler state; the scaler starts afresh.")
        elif context._scaler.is_enabled() and checkpoint[SCALER]:
            context._scaler.load_state_dict(checkpoint[SCALER])
    elif SCALER in checkpoint:
        logger.warning("The checkpoint has a scaler state, but the trial wraps no scaler.")
    if context._use_apex:
        if APEX in checkpoint:
            apex.load_state_dict(checkpoint[APEX])
        else:
            logger.warning("The checkpoint has no apex state; loss scaling starts afresh.")
    elif APEX in checkpoint:
        logger.warning("The checkpoint has an apex state, but the trial does not use apex.")


def _restore_callbacks(callbacks: Mapping[str, PyTorchCallback], saved: Mapping[str, Any]) -> None:
    for name, callback in callbacks.items():
        if name in saved:
            callback.load_state_dict(copy_state(saved[name]))
        elif is_overridden(callback.load_state_dict, PyTorchCallback):
            logger.warning(f"The checkpoint has no state for the callback {name!r}.")


def restore_gradients(
    context: PyTorchTrialContext, saved: Sequence[Mapping[str, Any]], in_window: bool
) -> None:
    """Put back the gradients that an unfinished aggregation window had added up."""
    for model, gradients in zip(context.models, saved, strict=False):
        if in_window and is_sharded(model):
            restore_accumulated_gradients(model, gradients)
            continue
        for name, parameter in inner_module(model).named_parameters():
            if name in gradients:
                gradient = place_like(gradients[name], parameter)
                parameter.grad = gradient.to(parameter.device, copy=True)
        if in_window:
            count_as_used(model)


def mean_gradients(ranks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what each of any number of ranks holds, so that their mean is that of `ranks`."""
    saved = [rank[GRADIENTS] for rank in ranks if GRADIENTS in rank]
    means: list[dict[str, Any]] = []
    for of_model in zip(*saved, strict=True):
        names = dict.fromkeys(name for gradients in of_model for name in gradients)
        means.append(
            {name: sum(g[name] for g in of_model if name in g) / len(ranks) for name in names}
        )
    return means


def restore_buffers(context: PyTorchTrialContext, saved: Sequence[Mapping[str, Any]]) -> None:
    """Give this rank the buffers back that are not the chief's."""
    for model, buffers in zip(context.models, saved, strict=False):
        set_buffers(inner_module(model), buffers)


def restore_counters(
    counters: dict[str, int] | None, trial_id: int, epoch_length: int
) -> _TrialState:
    """Continue the counters of the same trial; those of another one are only a warm start."""
    if counters is None or counters.get("trial_id", trial_id) != trial_id:
        return _TrialState(trial_id=trial_id)
    if "batches_trained" in counters:
        known = {field.name for field in dataclasses.fields(_TrialState)}
        return _TrialState(**{key: value for key, value in counters.items() if key in known})
    steps_completed = counters.get("steps_completed", counters.get("latest_batch", 0))
    return _TrialState(
        trial_id=trial_id,
        last_ckpt=counters.get("last_ckpt", 0),
        step_id=counters.get("step_id", 0),
        last_val=counters.get("last_val", 0),
        batches_trained=steps_completed,
        epochs_trained=steps_completed // epoch_length,
    )


def batches_trained_in(counters: dict[str, int] | None, trial_id: int) -> int:
    """Return where a run that continues from these counters starts."""
    return restore_counters(counters, trial_id, epoch_length=1).batches_trained
