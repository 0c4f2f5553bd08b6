from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, Sampler, SequentialSampler

from determined.pytorch import samplers


def sequence(length: int) -> Sampler[Any]:
    return SequentialSampler(range(length))


def batches(length: int, size: int = 2) -> BatchSampler:
    return BatchSampler(sequence(length), size, drop_last=False)


def take(sampler: Any, count: int) -> list[Any]:
    return list(itertools.islice(sampler, count))


def test_repeating_starts_over_and_keeps_the_length() -> None:
    repeated = samplers.RepeatSampler(sequence(3))
    assert take(repeated, 7) == [0, 1, 2, 0, 1, 2, 0]
    assert len(repeated) == 3
    repeated_batches = samplers.RepeatBatchSampler(batches(3))
    assert take(repeated_batches, 3) == [[0, 1], [2], [0, 1]]
    assert len(repeated_batches) == 2
    assert len(repeated_batches.batch_sampler) == 2


def test_repeating_nothing_is_an_error_and_not_a_hang() -> None:
    with pytest.raises(RuntimeError, match="gave nothing"):
        take(samplers.RepeatSampler(sequence(0)), 1)
    with pytest.raises(RuntimeError, match="drop_last"):
        take(samplers.RepeatBatchSampler(BatchSampler(sequence(3), 4, drop_last=True)), 1)


def test_golden_shards_of_samples() -> None:
    shards = [samplers.DistributedSampler(sequence(19), 4, rank) for rank in range(4)]
    assert list(shards[0]) == [0, 4, 8, 12, 16]
    assert list(shards[3]) == [3, 7, 11, 15]
    assert [len(shard) for shard in shards] == [5, 5, 5, 4]


def test_golden_shards_of_batches() -> None:
    shards = [samplers.DistributedBatchSampler(batches(19), 4, rank) for rank in range(4)]
    assert list(shards[0]) == [[0, 1], [8, 9], [16, 17]]
    assert list(shards[1]) == [[2, 3], [10, 11], [18]]
    assert list(shards[2]) == [[4, 5], [12, 13]]
    assert list(shards[3]) == [[6, 7], [14, 15]]
    assert [len(shard) for shard in shards] == [3, 3, 2, 2]
    assert (shards[1].num_workers, shards[1].rank) == (4, 1)


@given(length=st.integers(0, 100), size=st.integers(1, 8))
def test_shards_partition_the_items(length: int, size: int) -> None:
    shards = [samplers.DistributedSampler(sequence(length), size, rank) for rank in range(size)]
    assert sorted(i for shard in shards for i in shard) == list(range(length))
    assert [len(shard) for shard in shards] == [len(list(shard)) for shard in shards]


@pytest.mark.parametrize(("num_workers", "rank"), [(2, -1), (0, 0), (2, 2)])
def test_impossible_shards_of_batches_are_refused(num_workers: int, rank: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        samplers.DistributedBatchSampler(batches(4), num_workers, rank)


@given(length=st.integers(0, 20), skip=st.integers(0, 25))
def test_skipping_equals_slicing_in_each_iteration(length: int, skip: int) -> None:
    skipped = samplers.SkipSampler(sequence(length), skip)
    skipped_batches = samplers.SkipBatchSampler(batches(length), skip)
    for _ in range(2):
        assert list(skipped) == list(range(length))[skip:]
        assert list(skipped_batches) == list(batches(length))[skip:]
    assert len(skipped) == length
    assert len(skipped_batches) == skipped_batches.length == len(batches(length))


def test_golden_shuffles() -> None:
    shuffled = samplers.ReproducibleShuffleSampler(SequentialSampler(range(5)), 777)
    assert [list(shuffled), list(shuffled)] == [[0, 4, 1, 2, 3], [2, 0, 1, 3, 4]]
    shuffled_batches = samplers.ReproducibleShuffleBatchSampler(batches(10), 777)
    assert list(shuffled_batches) == [[0, 1], [8, 9], [2, 3], [4, 5], [6, 7]]
    assert list(shuffled_batches) == [[4, 5], [0, 1], [2, 3], [6, 7], [8, 9]]
    assert len(shuffled_batches) == 5


@given(length=st.integers(1, 30), jumps=st.lists(st.integers(0, 6), max_size=5))
def test_a_shuffle_can_jump_to_any_pass(length: int, jumps: list[int]) -> None:
    walked = samplers.ReproducibleShuffleSampler(sequence(length), 3)
    passes = [list(walked) for _ in range(7)]
    jumper = samplers.ReproducibleShuffleSampler(sequence(length), 3)
    for epoch in jumps:
        jumper.set_epoch(epoch)
        assert list(jumper) == passes[epoch]


def test_a_shuffle_continues_from_its_state() -> None:
    walked = samplers.ReproducibleShuffleSampler(sequence(20), 3)
    list(walked)
    state = walked.state_dict()
    expected = [list(walked), list(walked)]
    other = samplers.ReproducibleShuffleSampler(sequence(20), 999)
    np.random.rand()
    other.load_state_dict(state)
    assert [list(other), list(other)] == expected
    other.set_epoch(0)
    assert list(other) == list(samplers.ReproducibleShuffleSampler(sequence(20), 3))
