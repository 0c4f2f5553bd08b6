"""Runs of several ranks, cut and resumed: bit for bit, and on another number of ranks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from determined import pytorch
from determined.pytorch import Batch
from determined.pytorch._checkpoint.files.shards import gather
from tests.support import resumable
from tests.support.ranked import (
    NetTrial,
    Results,
    assert_close,
    fit,
    on_ranks,
    records,
    sgd,
)

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def resuming(storage: Path) -> Results:
    """Cut runs in the middle of an epoch and of an aggregation window; compare bit for bit."""
    found: Results = {}
    rank = os.environ.get("RANK", "0")
    for aggregation in (1, 2):
        place = storage / f"resuming-{aggregation}"
        options: dict[str, Any] = {"aggregation": aggregation}
        found[f"unbroken {aggregation}"] = resumable.train(place / "whole", 7, **options)
        resumable.train(place / "cut", 3, **options, checkpoint_period=Batch(1))
        found[f"resumed {aggregation}"] = resumable.train(
            place / "cut", 7, **options, latest_checkpoint="latest"
        )
    found["rank"] = rank
    return found


def test_two_ranks_resume_bit_for_bit(tmp_path: Path) -> None:
    for rank in on_ranks(2, resuming, tmp_path):
        for aggregation in (1, 2):
            assert rank[f"resumed {aggregation}"].ends_like(rank[f"unbroken {aggregation}"])


class _Memory(nn.Module):
    """Has a buffer that training reads and changes, so that it drifts apart between ranks."""

    memory: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("memory", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x) + self.memory
        if self.training:
            self.memory.mul_(0.9).add_(y.detach().mean(0))
        return y


class MemoryTrial(NetTrial):
    def build_model(self) -> nn.Module:
        return _Memory()


def buffers(storage: Path) -> Results:
    """Cut a run inside an aggregation window, where each rank has buffers of its own."""
    found = {}
    for cut in (None, 3):
        options = {
            "hparams": {"global_batch_size": 8},
            "aggregation_frequency": 4,
            "run_id": f"cut at {cut}",
            "checkpoint_storage": storage / "buffers",
        }
        if cut is not None:
            fit(MemoryTrial, options, max_length=Batch(cut))
        trial = fit(MemoryTrial, options, max_length=Batch(12), latest_checkpoint="latest")
        found[cut] = (trial.digests[-1], resumable.digest(trial.model.state_dict()))
    return found


def test_buffers_of_a_rank_survive_inside_a_window(tmp_path: Path) -> None:
    for rank in on_ranks(2, buffers, tmp_path):
        assert rank[3] == rank[None]


def across_sizes(storage: Path) -> Results:
    """Continue what one rank has trained, and leave something for one and for four."""
    options: dict[str, Any] = {"hparams": {"global_batch_size": 8}, "run_id": "sizes"}
    there = fit(
        NetTrial,
        {**options, "checkpoint_storage": storage / "from-one"},
        max_length=Batch(9),
        latest_checkpoint="latest",
    )
    for aggregation in (1, 2):
        fit(
            NetTrial,
            {
                **options,
                "checkpoint_storage": storage / f"from-two-{aggregation}",
                "aggregation_frequency": aggregation,
            },
            max_length=Batch(3),
        )
    return {"weights": there.weights(), "seen": there.seen}


def continued(storage: Path, source: str, aggregation: int = 1) -> Results:
    """Continue the run that others left in `source` to nine batches."""
    trial = fit(
        NetTrial,
        {
            "hparams": {"global_batch_size": 8},
            "run_id": "sizes",
            "checkpoint_storage": storage / source,
            "aggregation_frequency": aggregation,
        },
        max_length=Batch(9 - 9 % aggregation),
        latest_checkpoint="latest",
    )
    return {"weights": trial.weights(), "seen": trial.seen, "digests": trial.digests}


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sizes")


@pytest.fixture(scope="module")
def whole(storage: Path) -> dict[int, Results]:
    """What one rank trains without a break, by the batches in a window."""
    return {n: continued(storage, f"whole-{n}", n) for n in (1, 2)}


@pytest.fixture(scope="module")
def two(storage: Path) -> list[Results]:
    options = {"hparams": {"global_batch_size": 8}, "run_id": "sizes"}
    fit(NetTrial, {**options, "checkpoint_storage": storage / "from-one"}, max_length=Batch(3))
    return on_ranks(2, across_sizes, storage)


def test_one_rank_continues_on_two(whole: dict[int, Results], two: list[Results]) -> None:
    first, second = two
    assert_close(first["weights"], whole[1]["weights"])
    assert sorted(first["seen"] + second["seen"]) == sorted(whole[1]["seen"][24:])


@pytest.mark.parametrize("aggregation", [1, 2])
def test_two_ranks_continue_on_one_and_on_four(
    whole: dict[int, Results],
    two: list[Results],
    storage: Path,
    tmp_path: Path,
    aggregation: int,
) -> None:
    source = f"from-two-{aggregation}"
    for size in (1, 4):
        shutil.copytree(storage / source, tmp_path / f"{size}" / source)
    alone = continued(tmp_path / "1", source, aggregation)
    assert_close(alone["weights"], whole[aggregation]["weights"])
    assert alone["seen"] == whole[aggregation]["seen"][24:]
    four = on_ranks(4, continued, tmp_path / "4", source, aggregation)
    for rank in four:
        assert_close(rank["weights"], whole[aggregation]["weights"])
    seen = sorted(record for rank in four for record in rank["seen"])
    assert seen == sorted(whole[aggregation]["seen"][24:])


class SplitTrial(NetTrial):
    """Like its base, split over ranks; no number of ranks divides its weights."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.seen, self.digests, self.metrics = [], [], []
        model = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 3))
        self.model = context.wrap_model(model, parallel="fsdp")
        self.optimizer = sgd(self)
        self.reducer = context.wrap_reducer(list, "in_order", for_training=False)

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return {}

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(records(48), self.context.get_per_slot_batch_size())

    def weights(self) -> list[np.ndarray]:
        return [p.detach().cpu().numpy() for p in gather(list(self.model.parameters()))]


def split_window(storage: Path, source: str, batches: int) -> list[np.ndarray]:
    """Train a split model, in windows of three batches, from where `source` is."""
    options = {
        "hparams": {"global_batch_size": 12},
        "aggregation_frequency": 3,
        "run_id": "split",
        "checkpoint_storage": storage / source,
    }
    trial = fit(SplitTrial, options, max_length=Batch(batches), latest_checkpoint="latest")
    found: list[np.ndarray] = trial.weights()
    return found


def test_split_models_continue_a_window_on_any_number_of_ranks(tmp_path: Path) -> None:
    whole = split_window(tmp_path, "whole", 6)
    for before, afterwards in ((2, [3, 4]), (3, [2])):
        on_ranks(before, split_window, tmp_path, f"of-{before}", 5)
        for size in afterwards:
            place = f"from-{before}-to-{size}"
            shutil.copytree(tmp_path / f"of-{before}", tmp_path / place)
            for weights in on_ranks(size, split_window, tmp_path, place, 6):
                assert_close(weights, whole)


def without_launcher(storage: Path) -> Results:
    """Train over a group that the script made, without the variables of torchrun."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR")
    launched = {name: os.environ.pop(name) for name in names}
    try:
        trial = fit(NetTrial, {"hparams": {"global_batch_size": 8}})
    finally:
        os.environ.update(launched)
    ranks = trial.context.distributed
    return {
        "ranks": (ranks.rank, ranks.size, ranks.local_rank, ranks.local_size, ranks.cross_size),
        "digests": trial.digests,
    }


def test_a_group_needs_no_launcher(tmp_path: Path) -> None:
    first, second = on_ranks(2, without_launcher, tmp_path)
    assert [first["ranks"], second["ranks"]] == [(0, 2, 0, 2, 1), (1, 2, 1, 2, 1)]
    assert first["digests"] == second["digests"]
