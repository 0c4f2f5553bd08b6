"""What each rank has for itself: compared with the chief's at each save, saved where it differs.

Weights must not differ; all else may, and then goes into the file of the rank.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from determined._contracts.checkpoint_layout import (
    CALLBACKS,
    HOOKS,
    MODELS,
    OWN,
    SCALER,
    SCHEDULERS,
)
from determined.errors import InvalidCheckpointException, InvalidExperimentException
from determined.pytorch._checkpoint.resuming.environment import current_environment, differences
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._ranks.ddp import has_own_communication, inner_module, replicas
from determined.pytorch._ranks.fingerprints import checksums, fingerprint, holds_split_tensors
from determined.pytorch._ranks.fsdp import is_sharded

logger = logging.getLogger("determined.pytorch")

# Where a state stands in a checkpoint, such as ("callbacks", "counter").
StatePath = tuple[Any, ...]

_EXTRA_STATE = "_extra_state"  # how torch ends the name of what `get_extra_state` returns


def rank_local_state(context: PyTorchTrialContext, checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a checkpoint this rank has otherwise than the chief, for the rank's file.

    Every rank must call it, with what it would save itself.
    """
    found = dict(_comparable(context, checkpoint))
    marks = {path: fingerprint(state) for path, state in found.items()}
    chiefs: dict[StatePath, str] = context.distributed.broadcast(marks)
    own = {path: s for path, s in found.items() if marks[path] != chiefs.get(path)}
    split = [path for path, state in own.items() if holds_split_tensors(state)]
    for path in split:
        logger.warning(
            f"{_words(path)} differs between ranks and holds split tensors: a resumed run "
            "continues with the chief's on all ranks."
        )
    return {OWN: {p: s for p, s in own.items() if p not in split}} if own.keys() - split else {}


def with_rank_local_state(checkpoint: dict[str, Any], rank: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint with what a rank had for itself instead of the chief's."""
    result = dict(checkpoint)
    for path, state in rank.get(OWN, {}).items():
        try:
            _put(result, path, state)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as e:
            raise InvalidCheckpointException(
                f"A rank has a state of its own at {str(path)[:80]}, where the chief has none."
            ) from e
    return result


def _put(container: Any, path: StatePath, state: Any) -> None:
    """Replace what stands at a path; containers on the way are copied, not changed."""
    name, *rest = path
    if rest:
        inner = container[name]
        container[name] = list(inner) if isinstance(inner, list) else dict(inner)
        _put(container[name], tuple(rest), state)
    else:
        container[name] = state


def _comparable(
    context: PyTorchTrialContext, checkpoint: Mapping[str, Any]
) -> Iterator[tuple[StatePath, Any]]:
    for name, state in checkpoint[CALLBACKS].items():
        yield (CALLBACKS, name), state
    for index, state in enumerate(checkpoint[SCHEDULERS]):
        yield (SCHEDULERS, index), state
    if SCALER in checkpoint:
        yield (SCALER,), checkpoint[SCALER]
    for index, model in enumerate(context.models):
        is_alone = inner_module(model) is model and not is_sharded(model)
        buffers = {name for name, _ in model.named_buffers()} if is_alone else set()
        for name, state in checkpoint[MODELS][index].items():
            if name in buffers or name.rpartition(".")[2] == _EXTRA_STATE:
                yield (MODELS, index, name), state


def _words(path: StatePath) -> str:
    kind, *rest = path
    if kind == CALLBACKS:
        return f"The state of the callback {rest[0]!r}"
    if kind == MODELS:
        return f"{rest[1]} of model {rest[0]}"
    return "The state of the scaler" if kind == SCALER else f"The state of scheduler {rest[0]}"


def describe_rank_local(ranks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say what ranks had for themselves."""
    paths = dict.fromkeys(path for rank in ranks for path in rank.get(OWN, {}))
    hooks = ["The state of communication hooks"] if any(HOOKS in rank for rank in ranks) else []
    return [*map(_words, paths), *hooks]


class ReplicaCheck:
    """Compares the weights of DDP models between ranks: an update must leave them equal.

    What differs is an error, unless the reason is known: then it is said, once.
    """

    def __init__(self, context: PyTorchTrialContext, say: Callable[[str], None]) -> None:
        self._context = context
        self._say = say
        self._is_said = False

    def check(self) -> None:
        """Raise if ranks have different weights. Every rank must call it."""
        distributed = self._context.distributed
        if distributed.size == 1 or self._is_said:
            return
        named = list(replicas(self._context.models))
        mine = checksums([parameter for _, _, parameter in named])
        sums: list[list[int]] = distributed.allgather(mine)
        different = [
            (rank, position)
            for position in range(len(named))
            for rank, theirs in enumerate(sums)
            if theirs[position] != sums[0][position]
        ]
        if different:
            self._tell(named, *different[0])

    def _tell(self, named: list[tuple[int, str, torch.Tensor]], rank: int, position: int) -> None:
        index, name, tensor = named[position]
        distance = self._distance(tensor)
        what = f"{name} of model {index} differs between rank 0 and rank {rank} by {distance:.1e}"
        environments = self._context.distributed.allgather(
            current_environment(
                self._context.device, self._context.distributed.size, self._context.models
            )
        )
        reasons = differences(environments[0], environments[rank])
        if has_own_communication(self._context.models[index]):
            reasons.append("the model has a communication hook of the trial's own")
        if not reasons:
            raise InvalidExperimentException(
                f"Ranks must hold equal weights, but {what}. A checkpoint has the chief's only, so "
                "nothing was saved. All weights that are trained must get their gradients through "
                "the wrapped model, and all ranks must update them alike; look for random numbers, "
                "metrics or branches of a single rank that change weights, gradients or learning "
                "rates."
            )
        self._is_said = True
        self._say(
            f"ranks hold different weights ({what}): {'; '.join(reasons)}. Checkpoints have the "
            "chief's"
        )

    def _distance(self, tensor: torch.Tensor) -> float:
        """Return the largest distance of this tensor on any rank from the chief's."""
        chiefs = tensor.detach().clone()
        dist.broadcast(chiefs, 0)
        distance = (chiefs.double() - tensor.detach().double()).abs().max().item()
        return float(max(self._context.distributed.allgather(distance)))
