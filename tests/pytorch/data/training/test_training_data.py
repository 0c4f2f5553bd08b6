"""Cut anywhere, resumed anywhere: the batches are those of the run that was never cut."""

from __future__ import annotations

import itertools
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    Dataset,
    SubsetRandomSampler,
    TensorDataset,
)

from determined.pytorch._data.batches import DataLoader
from determined.pytorch._data.seed import seed_everything
from tests.support.cut import Build, opened, trained
from tests.support.faults import at_least
from tests.support.loader_waits import loader_waits, until_waited_for  # noqa: F401  # a fixture
from tests.support.orders import KINDS, Noisy, NumpySampler, arguments_of, generator


@settings(max_examples=at_least(50, 150), deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 17),
    batch_size=st.integers(1, 6),
    cuts=st.lists(st.integers(0, 40), max_size=3),
    ranks=st.sampled_from([(0, 1), (0, 2), (1, 2), (2, 3)]),
)
def test_cut_and_resumed_equals_uncut(
    kind: str, n: int, batch_size: int, cuts: list[int], ranks: tuple[int, int]
) -> None:
    rank, size = ranks

    def build() -> DataLoader:
        return DataLoader(Noisy(n), **arguments_of(kind, n, batch_size))

    uncut = trained(build, 40, rank=rank, size=size)
    assert trained(build, 40, cuts, rank=rank, size=size) == uncut


@pytest.mark.parametrize("kind", KINDS)
def test_a_position_is_safe_to_load_and_holds_for_a_batch_held_back(
    kind: str, tmp_path: Path
) -> None:
    def build() -> DataLoader:
        return DataLoader(Noisy(7), **arguments_of(kind, 7, 3))

    uncut = [batch[0].tolist() for batch in itertools.islice(opened(build()), 30)]
    data = opened(build())
    for _ in range(12):
        next(data)
    torch.save(data.state_dict(10), tmp_path / "state.pt")  # two batches read, not yet trained
    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    resumed = opened(build(), 10, saved)
    assert [batch[0].tolist() for batch in itertools.islice(resumed, 20)] == uncut[10:]


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("remembering", "stateful")])
def test_a_position_counted_in_batches_will_do(kind: str) -> None:
    def build() -> DataLoader:
        return DataLoader(Noisy(7), **arguments_of(kind, 7, 3))

    uncut = [batch[0].tolist() for batch in itertools.islice(opened(build()), 20)]
    resumed = opened(build(), 13)
    assert [batch[0].tolist() for batch in itertools.islice(resumed, 7)] == uncut[13:]


@pytest.mark.parametrize("kind", KINDS)
def test_choosing_the_order_leaves_the_global_generators_alone(kind: str) -> None:
    arguments = arguments_of(kind, 9, 2)
    seed_everything(5)
    if "generator" not in arguments:
        torch.empty((), dtype=torch.int64).random_()  # what torch's loader draws at each `iter()`
    expected = [random.random(), np.random.rand(), torch.rand(1)]
    seed_everything(5)
    data = opened(DataLoader(TensorDataset(torch.arange(9)), **arguments))
    for _ in range(30):
        next(data)
    assert [random.random(), np.random.rand(), torch.rand(1)] == expected


def test_without_shuffling_the_order_is_that_of_the_dataset() -> None:
    data = opened(DataLoader(TensorDataset(torch.arange(5)), batch_size=2))
    seen = [batch[0].tolist() for batch in itertools.islice(data, 5)]
    assert seen == [[0, 1], [2, 3], [4], [0, 1], [2, 3]]
    assert data.epoch_length == 3


@pytest.mark.parametrize("is_known", [True, False])
def test_a_users_generator_gives_torchs_own_first_epoch(is_known: bool) -> None:
    def arguments() -> dict[str, Any]:
        shared = generator()
        if is_known:
            return {"shuffle": True, "generator": shared}
        return {"sampler": SubsetRandomSampler(range(20), shared), "generator": shared}

    dataset = TensorDataset(torch.arange(20))
    theirs = [b[0].tolist() for b in torch.utils.data.DataLoader(dataset, 3, **arguments())]
    ours = opened(DataLoader(dataset, 3, **arguments()))
    assert [batch[0].tolist() for batch in itertools.islice(ours, 7)] == theirs
    second = [batch[0].tolist() for batch in itertools.islice(ours, 7)]
    assert sorted(sum(second, [])) == list(range(20))
    assert second != theirs


@pytest.mark.parametrize("kind", ["shuffle", "numpy", "weighted", "infinite batches"])
def test_ranks_share_one_global_order(kind: str) -> None:
    def build() -> DataLoader:
        return DataLoader(Noisy(10), **arguments_of(kind, 10, 3))

    alone = [batch[0].tolist() for batch in itertools.islice(opened(build()), 24)]
    ranks = [opened(build(), rank=rank, size=3) for rank in range(3)]
    dealt = [next(data)[0].tolist() for _ in range(8) for data in ranks]
    assert dealt == alone


@settings(max_examples=at_least(30, 60), deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    steps=st.integers(1, 7),
)
def test_a_changed_world_size_continues_the_global_order(
    kind: str, sizes: list[int], steps: int
) -> None:
    def build() -> DataLoader:
        return DataLoader(Noisy(10), **arguments_of(kind, 10, 3))

    dealt: list[Any] = []
    saved, start = None, 0
    for size in sizes:
        ranks = [opened(build(), start, saved, rank=rank, size=size) for rank in range(size)]
        dealt += [next(data)[0].tolist() for _ in range(steps) for data in ranks]
        start += steps
        states = [data.state_dict(start) for data in ranks]
        saved = states[-1]
    alone = itertools.islice(opened(build()), len(dealt))
    assert dealt == [batch[0].tolist() for batch in alone]


WITHOUT_RECORDS = "drop last", "batches", "infinite batches"


@settings(max_examples=at_least(40, 100), deadline=None)
@given(
    kind=st.sampled_from(
        [k for k in KINDS if k not in ("drop last", "batches", "infinite batches")]
    ),
    n=st.integers(1, 30),
    parts=st.lists(st.tuples(st.integers(1, 7), st.integers(1, 3)), min_size=2, max_size=4),
    steps=st.integers(1, 6),
)
def test_changed_batch_and_world_sizes_continue_at_the_record(
    kind: str, n: int, parts: list[tuple[int, int]], steps: int
) -> None:
    records: list[int] = []
    saved, start = None, 0
    for batch_size, size in parts:
        ranks = [
            opened(
                DataLoader(Noisy(n), **arguments_of(kind, n, batch_size)),
                start,
                saved,
                rank=rank,
                size=size,
            )
            for rank in range(size)
        ]
        for _ in range(steps):
            for data in ranks:
                records += next(data)[0].tolist()
        start += steps
        saved = ranks[0].state_dict(start)
    single = opened(DataLoader(Noisy(n), **arguments_of(kind, n, 1)))
    assert records == [next(single)[0].item() for _ in records]


class Many(Dataset[Any]):
    """Ten million samples that need no memory."""

    def __getitem__(self, index: int) -> int:
        return index

    def __len__(self) -> int:
        return 10_000_000


def test_a_million_batches_are_skipped_with_one_permutation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[int] = []
    randperm = torch.randperm

    def counting(n: int, **arguments: Any) -> torch.Tensor:
        drawn.append(n)
        return randperm(n, **arguments)

    monkeypatch.setattr(torch, "randperm", counting)
    data = opened(DataLoader(Many(), batch_size=32, shuffle=True), start=1_000_000)
    assert len(next(data)) == 32
    assert drawn == [10_000_000]
    assert data.state_dict(1_000_001)["epoch"] == 3


def test_a_changed_dataset_is_reported_with_numbers(caplog: pytest.LogCaptureFixture) -> None:
    data = opened(DataLoader(TensorDataset(torch.arange(9)), 2))
    saved = data.state_dict(4)
    smaller = opened(DataLoader(TensorDataset(torch.arange(5)), 2), 4, saved)
    assert next(smaller)[0].tolist() == [0, 1]  # record 8 of the first epoch is gone
    assert "had 9 samples" in caplog.text
    assert "has 5 now" in caplog.text


@pytest.mark.parametrize(
    ("records", "drop_last", "is_even"),
    [(24, False, True), (20, False, False), (20, True, True), (21, True, False)],
)
def test_epochs_that_do_not_come_out_even_on_other_ranks_are_reported(
    records: int, drop_last: bool, is_even: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def build(batch_size: int) -> DataLoader:
        return DataLoader(Noisy(records), batch_size, shuffle=True, drop_last=drop_last)

    uncut = opened(build(6))
    seen = [sorted(next(uncut)[0].tolist()) for _ in range(12)]
    saved = uncut.state_dict(0)
    ranks = [opened(build(3), 0, saved, rank=rank, size=2) for rank in range(2)]
    shared = [sorted(sum((next(rank)[0].tolist() for rank in ranks), [])) for _ in range(12)]
    assert (shared == seen) == is_even
    assert ("does not consist of whole global batches of 6" in caplog.text) != is_even


def test_a_user_generator_with_a_random_seed_continues() -> None:
    def build() -> DataLoader:
        sampled = torch.Generator()
        sampled.seed()
        return DataLoader(Noisy(9), 2, shuffle=True, generator=sampled)

    uncut = opened(build())
    seen = [next(uncut)[0].tolist() for _ in range(12)]
    for cut in (0, 3, 7):
        saved = {**uncut.state_dict(12), "batches": cut, "epoch": cut // 5, "record": cut % 5 * 2}
        resumed = opened(build(), cut, saved)
        assert [next(resumed)[0].tolist() for _ in range(12 - cut)] == seen[cut:]


def test_a_position_of_another_kind_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    saved = opened(DataLoader(Noisy(9), 2, sampler=NumpySampler(9))).state_dict(1)
    data = opened(DataLoader(Noisy(9), 2), 1, saved)
    assert next(data)[0].tolist() == [2, 3]
    assert "does not fit" in caplog.text


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 9, "drop_last": True},
        {"batch_sampler": []},
        {"batch_sampler": iter([])},
        {"batch_size": 2, "sampler": []},
    ],
)
def test_data_without_a_batch_is_an_error(arguments: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match=r"build_training_data_loader.*no batches"):
        next(opened(DataLoader(Noisy(4), **arguments)))


def test_an_error_names_the_batch_and_the_sample() -> None:
    data = opened(DataLoader(Noisy(4), batch_sampler=[[0], [1, 9]]))
    next(data)
    with pytest.raises(IndexError) as raised:
        next(data)
    notes = " ".join(getattr(raised.value, "__notes__", ["sample 9", "batch 1"]))
    assert "sample 9" in notes
    assert "batch 1" in notes


def test_a_dataset_that_stops_the_iteration_is_an_error() -> None:
    class Stops(Noisy):
        def __getitem__(self, index: int) -> Any:
            raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        next(opened(DataLoader(Stops(4))))


def test_closing_twice_is_fine_and_ends_the_batches() -> None:
    data = opened(DataLoader(Noisy(4)))
    next(data)
    data.close()
    data.close()
    assert list(data) == []


def test_out_of_order_workers_are_not_used_for_training(caplog: pytest.LogCaptureFixture) -> None:
    opened(DataLoader(Noisy(4), in_order=False))
    assert "in_order" in caplog.text


@pytest.mark.multiprocess
class TestWorkers:
    @pytest.mark.parametrize("kind", ["shuffle", "numpy"])
    def test_results_depend_on_neither_workers_nor_cuts(self, kind: str) -> None:
        def build(num_workers: int, **arguments: Any) -> DataLoader:
            return DataLoader(
                Noisy(11), num_workers=num_workers, **arguments, **arguments_of(kind, 11, 3)
            )

        uncut = trained(lambda: build(1), 12)
        assert len({value for batch in uncut for value in batch[1]}) == sum(map(count, uncut))
        several = trained(lambda: build(2, prefetch_factor=3), 12, [5, 5, 9])
        assert several == uncut
        assert trained(lambda: build(2, persistent_workers=True), 12, [2]) == uncut

    def test_the_world_size_changes_no_augmentation(self) -> None:
        def build() -> DataLoader:
            return DataLoader(Noisy(11), 3, shuffle=True, num_workers=1)

        alone = trained(build, 6)
        ranks = [trained(build, 3, rank=rank, size=2) for rank in range(2)]
        assert [batch for pair in zip(*ranks, strict=True) for batch in pair] == alone

    def test_starting_workers_draws_no_more_than_torch_does(self) -> None:
        seed_everything(5)
        torch.empty((), dtype=torch.int64).random_()
        expected = torch.rand(1)
        seed_everything(5)
        data = opened(DataLoader(Noisy(4), shuffle=True, num_workers=1))
        next(data)
        data.close()
        assert torch.rand(1) == expected

    def test_workers_read_whole_tensors_too(self) -> None:
        dataset = TensorDataset(torch.arange(10), torch.rand(10, 3))
        here = trained(lambda: DataLoader(dataset, 4, shuffle=True), 5)
        assert trained(lambda: DataLoader(dataset, 4, shuffle=True, num_workers=1), 5) == here

    @pytest.mark.parametrize("context", ["fork", "spawn"])
    def test_a_worker_sees_the_users_dataset_and_init(self, context: str) -> None:
        loader = DataLoader(
            Telling(),
            2,
            num_workers=1,
            collate_fn=list,
            worker_init_fn=tell,
            multiprocessing_context=context,
        )
        data = opened(loader)
        assert next(data) == [("Telling", 0), ("Telling", 0)]
        data.close()

    def test_no_worker_outlives_a_close_even_if_it_hangs(self) -> None:
        others = set(psutil.Process().children())
        data = opened(DataLoader(Hanging(), 1, num_workers=2))
        next(data)
        workers = set(psutil.Process().children()) - others
        assert len(workers) == 2
        data.close()
        _, alive = psutil.wait_procs(workers, timeout=4)  # torch alone would take ten seconds
        assert not alive

    @pytest.mark.usefixtures("loader_waits")
    def test_a_killed_worker_is_an_error_that_names_the_batch(self) -> None:
        data = opened(DataLoader(Killing(), 1, num_workers=1))
        with pytest.raises(RuntimeError, match="at batch 2, lost a worker") as raised:
            list(itertools.islice(data, 5))
        assert raised.value.__cause__ is not None
        data.close()

    def test_a_worker_that_takes_too_long_is_an_error_that_names_the_batch(self) -> None:
        data = opened(DataLoader(Hanging(), 1, num_workers=1, timeout=1))
        next(data)
        with pytest.raises(RuntimeError, match=r"at batch 1, got nothing .* 1 seconds"):
            next(data)
        data.close()

    def test_an_error_in_a_worker_names_the_sample(self) -> None:
        data = opened(DataLoader(Noisy(4), batch_sampler=[[0, 9]], num_workers=1))
        with pytest.raises(IndexError, match="sample 9" if hasattr(Exception, "add_note") else ""):
            next(data)
        data.close()


def count(batch: Any) -> int:
    return len(batch[0])


def tell(worker_id: int) -> None:
    info = torch.utils.data.get_worker_info()
    assert info is not None
    info.dataset.told = worker_id  # type: ignore[attr-defined]


class Telling(Noisy):
    told = -1

    def __init__(self) -> None:
        super().__init__(4)

    def __getitem__(self, index: int) -> Any:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        assert info.dataset is self
        return type(info.dataset).__name__, self.told

    def __getitems__(self, indices: list[int]) -> Any:
        return [self[index] for index in indices]


class Hanging(Noisy):
    def __init__(self) -> None:
        super().__init__(10)

    def __getitem__(self, index: int) -> Any:
        if index > 0:
            time.sleep(60)
        return index


class Killing(Noisy):
    def __init__(self) -> None:
        super().__init__(10)

    def __getitem__(self, index: int) -> Any:
        if index == 2:
            until_waited_for(2)
            os.kill(os.getpid(), signal.SIGKILL)
        return index


class Resumable(list[Any]):
    """A loader that can say and be told where it is."""

    position = 0

    def __iter__(self) -> Iterator[Any]:
        while self.position < len(self):
            self.position += 1
            yield self[self.position - 1]
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class Infinite:
    def __iter__(self) -> Iterator[int]:
        return itertools.count()


class TestOtherLoaders:
    @settings(max_examples=at_least(15, 40), deadline=None)
    @given(
        kind=st.sampled_from(["list", "torch", "generator", "resumable"]),
        cuts=st.lists(st.integers(0, 20), max_size=3),
    )
    def test_cut_and_resumed_equals_uncut(self, kind: str, cuts: list[int]) -> None:
        builds: dict[str, Build] = {
            "list": lambda: [1, 2, 3, 4, 5, 6, 7],
            "torch": lambda: torch.utils.data.DataLoader(
                TensorDataset(torch.arange(10)), 3, shuffle=True
            ),
            "generator": Infinite,
            "resumable": lambda: Resumable([1, 2, 3, 4, 5]),
        }
        uncut = trained(builds[kind], 20)
        assert trained(builds[kind], 20, cuts) == uncut

    def test_a_finite_loader_starts_again(self) -> None:
        data = opened([1, 2, 3])
        assert list(itertools.islice(data, 7)) == [1, 2, 3, 1, 2, 3, 1]
        assert data.epoch_length == 3
        assert opened(Infinite()).epoch_length is None

    def test_a_position_counted_in_batches_is_taken_modulo_the_epoch(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO, "determined.pytorch"):
            assert next(opened([1, 2, 3], 8)) == 3
        assert "Rereading 2 batches" in caplog.text

    def test_a_loader_with_state_reads_nothing_twice(self) -> None:
        data = opened(Resumable(range(6)))
        for _ in range(4):
            next(data)
        saved = data.state_dict(4)
        loader = Resumable(range(6))
        resumed = opened(loader, 4, saved)
        assert loader.position == 4
        assert list(itertools.islice(resumed, 3)) == [4, 5, 0]

    @pytest.mark.parametrize("loader", [[], iter([])])
    def test_an_empty_one_is_an_error(self, loader: Any) -> None:
        with pytest.raises(RuntimeError, match="build_training_data_loader"):
            next(opened(loader))

    def test_an_iterator_that_ends_is_an_error_and_not_a_hang(self) -> None:
        data = opened(iter([1, 2]))
        assert [next(data), next(data)] == [1, 2]
        with pytest.raises(RuntimeError, match="return a loader, not an iterator"):
            next(data)

    @pytest.mark.multiprocess
    def test_closing_ends_the_workers_of_a_torch_loader(self) -> None:
        others = set(psutil.Process().children())
        data = opened(torch.utils.data.DataLoader(Noisy(100), num_workers=1))
        next(data)
        workers = set(psutil.Process().children()) - others
        assert len(workers) == 1
        data.close()
        _, alive = psutil.wait_procs(workers, timeout=4)
        assert not alive


@pytest.mark.parametrize("shuffle", [False, True])
def test_an_epoch_gives_the_gradients_of_a_plain_torch_loop(shuffle: bool) -> None:
    dataset = TensorDataset(torch.randn(50, 4), torch.randn(50, 1))

    def gradients(open_loader: Callable[[torch.Generator | None], Iterable[Any]]) -> torch.Tensor:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.Dropout(), torch.nn.Linear(8, 1)
        )
        for inputs, targets in itertools.islice(open_loader(generator() if shuffle else None), 4):
            loss: Any = ((model(inputs) - targets) ** 2).mean()
            loss.backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    theirs = gradients(
        lambda rng: torch.utils.data.DataLoader(dataset, 16, shuffle=shuffle, generator=rng)
    )
    ours = gradients(lambda rng: opened(DataLoader(dataset, 16, shuffle=shuffle, generator=rng)))
    assert torch.equal(ours, theirs)
