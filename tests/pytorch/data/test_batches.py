from __future__ import annotations

import collections
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from determined.pytorch._data.batches import (
    DataLoader,
    _dataset_repro_warning,
    adapt_batch_sampler,
    data_length,
    to_device,
)


class Count(IterableDataset[int]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        info = torch.utils.data.get_worker_info()
        # The pattern of torch's own documentation: it must not shard a second time.
        step, first = (1, 0) if info is None else (info.num_workers, info.id)
        return iter(range(first, self.length, step))

    def __len__(self) -> int:
        return self.length


def ids(length: int) -> TensorDataset:
    return TensorDataset(torch.arange(length))


def take(loader: Any, count: int) -> list[Any]:
    return [batch[0].tolist() for batch in itertools.islice(iter(loader), count)]


class TestConstructor:
    @pytest.mark.parametrize(
        ("arguments", "names"),
        [
            ({"batch_size": None}, "batch_size"),
            ({"num_workers": -1}, "num_workers"),
            ({"timeout": -1}, "timeout"),
            ({"prefetch_factor": 2}, "prefetch_factor"),
            ({"prefetch_factor": -2, "num_workers": 1}, "prefetch_factor"),
            ({"persistent_workers": True}, "persistent_workers"),
            ({"sampler": SequentialSampler(range(4)), "shuffle": True}, "sampler"),
            ({"batch_sampler": [[0]], "batch_size": 2}, "batch_sampler"),
            ({"batch_sampler": [[0]], "batch_size": None}, "batch_sampler"),
            ({"batch_sampler": [[0]], "shuffle": True}, "batch_sampler"),
            ({"batch_sampler": [[0]], "sampler": SequentialSampler(range(4))}, "batch_sampler"),
            ({"batch_sampler": [[0]], "drop_last": True}, "batch_sampler"),
        ],
    )
    def test_contradictory_arguments_are_refused(
        self, arguments: dict[str, Any], names: str
    ) -> None:
        with pytest.raises(ValueError, match=names):
            DataLoader(ids(4), **arguments)

    @pytest.mark.parametrize(
        "arguments",
        [
            {"shuffle": True},
            {"sampler": [0]},
            {"batch_sampler": [[0]]},
            {"batch_size": None, "drop_last": True},
        ],
    )
    def test_an_iterable_dataset_has_no_order_to_choose(self, arguments: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="IterableDataset|drop_last"):
            DataLoader(Count(4), **arguments)

    def test_defaults_are_those_of_torch(self) -> None:
        loader = DataLoader(ids(5), batch_size=2)
        assert isinstance(loader.sampler, SequentialSampler)
        assert isinstance(loader.batch_sampler, BatchSampler)
        assert loader.collate_fn is default_collate
        assert loader.prefetch_factor is None
        assert (loader.batch_size, loader.drop_last, len(loader)) == (2, False, 3)
        assert DataLoader(ids(5), num_workers=1).prefetch_factor == 2
        generator = torch.Generator()
        shuffled = DataLoader(ids(5), shuffle=True, generator=generator)
        assert isinstance(shuffled.sampler, RandomSampler)
        assert shuffled.sampler.generator is generator

    def test_a_batch_sampler_replaces_batch_size(self) -> None:
        loader = DataLoader(ids(5), batch_sampler=[[3, 1], [0]])
        assert (loader.batch_size, loader.drop_last, len(loader)) == (None, False, 2)
        assert take(loader, 9) == [[3, 1], [0]]

    def test_newer_options_of_torch_are_forwarded_and_unknown_ones_named(self) -> None:
        loader = DataLoader(ids(4), in_order=True)
        assert loader.get_data_loader().in_order
        with pytest.raises(TypeError, match="colour, taste"):
            DataLoader(ids(4), taste=1, colour=2)


class TestAdaptedLoader:
    @pytest.mark.parametrize(
        ("rank", "length", "expected"),
        [
            (0, 3, [[4, 5], [8, 9], [2, 3], [6, 7], [0, 1]]),
            (1, 2, [[6, 7], [0, 1], [4, 5], [8, 9], [2, 3]]),
        ],
    )
    def test_repeat_then_shard_then_skip(
        self, rank: int, length: int, expected: list[list[int]]
    ) -> None:
        loader = DataLoader(ids(10), batch_size=2)
        torch_loader = loader.get_data_loader(repeat=True, skip=1, num_replicas=2, rank=rank)
        assert isinstance(torch_loader, torch.utils.data.DataLoader)
        assert torch_loader.dataset is loader.dataset
        assert len(torch_loader) == length
        assert take(torch_loader, 5) == expected
        batches: Any = torch_loader.batch_sampler
        assert list(itertools.islice(batches, 5)) == expected

    def test_nothing_asked_leaves_the_sampler_alone(self) -> None:
        sampler = BatchSampler(SequentialSampler(range(4)), 2, False)
        assert adapt_batch_sampler(sampler) is sampler

    @pytest.mark.parametrize("seeded", [True, False])
    def test_outside_training_order_and_draws_are_those_of_torch(self, seeded: bool) -> None:
        def run(kind: Callable[..., Any]) -> tuple[Any, ...]:
            torch.manual_seed(5)
            generator = torch.Generator().manual_seed(3) if seeded else None
            loader = kind(ids(20), batch_size=3, shuffle=True, generator=generator)
            return take(loader, 99), take(loader, 99), torch.rand(2).tolist()

        assert run(DataLoader) == run(torch.utils.data.DataLoader)


class TestStreamOutsideTraining:
    @pytest.mark.multiprocess
    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_ranks_share_the_batches_whatever_the_workers(self, num_workers: int) -> None:
        loader = DataLoader(Count(11), batch_size=2, num_workers=num_workers)
        shards = [loader.get_data_loader(num_replicas=2, rank=rank) for rank in range(2)]
        assert shards[0].dataset is loader.dataset
        assert [len(shard) for shard in shards] == [3, 3]
        for _ in range(2):
            seen = [[batch.tolist() for batch in shard] for shard in shards]
            assert seen == [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [10]]]

    def test_length_counts_batches(self) -> None:
        assert len(DataLoader(Count(11), batch_size=2)) == 6
        assert len(DataLoader(Count(11), batch_size=2, drop_last=True)) == 5
        assert len(DataLoader(Count(11), batch_size=None)) == 11

    def test_single_items_are_converted_as_in_torch(self) -> None:
        class Arrays(IterableDataset[Any]):
            def __iter__(self) -> Iterator[Any]:
                return iter([np.ones(2), np.zeros(2)])

        ours = list(DataLoader(Arrays(), batch_size=None))
        assert [item.tolist() for item in ours] == [[1, 1], [0, 0]]

    def test_an_empty_stream_is_an_empty_pass(self) -> None:
        assert list(DataLoader(Count(0))) == []


def test_the_message_about_other_loaders_says_what_to_do() -> None:
    def build_training_data_loader() -> None: ...

    message = _dataset_repro_warning(build_training_data_loader, [1])
    assert "build_training_data_loader" in message
    assert "builtins.list" in message
    assert "context.experimental.disable_dataset_reproducibility_checks()" in message


class Pair(NamedTuple):
    x: Any
    y: Any


class Labels(list[Any]):
    pass


NINE = torch.zeros(9, 2)


class TestDataLength:
    @pytest.mark.parametrize(
        ("data", "length"),
        [
            (NINE, 9),
            (np.zeros((4, 2)), 4),
            ({"a": NINE, "b": torch.zeros(3)}, 9),
            ([NINE, torch.zeros(3)], 9),
            (Pair(NINE, 1), 9),
            ({"a": {"b": torch.zeros(7)}}, 7),
            ([{"x": NINE, "y": NINE}], 9),
            (([NINE, NINE], NINE), 9),
            (["a", "b", "c"], 3),
            ({"text": ["a", "b"]}, 2),
            ([torch.tensor(1.0), torch.tensor(2.0)], 2),
            (collections.UserDict({"a": NINE}), 9),
        ],
    )
    def test_it_is_that_of_the_first_array(self, data: Any, length: int) -> None:
        assert data_length(data) == length

    @pytest.mark.parametrize("data", [{}, [], (), {"a": []}])
    def test_empty_containers_have_none(self, data: Any) -> None:
        with pytest.raises(ValueError, match="empty"):
            data_length(data)

    @pytest.mark.parametrize("data", [3, None, {"a": object()}])
    def test_other_types_have_none(self, data: Any) -> None:
        with pytest.raises(TypeError, match="get_batch_length"):
            data_length(data)


class TestToDevice:
    def test_containers_keep_their_types(self) -> None:
        data: dict[str, Any] = {
            "pair": Pair(NINE, [np.ones(2), (NINE,)]),
            "default": collections.defaultdict(list, a=NINE),
            "labels": Labels([NINE]),
            "size": torch.Size([2]),
        }
        moved: Any = to_device(data, "meta", {int})
        assert type(moved["pair"]) is Pair
        assert type(moved["default"]) is collections.defaultdict
        assert moved["default"].default_factory is list
        assert type(moved["labels"]) is Labels
        assert type(moved["pair"].y[1]) is tuple
        tensors = [moved["pair"].x, *moved["pair"].y[:1], moved["default"]["a"], *moved["labels"]]
        assert all(tensor.is_meta for tensor in tensors)
        assert data["pair"].x is NINE

    def test_cpu_tensors_stay_the_same_in_a_new_list(self) -> None:
        batch = [NINE, torch.zeros(1)]
        moved: Any = to_device(batch, torch.device("cpu"))
        assert moved is not batch
        assert moved[0] is NINE
        assert to_device(NINE, "cpu") is NINE

    @pytest.mark.parametrize(
        "array",
        [
            np.arange(4),
            np.arange(4)[::-1],
            np.arange(4, dtype=">i4"),
            np.array([True, False]),
            np.array([1j]),
            np.zeros(3, dtype=np.uint8),
            np.float32(np.ones((2, 2))),
        ],
    )
    def test_arrays_of_numbers_become_tensors(self, array: Any) -> None:
        moved: Any = to_device(array, "cpu")
        assert moved.tolist() == array.tolist()

    def test_read_only_arrays_are_copied_without_a_warning(self) -> None:
        array = np.arange(3)
        array.flags.writeable = False
        assert to_device(array, "cpu").tolist() == [0, 1, 2]  # type: ignore[union-attr]

    def test_anything_with_a_to_method_is_moved(self) -> None:
        class Graph:
            def to(self, device: torch.device) -> str:
                return f"on {device}"

        assert to_device([Graph()], "meta") == ["on meta"]

    def test_each_unmovable_type_warns_once_per_set(self, caplog: pytest.LogCaptureFixture) -> None:
        warned: set[type] = set()
        with caplog.at_level(logging.WARNING, "determined.pytorch"):
            strings = np.array(["a"])
            assert to_device(["a", "b", strings], "cpu", warned) == ["a", "b", strings]
            to_device(["c"], "cpu", warned)
        assert [record.args for record in caplog.records] == [("str",), ("ndarray",)]
        to_device(["c"], "cpu")
        assert len(caplog.records) == 3

    @settings(max_examples=30)
    @given(
        st.recursive(
            st.just(NINE),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.tuples(inner)
                | st.dictionaries(st.text(max_size=2), inner, max_size=2)
            ),
        )
    )
    def test_structure_is_kept(self, data: Any) -> None:
        def shape(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: shape(item) for key, item in value.items()}
            if isinstance(value, (list, tuple)):
                return type(value)(shape(item) for item in value)
            return "tensor"

        assert shape(to_device(data, "meta")) == shape(data)
