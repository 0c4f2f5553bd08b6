"""A loss that runs through two models leaves gradients where it should, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch
from determined.errors import InvalidExperimentException
from determined.pytorch import Batch, DataLoader
from tests.support.workers import run_workers

BATCHES, SIZE = 8, 4


def parts() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(1)
    generator = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
    discriminator = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(), nn.Linear(8, 1))
    return generator, discriminator


def data() -> torch.Tensor:
    return torch.randn(BATCHES * SIZE, 2, generator=torch.Generator().manual_seed(2))


def noise(batch_idx: int) -> torch.Tensor:
    return torch.randn(SIZE, 3, generator=torch.Generator().manual_seed(batch_idx))


def losses(generator: Any, discriminator: Any, real: torch.Tensor, batch_idx: int) -> Any:
    """Return the discriminator's loss, and how to get the generator's afterwards."""
    fake = generator(noise(batch_idx))
    criterion = nn.functional.binary_cross_entropy_with_logits
    verdicts = discriminator(torch.cat([real, fake.detach()]))
    truth = torch.cat([torch.ones(len(real), 1), torch.zeros(SIZE, 1)])
    return criterion(verdicts, truth), lambda: criterion(discriminator(fake), torch.ones(SIZE, 1))


class GAN(pytorch.PyTorchTrial):
    clears = True

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.generator, self.discriminator = map(context.wrap_model, parts())
        self.g_optimizer = context.wrap_optimizer(torch.optim.Adam(self.generator.parameters()))
        self.d_optimizer = context.wrap_optimizer(torch.optim.Adam(self.discriminator.parameters()))

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(TensorDataset(data()), batch_size=SIZE)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        d_loss, g_loss = losses(self.generator, self.discriminator, batch[0], batch_idx)
        self.context.backward(d_loss)
        self.context.step_optimizer(self.d_optimizer)
        self.context.backward(g_loss(), only=self.g_optimizer if self.clears else None)
        self.context.step_optimizer(self.g_optimizer)
        return {"d_loss": d_loss}

    def weights(self) -> list[list[float]]:
        models = self.generator, self.discriminator
        return [p.flatten().tolist() for model in models for p in model.parameters()]


class LeakyGAN(GAN):
    clears = False


def by_hand(window: int = 1) -> list[list[float]]:
    """Train as a careful loop in plain torch does."""
    generator, discriminator = parts()
    g_optimizer = torch.optim.Adam(generator.parameters())
    d_optimizer = torch.optim.Adam(discriminator.parameters())
    models = generator, discriminator
    sums = {model: [torch.zeros_like(p) for p in model.parameters()] for model in models}
    for batch_idx, real in enumerate(torch.split(data(), SIZE)):
        d_loss, g_loss = losses(generator, discriminator, real, batch_idx)
        for model, loss, optimizer in (
            (discriminator, lambda d_loss=d_loss: d_loss, d_optimizer),
            (generator, g_loss, g_optimizer),
        ):
            gradients = torch.autograd.grad(loss(), list(model.parameters()))
            torch._foreach_add_(sums[model], list(gradients))
            if (batch_idx + 1) % window == 0:
                for parameter, total in zip(model.parameters(), sums[model], strict=True):
                    parameter.grad = total / window
                optimizer.step()
                torch._foreach_zero_(sums[model])
    return [p.flatten().tolist() for model in models for p in model.parameters()]


def trained(trial_class: type[GAN], window: int = 1, **init: Any) -> GAN:
    with pytorch.init(aggregation_frequency=window, seed=0, **init) as context:
        trial = trial_class(context)
        pytorch.Trainer(trial, context).fit(max_length=Batch(BATCHES // context.distributed.size))
    return trial


@pytest.mark.parametrize("window", [1, 4])
def test_backward_only_trains_as_a_loop_written_by_hand(window: int) -> None:
    assert trained(GAN, window).weights() == by_hand(window)


def test_without_it_gradients_leak() -> None:
    assert trained(LeakyGAN).weights() != by_hand()


def test_other_gradients_stay_as_they_were() -> None:
    with pytorch.init() as context:
        model, other = (context.wrap_model(nn.Linear(1, 1)) for _ in range(2))
        optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters()))
        context.wrap_optimizer(torch.optim.SGD(other.parameters()))
        loss = other(model(torch.ones(1, 1))).sum()
        context.backward(loss, only=optimizer)
        assert all(p.grad is None for p in other.parameters())
        assert all(p.grad is not None for p in model.parameters())
        kept = [torch.full_like(p, 3.0) for p in other.parameters()]
        for parameter, gradient in zip(other.parameters(), kept, strict=True):
            parameter.grad = gradient
        context.backward(other(model(torch.ones(1, 1))).sum(), only=optimizer)
        assert all(p.grad is g for p, g in zip(other.parameters(), kept, strict=True))
        assert all((g == 3).all() for g in kept)
        with pytest.raises(InvalidExperimentException, match="must be a wrapped optimizer"):
            context.backward(loss, only=torch.optim.SGD(model.parameters()))


def _on_ranks(storage: Path) -> list[list[float]]:
    return trained(GAN, checkpoint_storage=storage).weights()


@pytest.mark.multiprocess
def test_ranks_stay_equal(tmp_path: Path) -> None:
    first, second = run_workers(2, _on_ranks, tmp_path)
    assert first == second
