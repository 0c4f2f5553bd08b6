"""The trial that the checks train: a little of each layer whose kernels are delicate.

It is also a script, for `verify_resume`: `python _trial.py DEVICE`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from determined import pytorch
from determined.pytorch import Batch, DataLoader, PyTorchTrial, PyTorchTrialContext

_WORDS, _LENGTH = 64, 16


class Net(nn.Module):
    """Indexing, an embedding, a convolution, attention and dropout; a wide layer if asked for."""

    def __init__(self, dropout: float, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(_WORDS))
        self.embedding = nn.Embedding(_WORDS, 32)
        self.convolution = nn.Conv1d(32, 32, 3, padding=1)
        self.attention = nn.MultiheadAttention(32, 2, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(32, width)
        self.head = nn.Linear(width, 1)
        self.computed_in: set[torch.dtype] = set()

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embedding(words) * self.scale[words].unsqueeze(-1)
        x = x + torch.relu(self.convolution(x.transpose(1, 2))).transpose(1, 2)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        hidden = self.hidden(self.dropout(x).mean(1))
        self.computed_in.add(hidden.dtype)
        return torch.as_tensor(self.head(torch.relu(hidden)).squeeze(-1))


class _Sentences(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """The same each time; what is to be learned is the share of the upper half of the words."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(7)
        self._words = torch.randint(0, _WORDS, (count, _LENGTH), generator=generator)
        self._shares = (self._words >= _WORDS // 2).float().mean(1)

    def __len__(self) -> int:
        return len(self._words)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._words[index], self._shares[index]


@dataclass(frozen=True)
class Settings:
    """What differs from check to check."""

    batch_size: int = 8
    dropout: float = 0.1
    width: int = 64
    amp: torch.dtype | None = None
    parallel: str = "ddp"
    is_plain: bool = False  # updates that do not magnify differences of the last bits


_USUAL = Settings()


class CheckTrial(PyTorchTrial):
    """Trains `Net`; `losses` has the loss of each batch, on the device."""

    def __init__(
        self,
        context: PyTorchTrialContext,
        settings: Settings = _USUAL,
    ) -> None:
        self.context = context
        self.settings = settings
        if settings.amp is not None:
            context.experimental.use_amp(settings.amp)
        self.net = Net(settings.dropout, settings.width)
        self.model = context.wrap_model(self.net, parallel=settings.parallel)
        kind = torch.optim.SGD if settings.is_plain else torch.optim.AdamW
        self.optimizer = context.wrap_optimizer(kind(self.model.parameters(), 0.01))
        self.scheduler = context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.StepLR(self.optimizer, 50),
            pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH,
        )
        self.losses: list[torch.Tensor] = []

    def build_training_data_loader(self) -> DataLoader:
        return self._loader(256)

    def build_validation_data_loader(self) -> DataLoader:
        return self._loader(32)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        loss = loss_of(self.model, batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        self.losses.append(loss.detach())
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"loss": loss_of(self.model, batch)}

    def _loader(self, count: int) -> DataLoader:
        pinned = self.context.device.type not in ("cpu", "mps")
        return DataLoader(
            _Sentences(count), self.settings.batch_size, shuffle=True, pin_memory=pinned
        )


def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
    words, shares = batch
    return nn.functional.mse_loss(model(words), shares)


def plain_loader(batch_size: int, pinned: bool) -> torch.utils.data.DataLoader[Any]:
    """Return the training data as a script without us has it."""
    return torch.utils.data.DataLoader(_Sentences(256), batch_size, shuffle=True, pin_memory=pinned)


def train(
    device: torch.device,
    batches: int,
    settings: Settings = _USUAL,
    **fit: Any,
) -> CheckTrial:
    """Train in this process, without a checkpoint before the end."""
    with pytorch.init(seed=1, device=device, enable_tensorboard_logging=False) as context:
        trial = CheckTrial(context, settings)
        fit = {"reporting_period": Batch(batches), "checkpoint_policy": "none", **fit}
        pytorch.Trainer(trial, context).fit(max_length=Batch(batches), progress=False, **fit)
    return trial


def weights_of(trial: CheckTrial) -> list[torch.Tensor]:
    return [parameter.detach().cpu().clone() for parameter in trial.net.parameters()]


if __name__ == "__main__":
    with pytorch.init(seed=1, device=sys.argv[1], exact=True) as context:
        pytorch.Trainer(CheckTrial(context), context).fit(
            max_length=Batch(12),
            reporting_period=Batch(4),
            validation_period=Batch(6),
            checkpoint_period=Batch(6),
        )
