"""A trial whose model is sharded, or not, for comparisons."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch
from determined.pytorch._checkpoint.files.shards import gather
from determined.pytorch._ranks.ddp import inner_module
from determined.pytorch._ranks.fsdp import is_dtensor


class Net(nn.Module):
    """Blocks in a list, odd sizes that no number of ranks divides, buffers, and random numbers."""

    def __init__(self, norm: Callable[[int], nn.Module] = nn.BatchNorm1d) -> None:
        super().__init__()
        self.embed = nn.Linear(3, 7)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(7, 7, bias=False), norm(7), nn.Dropout(0.1)) for _ in range(2)
        )
        self.head = nn.Linear(7, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = x + block(x)
        result: torch.Tensor = self.head(x)
        return result


class ShardedTrial(pytorch.PyTorchTrial):
    """Learns the sum of three numbers. Ranks begin with different weights, as scripts may."""

    def __init__(
        self,
        context: pytorch.PyTorchTrialContext,
        parallel: str = "fsdp",
        norm: Callable[[int], nn.Module] = nn.BatchNorm1d,
        use_amp: torch.dtype | None = None,
        callbacks: Mapping[str, pytorch.PyTorchCallback] | None = None,
        **options: Any,
    ) -> None:
        self.context = context
        self.callbacks = dict(callbacks or {})
        self.stop_after: int | None = None
        if use_amp is not None:
            context.experimental.use_amp(use_amp)
        with torch.random.fork_rng():
            torch.manual_seed(context.distributed.rank)
            model = Net(norm)
        self.model = context.wrap_model(model, parallel=parallel, **options)
        self.optimizer = context.wrap_optimizer(torch.optim.AdamW(self.model.parameters(), lr=0.01))
        self.count = context.wrap_reducer(sum, "records", for_training=False)

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return self.callbacks

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(numbers(96), 12 // self.context.distributed.size, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(numbers(10), 4)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if self.stop_after == batch_idx + 1:
            self.context.set_stop_requested(True)
        loss = self._loss(batch)
        self.context.backward(loss)
        norms: list[torch.Tensor] = []
        self.context.step_optimizer(
            self.optimizer, lambda p: norms.append(nn.utils.clip_grad_norm_(p, 0.5))
        )
        return {"loss": loss, "norm": norms[0] if norms else torch.zeros(())}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        self.count.update(len(batch[0]))  # type: ignore[attr-defined]  # of a function's reducer
        return {"error": self._loss(batch)}

    def _loss(self, batch: Any) -> torch.Tensor:
        inputs, targets = batch
        return nn.functional.mse_loss(self.model(inputs), targets)

    def whole_state(self) -> dict[str, Any]:
        """Return all weights and optimizer state, the same on every rank; all must call it."""
        model = inner_module(self.model)
        return {"model": gather(dict(model.state_dict())), "optimizer": self._optimizer_state()}

    def _optimizer_state(self) -> Any:
        return gather(self.optimizer.state_dict())

    def is_split(self) -> bool:
        return any(map(is_dtensor, self.model.parameters()))


class Validations(pytorch.PyTorchCallback):
    """Remembers the metrics of validations."""

    def __init__(self) -> None:
        self.metrics: list[dict[str, Any]] = []

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.metrics.append(dict(metrics))


def numbers(length: int) -> TensorDataset:
    inputs = torch.randn(length, 3, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, inputs.sum(1, keepdim=True))


def train(
    storage: str | os.PathLike[str],
    batches: int,
    aggregation: int = 1,
    checkpoint: str | None = None,
    stop_after: int | None = None,
    trial_class: type[ShardedTrial] = ShardedTrial,
    fit: Mapping[str, Any] | None = None,
    **trial: Any,
) -> tuple[ShardedTrial, str | None]:
    """Train on the ranks of this job; return the trial and the path of the last checkpoint."""
    torch.manual_seed(stop_after or 0)  # a new process would have other random numbers
    with pytorch.init(
        seed=5,
        aggregation_frequency=aggregation,
        checkpoint_storage=storage,
        enable_tensorboard_logging=False,
        run_id="split",
    ) as context:
        made = trial_class(context, **trial)
        made.stop_after = stop_after
        trainer = pytorch.Trainer(made, context)
        trainer.fit(
            max_length=pytorch.Batch(batches),
            validation_period=pytorch.Batch(4),
            reporting_period=pytorch.Batch(1),
            checkpoint_policy="none",
            latest_checkpoint=checkpoint,
            progress=False,
            **(fit or {}),
        )
    return made, trainer.latest_checkpoint
