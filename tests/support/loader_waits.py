"""Loader workers that know which batch the main process waits for, so that they can die of it."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

DEADLINE_SECONDS = 60.0
_waited_for = multiprocessing.get_context("fork").Value("i", -1)


@pytest.fixture
def loader_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let `until_waited_for` work in the workers of loaders that this test makes."""
    get: Any = _MultiProcessingDataLoaderIter._try_get_data

    def get_and_tell(loader: Any, *args: Any, **kwargs: Any) -> Any:
        _waited_for.value = loader._rcvd_idx
        return get(loader, *args, **kwargs)

    monkeypatch.setattr(_MultiProcessingDataLoaderIter, "_try_get_data", get_and_tell)
    _waited_for.value = -1
    yield
    _waited_for.value = -1


def until_waited_for(batch: int) -> None:
    """Return when the batches before have been used, and the main process waits for this one.

    It hears of the death of a worker in whatever it does; so the error is about this batch.
    """
    deadline = time.monotonic() + DEADLINE_SECONDS
    while _waited_for.value < batch:
        assert time.monotonic() < deadline, f"nobody waits for batch {batch}"
        time.sleep(0.01)
