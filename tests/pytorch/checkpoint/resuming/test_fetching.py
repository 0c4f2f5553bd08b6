"""From no loader workers to some: said if samples draw random numbers, else silent and exact."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from determined import pytorch
from determined.pytorch import Batch
from tests.support.messages import documented
from tests.support.trials import LineTrial, the_checkpoint, train


class _Samples(Dataset[Any]):
    draws = False

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.tensor([index + (random.random() if self.draws else 0.5)])
        return x, 2 * x


class _Augmented(_Samples):
    draws = True


def _trial(dataset: Dataset[Any], num_workers: int) -> type[LineTrial]:
    class Trial(LineTrial):
        def build_training_data_loader(self) -> pytorch.DataLoader:
            return pytorch.DataLoader(dataset, 2, num_workers=num_workers)

    return Trial


def _resumed(
    dataset: Dataset[Any], then: int, now: int, caplog: pytest.LogCaptureFixture
) -> tuple[float, list[str]]:
    train(_trial(dataset, then), max_length=Batch(2))
    caplog.clear()
    trial = train(_trial(dataset, now), max_length=Batch(4), latest_checkpoint=the_checkpoint(2))
    return trial.weight, [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize(("then", "now"), [(0, 1), (1, 0)])
def test_samples_that_draw_nothing_are_the_same(
    caplog: pytest.LogCaptureFixture, then: int, now: int
) -> None:
    weight, said = _resumed(_Samples(), then, now, caplog)
    unbroken = train(_trial(_Samples(), 0), max_length=Batch(4), init={"run_id": "unbroken"})
    assert (weight, said) == (unbroken.weight, [])


def test_other_augmentations_are_said(caplog: pytest.LogCaptureFixture) -> None:
    _, (said,) = _resumed(_Augmented(), 0, 1, caplog)
    documented("a run continues with loader workers, and samples draw random numbers", said)


def test_the_same_workers_are_silent(caplog: pytest.LogCaptureFixture) -> None:
    assert _resumed(_Augmented(), 0, 0, caplog)[1] == []
