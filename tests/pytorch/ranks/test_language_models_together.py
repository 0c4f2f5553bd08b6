"""All at once: compiled, activation checkpointing, FSDP, accumulation, weights, several ranks."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import TensorDataset

from determined import pytorch
from determined.pytorch import Batch, DataLoader
from tests.support.ranked import on_ranks
from tests.support.workers import collect_workers

pytestmark = [pytest.mark.slow, pytest.mark.multiprocess, pytest.mark.timeout(300)]

BATCHES, SAVED_AT, KILLED_AT = 8, 3, 5  # windows have 2 batches: both are inside of one
GLOBAL_BATCH = 6


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.layer(self.norm(x)))


class Model(nn.Module):
    """Keeps no activations inside its blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(8, 16)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        logits: torch.Tensor = self.head(x)
        return logits


class TogetherTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.killed_at: int | None = None
        torch.manual_seed(0)
        # The compiler's own code generator takes minutes; tracing and partitioning are the same.
        self.model = context.wrap_model(Model(), parallel="fsdp", compile={"backend": "aot_eager"})
        self.optimizer = context.wrap_optimizer(torch.optim.AdamW(self.model.parameters(), 0.02))

    def build_training_data_loader(self) -> DataLoader:
        tokens = torch.randint(16, (60, 7), generator=torch.Generator().manual_seed(1))
        lengths = torch.arange(60) % 5 + 2
        padded = torch.where(torch.arange(7) < lengths[:, None], tokens, -100)
        per_rank = GLOBAL_BATCH // self.context.distributed.size
        return DataLoader(TensorDataset(padded), per_rank, shuffle=True)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx == self.killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        targets = batch[0][:, 1:].flatten()
        logits = self.model(batch[0][:, :-1].clamp(min=0)).flatten(0, 1)
        loss = nn.functional.cross_entropy(logits, targets, reduction="sum")
        weight = (targets != -100).sum()
        self.context.backward(loss, weight=weight)
        self.context.step_optimizer(self.optimizer, clip_grad_norm=0.5)
        self.context.count(tokens=weight)
        return {"loss": pytorch.Weighted(loss, weight)}


def fit(
    storage: Path, killed_at: int | None = None, start: str | None = "latest", run: str = "run"
) -> dict[str, Any]:
    with pytorch.init(
        seed=4,
        aggregation_frequency=2,
        checkpoint_storage=storage,
        run_id=run,
        enable_tensorboard_logging=False,
    ) as context:
        trial = TogetherTrial(context)
        trial.killed_at = killed_at
        reports: list[dict[str, Any]] = []
        trial.build_callbacks = lambda: {"notes": _Notes(reports)}  # type: ignore[method-assign]  # one of this test
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(BATCHES),
            checkpoint_period=Batch(SAVED_AT),
            reporting_period=Batch(2),
            checkpoint_policy="none",
            async_checkpoint=False,
            latest_checkpoint=start,
        )
        parameters: list[Any] = list(trial.model.parameters())
        weights = [
            (p.full_tensor() if hasattr(p, "full_tensor") else p).detach().clone().numpy()
            for p in parameters
        ]
    return {"weights": weights, "reports": reports}


class _Notes(pytorch.PyTorchCallback):
    def __init__(self, reports: list[dict[str, Any]]) -> None:
        self.reports = reports

    def on_training_workload_end(
        self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]
    ) -> None:
        self.reports.append({name: avg_metrics[name] for name in ("loss", "tokens", "batches")})


def test_a_killed_run_goes_on_exactly_and_on_other_numbers_of_ranks(tmp_path: Path) -> None:
    whole = on_ranks(2, fit, tmp_path / "whole")[0]
    killed = tmp_path / "killed"
    killed.mkdir()
    outcomes = collect_workers(
        2, fit, killed, KILLED_AT, environment={"DET_PROGRESS": "off"}, deadline_seconds=100
    )
    assert [outcome.exit_code for outcome in outcomes] == [-signal.SIGKILL] * 2, outcomes
    (saved,) = [path.parent for path in killed.glob("*/state_dict.pth")]
    elsewhere = {
        size: on_ranks(size, fit, tmp_path / f"on-{size}", None, str(saved), f"on-{size}")[0]
        for size in (1, 3)
    }
    resumed = on_ranks(2, fit, killed)[0]
    for ours, unbroken in zip(resumed["weights"], whole["weights"], strict=True):
        assert (ours == unbroken).all()
    assert resumed["reports"] == whole["reports"][-len(resumed["reports"]) :]
    for size, found in elsewhere.items():
        for ours, unbroken in zip(found["weights"], whole["weights"], strict=True):
            np.testing.assert_allclose(ours, unbroken, rtol=0, atol=1e-5, err_msg=f"{size} ranks")
        assert found["reports"][-1]["tokens"] == whole["reports"][-1]["tokens"]
