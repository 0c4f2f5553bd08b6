"""A trial that trains a small adapter on a large frozen base, by hand as in LoRA."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch

SIZE = 256


class Adapted(nn.Module):
    """A frozen base with batch statistics, and an adapter beside each of its layers."""

    table: torch.Tensor

    def __init__(self, depth: int = 4, rank: int = 1) -> None:
        super().__init__()
        self.base = nn.ModuleList(nn.Linear(SIZE, SIZE) for _ in range(depth))
        self.down = nn.ModuleList(nn.Linear(SIZE, rank, bias=False) for _ in range(depth))
        self.up = nn.ModuleList(nn.Linear(rank, SIZE, bias=False) for _ in range(depth))
        self.norm = nn.BatchNorm1d(SIZE)
        self.register_buffer("table", torch.randn(SIZE, SIZE))
        self.base.requires_grad_(False)

    @property
    def first_layer(self) -> nn.Linear:
        return cast(nn.Linear, self.base[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for base, down, up in zip(self.base, self.down, self.up, strict=True):
            x = torch.tanh(base(x) + up(down(x)))
        result: torch.Tensor = (self.norm(x) @ self.table).mean(1, keepdim=True)
        return result


class AdapterTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = cast(Adapted, context.wrap_model(Adapted()))
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(trained, lr=0.01))

    def build_training_data_loader(self) -> pytorch.DataLoader:
        inputs = torch.randn(64, SIZE, generator=torch.Generator().manual_seed(1))
        return pytorch.DataLoader(
            TensorDataset(inputs, inputs.sum(1, keepdim=True)),
            8 // self.context.distributed.size,
            shuffle=True,
        )

    def build_validation_data_loader(self) -> None:
        return None

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.change(batch_idx)
        loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def change(self, batch_idx: int) -> None:
        """For trials that change more than the adapter."""


def train(
    storage: Any,
    batches: int,
    save_frozen: str | None = "once",
    trial_class: type[AdapterTrial] = AdapterTrial,
    checkpoint: str | None = None,
    **fit: Any,
) -> AdapterTrial:
    """Train with a checkpoint after every second batch."""
    with pytorch.init(
        seed=3,
        checkpoint_storage=storage,
        save_frozen=save_frozen,
        enable_tensorboard_logging=False,
        run_id="adapter",
    ) as context:
        trial = trial_class(context)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(batches),
            checkpoint_period=pytorch.Batch(2),
            latest_checkpoint=checkpoint,
            progress=False,
            **fit,
        )
    return trial


def bytes_on_disk(folder: Path) -> int:
    """Bytes of files below a folder, hard links counted once."""
    files = {
        path.stat().st_ino: path.stat().st_size for path in folder.rglob("*") if path.is_file()
    }
    return sum(files.values())
