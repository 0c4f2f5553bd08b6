"""Three and four ranks, resumed bit for bit. Two hide much, since a + b is b + a."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from determined.errors import InvalidExperimentException
from determined.pytorch import PyTorchCallback
from determined.pytorch.callbacks import ExponentialMovingAverage, LossGuard
from tests.support import odd_ranks
from tests.support.odd_ranks import BUCKET_MB, Branches, Ending, Way, normed
from tests.support.ranked import on_ranks

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

FSDP = {"parallel": "fsdp"}


def _alternating(batch_idx: int, rank: int) -> str:
    return "left" if (batch_idx + rank) % 3 else "right"


def _once(batch_idx: int, rank: int) -> str:
    """Let one rank use a branch that no rank uses again in the window."""
    return "right" if (batch_idx % 3, rank) == (0, 1) else "left"


def _averaging(trial: Any) -> dict[str, PyTorchCallback]:
    context = trial.context
    guard = LossGuard(context, "rollback", spike_factor=1e6)
    return {"average": ExponentialMovingAverage(context, 0.9), "guard": guard}


def _small(**options: Any) -> dict[str, Any]:
    return {"bucket_cap_mb": BUCKET_MB, **options}


WAYS = {
    "plain": Way(),
    "static graph": Way(options=_small(static_graph=True)),
    "views": Way(options=_small(gradient_as_bucket_view=True), aggregation=3),
    "unused weights": Way(Branches, _small(find_unused_parameters=True), branch=_alternating),
    "mixed precision": Way(amp=torch.bfloat16, fp16_compression=True),
    "half": Way(dtype=torch.bfloat16),
    "two models": Way(models=2, clip=0.1),
    "batch norm": Way(normed, aggregation=3),
    "fsdp": Way(options=FSDP, callbacks=_averaging),
    "fsdp window": Way(options=FSDP, aggregation=3, clip=0.1),
}
ON_FOUR = ["plain", "static graph", "two models", "fsdp window"]


def _assert_exact(found: list[dict[str, tuple[Ending, Ending]]]) -> None:
    differing = {
        name for rank in found for name, (unbroken, stopped) in rank.items() if unbroken != stopped
    }
    assert not differing


@pytest.mark.parametrize(("size", "names"), [(3, list(WAYS)), (4, ON_FOUR)])
def test_resumed_runs_are_exact(tmp_path: Path, size: int, names: list[str]) -> None:
    ways = {name: WAYS[name] for name in names}
    _assert_exact(on_ranks(size, odd_ranks.unbroken_and_stopped, tmp_path, ways, 7, [4]))


def test_a_branch_used_before_the_stop_counts_as_used(tmp_path: Path) -> None:
    way = Way(Branches, _small(find_unused_parameters=True), aggregation=3, branch=_once)
    found = on_ranks(2, odd_ranks.unbroken_and_stopped, tmp_path, {"once": way}, 6, [1, 5])
    _assert_exact(found)
    first, second = (rank["once"][1] for rank in found)
    assert first.digests == second.digests


def _refusal(storage: Path, way: Way) -> str:
    with pytest.raises(InvalidExperimentException) as caught:
        odd_ranks.train(storage, way, 4)
    return str(caught.value)


def test_static_graph_and_accumulation_are_refused(tmp_path: Path) -> None:
    way = Way(options={"static_graph": True}, aggregation=2)
    for message in on_ranks(2, _refusal, tmp_path, way):
        assert "static_graph" in message
        assert "aggregation_frequency=2" in message


def _zero(parameters: Any, lr: float) -> torch.optim.Optimizer:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=lr)


def test_an_optimizer_with_parts_on_all_ranks_is_refused(tmp_path: Path) -> None:
    for message in on_ranks(2, _refusal, tmp_path, Way(optimizer=_zero)):
        assert "ZeroRedundancyOptimizer" in message
        assert "parallel='fsdp'" in message
