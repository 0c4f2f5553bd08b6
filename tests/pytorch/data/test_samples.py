"""Hashes of samples tell data apart, of batches of any kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from determined.pytorch._data.samples import Samples, hash_sample


@pytest.mark.parametrize(
    ("batch", "other"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([3.0, 2.0])),
        ([torch.eye(2), torch.zeros(2)], [torch.eye(2), torch.ones(2)]),
        ({"x": np.arange(3), "y": ["a", "b"]}, {"x": np.arange(3), "y": ["c", "b"]}),
        ((torch.ones(2), {"n": [1, 2]}), (torch.ones(2), {"n": [3, 2]})),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
    ],
)
def test_a_different_first_sample_makes_a_difference(batch: Any, other: Any) -> None:
    assert hash_sample(batch, 0) == hash_sample(batch, 0) != hash_sample(other, 0)


@pytest.mark.parametrize("batch", [None, object(), torch.ones(()), torch.ones(0), [], {}, "text"])
def test_anything_has_a_hash(batch: Any) -> None:
    assert len(hash_sample(batch, 0)) == len(hash_sample(batch, -1)) == 16


def test_only_the_sample_counts() -> None:
    batch, other = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0])
    assert hash_sample(batch, 0) == hash_sample(other, 0)
    assert hash_sample(batch, -1) != hash_sample(other, -1)


def test_a_checkpoint_gets_the_first_and_last_since_the_one_before() -> None:
    samples = Samples(None, seed=7)
    batches = [torch.tensor([float(i), float(-i)]) for i in range(4)]
    for index in (0, 2):
        samples.note(index, batches[index])
    assert samples.take() == {
        "seed": 7,
        "dataset_length": None,
        "first": [0, hash_sample(batches[0], 0)],
        "last": [2, hash_sample(batches[2], -1)],
    }
    samples.note(3, batches[3])
    assert samples.take()["first"] == [3, hash_sample(batches[3], 0)]
    assert samples.take() == {"seed": 7, "dataset_length": None}
