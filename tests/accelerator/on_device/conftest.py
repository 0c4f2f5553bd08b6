"""These tests are for processes that have the device: elsewhere they are not collected."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest
import torch

collect_ignore_glob = [] if hasattr(torch, "simulated") else ["test_*.py"]


@pytest.fixture
def device() -> Iterator[ModuleType]:
    """`torch.simulated`, with fresh counters; fails if memory was freed while in use."""
    module: ModuleType = torch.simulated  # type: ignore[attr-defined]
    torch.accelerator.synchronize()
    module.take_violations()
    module.reset_counters()
    yield module
    module.fail_allocation(-1)
    module.set_device(0)
    torch.accelerator.synchronize()
    assert module.take_violations() == []
