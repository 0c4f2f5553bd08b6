"""Iterable datasets in training: dealt without repeats, resumed exactly."""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import IterableDataset, get_worker_info

from determined.pytorch._data.batches import DataLoader
from determined.pytorch._data.seed import seed_everything
from determined.pytorch._data.training.opening import open_training_data
from determined.pytorch._data.training.training_data import TrainingData
from tests.support.cut import as_lists
from tests.support.faults import at_least

# Four workers on a machine with fewer cores are what these tests ask for.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


class Shuffled(IterableDataset[Any]):
    """Numbers in an order from the global generators, with noise, split by worker as documented."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        numbers = list(range(self.length))
        random.shuffle(numbers)
        info = get_worker_info()
        step, first = (1, 0) if info is None else (info.num_workers, info.id)
        for number in numbers[first::step]:
            yield number, float(np.random.rand()), float(torch.rand(()))


class Counted(IterableDataset[Any]):
    """Knows where it is; counts what it read in this process."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.state = {"epoch": 0, "position": 0}
        self.reads = 0

    def __iter__(self) -> Iterator[Any]:
        while self.state["position"] < self.length:
            self.state["position"] += 1
            self.reads += 1
            number = self.state["position"] - 1 + 100 * self.state["epoch"]
            yield number, float(np.random.rand()), float(torch.rand(()))
        self.state["epoch"] += 1
        self.state["position"] = 0

    def state_dict(self) -> dict[str, int]:
        return self.state  # the live object: it must be copied

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.state = state


class Sharded(Shuffled):
    """Splits its numbers by worker, unevenly."""

    shards_itself = True

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, count = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(self.length):
            if number * number % count == worker or (worker > 1 and number % count == worker):
                yield number, worker, float(torch.rand(()))


class Hopping(Shuffled):
    """An epoch's numbers come from `set_epoch`."""

    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        return iter(range(100 * self.epoch, 100 * self.epoch + self.length))


def opened(
    loader: Any, start: int = 0, saved: Any = None, *, rank: int = 0, size: int = 1
) -> TrainingData:
    return open_training_data(loader, seed=1, rank=rank, size=size, start=start, saved=saved)


def trained(build: Callable[[], Any], total: int, cuts: list[int], **ranks: int) -> list[Any]:
    seen: list[Any] = []
    saved = None
    for end in [*sorted(cuts), total]:
        seed_everything(len(seen))  # another state in each process
        data = opened(build(), len(seen), saved, **ranks)
        while len(seen) < end:
            seen.append(as_lists(next(data)))
            torch.rand(3)
        saved = data.state_dict(len(seen))
        data.close()
    return seen


@settings(max_examples=at_least(20, 60), deadline=None)
@given(
    kind=st.sampled_from([Shuffled, Counted, Sharded, Hopping]),
    length=st.integers(1, 12),
    batch_size=st.integers(1, 4),
    cuts=st.lists(st.integers(0, 20), max_size=3),
    ranks=st.sampled_from([(0, 1), (1, 2)]),
)
def test_cut_and_resumed_equals_uncut(
    kind: type, length: int, batch_size: int, cuts: list[int], ranks: tuple[int, int]
) -> None:
    rank, size = ranks

    def build() -> DataLoader:
        return DataLoader(kind(length), batch_size)

    uncut = trained(build, 20, [], rank=rank, size=size)
    assert trained(build, 20, cuts, rank=rank, size=size) == uncut


@pytest.mark.multiprocess
@pytest.mark.parametrize("kind", [Shuffled, Counted])
@pytest.mark.parametrize(("num_workers", "persistent"), [(2, True), (4, False)])
def test_three_resumes_with_workers_equal_the_uncut_run_without(
    kind: type, num_workers: int, persistent: bool
) -> None:
    def build(count: int) -> DataLoader:
        is_kept = persistent and count > 0
        return DataLoader(kind(10), 3, num_workers=count, persistent_workers=is_kept)

    uncut = trained(lambda: build(0), 13, [])
    assert trained(lambda: build(num_workers), 13, [1, 4, 5]) == uncut  # an epoch is 4 batches
    counts = iter([0, num_workers, 0, 1])
    assert trained(lambda: build(next(counts)), 13, [1, 4, 5]) == uncut


@pytest.mark.multiprocess
@pytest.mark.parametrize("num_workers", [2, 4])
def test_datasets_that_shard_themselves_resume_each_worker(num_workers: int) -> None:
    def build() -> DataLoader:
        return DataLoader(Sharded(11), 2, num_workers=num_workers)

    uncut = trained(build, 13, [])
    assert len({batch[1][0] for batch in uncut}) == num_workers
    assert trained(build, 13, [1, 4, 5]) == uncut


@pytest.mark.parametrize("kind", [Shuffled, Counted])
def test_ranks_share_one_stream_and_the_world_size_may_change(kind: type) -> None:
    def build() -> DataLoader:
        return DataLoader(kind(10), 3)

    alone = trained(build, 24, [])
    dealt: list[Any] = []
    saved, start = None, 0
    for size in (2, 1, 3):
        ranks = [opened(build(), start, saved, rank=rank, size=size) for rank in range(size)]
        dealt += [as_lists(next(data)) for _ in range(4) for data in ranks]
        start += 4
        saved = [data.state_dict(start) for data in ranks][-1]
    assert dealt == alone


@pytest.mark.multiprocess
@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_global_generators_are_left_alone(num_workers: int) -> None:
    seed_everything(5)
    torch.empty((), dtype=torch.int64).random_()  # what torch's loader draws at each `iter()`
    expected = [random.random(), np.random.rand(), torch.rand(1)]
    seed_everything(5)
    data = opened(DataLoader(Shuffled(5), 2, num_workers=num_workers))
    for _ in range(7):
        next(data)
    data.close()
    assert [random.random(), np.random.rand(), torch.rand(1)] == expected


class WithGenerator(IterableDataset[Any]):
    """Has a generator of its own, which goes on from one pass to the next."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.rng = np.random.default_rng(1)

    def __iter__(self) -> Iterator[Any]:
        return ((i, self.rng.random()) for i in self.rng.permutation(self.length).tolist())


class Renewing(Counted):
    """Tells of the next pass as soon as the last sample of one is read."""

    def __iter__(self) -> Iterator[Any]:
        is_over = False
        while not is_over:
            number = self.state["position"]
            is_over = number + 1 == self.length
            self.state = {"epoch": 0, "position": (number + 1) % self.length}
            yield number, float(np.random.rand())


class Ending(Counted):
    """Continues once from a state that was loaded, and then begins anew, as some libraries do."""

    def __iter__(self) -> Iterator[Any]:
        begin, self.next = getattr(self, "next", 0), 0
        for number in range(begin, self.length):
            self.state = {"epoch": 0, "position": number + 1}
            yield number, float(np.random.rand())

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.next = state["position"]


@pytest.mark.parametrize("kind", [Shuffled, Counted, WithGenerator, Renewing, Ending])
@pytest.mark.parametrize("length", [8, 9])  # the last of three batches is short, or full
def test_stops_at_the_end_of_a_pass_are_exact(kind: type, length: int) -> None:
    def run(*cuts: int) -> list[Any]:
        seen: list[Any] = []
        saved = None
        for end in [*cuts, 11]:
            data = opened(DataLoader(kind(length), 3), len(seen), saved)
            while len(seen) < end:
                batch = as_lists(next(data))
                seen.append((batch, data.passes))
            saved = data.state_dict(len(seen))
        return seen

    uncut = run()
    assert [passes for _, passes in uncut] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3]
    for cuts in ([3], [6], [2, 3, 9], [4, 5, 6, 7], [1, 8, 10]):
        assert run(*cuts) == uncut


def test_a_dataset_with_state_reads_one_batch_again_at_most() -> None:
    data = opened(DataLoader(Counted(10), 3))
    for _ in range(3):
        next(data)
    dataset = Counted(10)
    resumed = opened(DataLoader(dataset, 3), 2, data.state_dict(2))  # one batch is held back
    assert as_lists(next(resumed))[0] == [6, 7, 8]
    assert dataset.reads == 6


@settings(max_examples=at_least(20, 60), deadline=None)
@given(
    kind=st.sampled_from([Shuffled, Counted]),
    length=st.integers(1, 12),
    parts=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3)), min_size=2, max_size=4),
    steps=st.integers(1, 5),
    from_last_rank=st.booleans(),
)
def test_changed_batch_and_world_sizes_leave_out_no_record(
    kind: type,
    length: int,
    parts: list[tuple[int, int]],
    steps: int,
    from_last_rank: bool,
) -> None:
    records: list[int] = []
    saved, start = None, 0
    for batch_size, size in parts:
        ranks = [
            opened(DataLoader(kind(length), batch_size), start, saved, rank=rank, size=size)
            for rank in range(size)
        ]
        for _ in range(steps):
            for data in ranks:
                records += [number % 100 for number in as_lists(next(data))[0]]
        start += steps
        saved = ranks[-1 if from_last_rank else 0].state_dict(start)
    for begin in range(0, len(records) - length + 1, length):
        assert sorted(records[begin : begin + length]) == list(range(length))


@pytest.mark.multiprocess
def test_workers_that_shard_themselves_may_get_another_batch_size() -> None:
    data = opened(DataLoader(Sharded(13), 3, num_workers=2))
    seen = [as_lists(next(data)) for _ in range(3)]  # two of the first worker, one of the second
    saved = data.state_dict(3)
    data.close()
    resumed = opened(DataLoader(Sharded(13), 2, num_workers=2), 3, saved)
    seen += [as_lists(next(resumed)) for _ in range(3)]
    resumed.close()
    assert [batch[1][0] for batch in seen] == [0, 1, 0, 1, 0, 1]
    assert [batch[0] for batch in seen[1::2]] == [[1, 3, 5], [7, 9], [11]]


@pytest.mark.parametrize("held_back", [0, 1, 16])
def test_batches_may_be_held_back_up_to_a_limit(held_back: int) -> None:
    uncut = trained(lambda: DataLoader(Counted(10), 3), 40, [])
    data = opened(DataLoader(Counted(10), 3))
    for _ in range(30):
        next(data)
    start = 30 - held_back
    resumed = opened(DataLoader(Counted(10), 3), start, data.state_dict(start))
    assert [as_lists(next(resumed)) for _ in range(10)] == uncut[start : start + 10]
    with pytest.raises(ValueError, match="consumed"):
        data.state_dict(13)


def test_reading_again_is_announced(caplog: pytest.LogCaptureFixture) -> None:
    data = opened(DataLoader(Shuffled(10), 3))
    saved = data.state_dict(3)
    with caplog.at_level(logging.INFO, "determined.pytorch"):
        next(opened(DataLoader(Shuffled(10), 3), 3, saved))
    assert "Rereading 3 batches of Shuffled" in caplog.text


@pytest.mark.parametrize("batch_size", [2, None])
def test_other_batchings_without_a_saved_position(batch_size: int | None) -> None:
    def build() -> DataLoader:
        return DataLoader(Shuffled(5), batch_size, drop_last=batch_size is not None)

    uncut = trained(build, 12, [])
    resumed = opened(build(), 7)
    assert [as_lists(next(resumed)) for _ in range(5)] == uncut[7:]
    assert opened(build()).epoch_length is None


class Empty(IterableDataset[Any]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return self.length


def test_an_empty_stream_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"build_training_data_loader.*Empty \(0 samples\)"):
        opened(DataLoader(Empty(0), 2))
    data = opened(DataLoader(Empty(9), 2))
    assert data.epoch_length == 5
    with pytest.raises(RuntimeError, match=r"build_training_data_loader.*pass over Empty"):
        next(data)


def test_a_stream_shorter_than_a_batch_is_an_error_if_short_batches_are_dropped() -> None:
    with pytest.raises(RuntimeError, match="drop_last"):
        next(opened(DataLoader(Shuffled(3), 4, drop_last=True)))


@pytest.mark.multiprocess
def test_a_worker_without_a_shard_is_an_error() -> None:
    data = opened(DataLoader(Sharded(1), 2, num_workers=2))
    next(data)
    with pytest.raises(RuntimeError, match="worker 1 of 2"):
        next(data)
    data.close()


def test_shards_saved_for_other_workers_are_refused() -> None:
    saved = opened(DataLoader(Sharded(9), 2)).state_dict(0)
    with pytest.raises(
        RuntimeError, match="1 workers, 1 slots, by rank 0; opened with 1 workers, 2"
    ):
        opened(DataLoader(Sharded(9), 2), 0, saved, rank=1, size=2)


def test_an_error_names_the_batch() -> None:
    class Breaking(Shuffled):
        def __iter__(self) -> Iterator[Any]:
            yield from range(3)
            raise OSError("disk")

    data = opened(DataLoader(Breaking(1), 2))
    next(data)
    with pytest.raises(OSError, match="disk") as raised:
        next(data)
    assert "batch 1" in " ".join(getattr(raised.value, "__notes__", ["batch 1"]))


def test_a_lost_state_means_reading_from_the_beginning(caplog: pytest.LogCaptureFixture) -> None:
    class Forgetful(Counted):
        load_state_dict = None  # type: ignore[assignment]

    uncut = trained(lambda: DataLoader(Counted(10), 3), 8, [])
    data = opened(DataLoader(Counted(10), 3))
    next(data)
    resumed = opened(DataLoader(Forgetful(10), 3), 1, data.state_dict(1))
    assert as_lists(list(itertools.islice(resumed, 7))) == uncut[1:]
    assert "read from the beginning" in caplog.text
