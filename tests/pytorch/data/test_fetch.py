"""Fetching batches, many records with one call where a dataset can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    Dataset,
    Subset,
    TensorDataset,
    default_collate,
    random_split,
)

from determined.pytorch._data.fetch import BatchFetcher, TensorBatches


def ids(length: int) -> TensorDataset:
    return TensorDataset(torch.arange(length))


class Doubled(TensorDataset):
    def __getitem__(self, index: Any) -> Any:
        return tuple(2 * tensor[index] for tensor in self.tensors)


class Squares(Dataset[Any]):
    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def __getitems__(self, indices: list[int]) -> list[int]:
        self.calls.append(indices)
        return [i * i for i in indices]


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
DTYPES += [torch.complex64, torch.uint16]


def tensor_datasets() -> dict[str, Any]:
    base = torch.arange(48).reshape(12, 4)
    plain = TensorDataset(base.float(), torch.arange(12))
    subset = Subset(plain, [11, 3, 3, 7, 0, 5])
    return {
        "plain": plain,
        "one": TensorDataset(base),
        "subset": subset,
        "nested subset": Subset(Subset(subset, range(1, 6)), torch.tensor([4, 0, 2])),  # type: ignore[arg-type]
        "subset by array": Subset(plain, np.array([5, 1, 2])),  # type: ignore[arg-type]
        "strided subset": Subset(plain, range(0, 12, 3)),
        "split": random_split(plain, [8, 4])[0],
        "subclass": Doubled(base.float()),
        "transposed": TensorDataset(base.t().contiguous().t()),
        "channels last": TensorDataset(
            torch.rand(6, 3, 4, 4).contiguous(memory_format=torch.channels_last)
        ),
        "gradient": TensorDataset(torch.rand(4, 2, requires_grad=True)),
        **{str(dtype): TensorDataset(base.to(dtype)) for dtype in DTYPES},
    }


class TestVectorisedFetch:
    @pytest.mark.parametrize("name", tensor_datasets())
    @pytest.mark.parametrize("form", [list, torch.tensor])
    def test_batches_equal_those_of_torch_tensor_for_tensor(self, name: str, form: Any) -> None:
        dataset = tensor_datasets()[name]
        for indices in ([0], [2, 0, 1], [1, 1], [-1, 0], range(len(dataset)), range(1, 3)):
            ours = BatchFetcher(dataset, default_collate)(
                indices if isinstance(indices, range) else form(indices)
            )
            theirs = default_collate([dataset[i] for i in indices])
            assert type(ours) is type(theirs)
            assert len(ours) == len(theirs)
            for our, their in zip(ours, theirs, strict=True):
                assert torch.equal(our, their)
                assert (our.dtype, our.stride()) == (their.dtype, their.stride())
                assert our.requires_grad == their.requires_grad

    def test_a_batch_never_shares_memory_with_the_dataset(self) -> None:
        dataset = ids(6)
        fetch = BatchFetcher(dataset, default_collate)
        for indices in (range(3), [0, 1, 2], torch.tensor([0, 1, 2])):
            fetch(indices)[0].zero_()
        assert dataset.tensors[0].tolist() == list(range(6))

    def test_only_the_exact_types_with_the_default_collate_are_read_whole(self) -> None:
        assert TensorBatches.of(ids(3), default_collate)
        assert TensorBatches.of(Subset(ids(3), [0]), default_collate)
        assert TensorBatches.of(ids(3), list) is None
        assert TensorBatches.of(Doubled(torch.arange(3)), default_collate) is None

    def test_tensors_replaced_between_batches_are_seen(self) -> None:
        dataset = ids(4)
        fetch = BatchFetcher(dataset, default_collate)
        fetch([0])
        dataset.tensors = (torch.arange(10, 14),)
        assert fetch([0, 3])[0].tolist() == [10, 13]

    def test_datasets_that_fetch_many_get_a_list(self) -> None:
        dataset = Squares()
        fetch = BatchFetcher(dataset, default_collate)
        assert fetch(torch.tensor([1, 3])).tolist() == [1, 9]
        assert fetch(range(2)).tolist() == [0, 1]
        assert dataset.calls == [[1, 3], [0, 1]]

    def test_an_index_out_of_range_is_named(self) -> None:
        with pytest.raises(IndexError) as raised:
            BatchFetcher(ids(4), default_collate)([0, 7, 1])
        notes = getattr(raised.value, "__notes__", ["sample 7 of TensorDataset (4 samples)"])
        assert "sample 7 of TensorDataset (4 samples)" in notes[0]
