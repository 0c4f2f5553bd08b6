"""Code that torch.compile generated: said on resume where it may compute other bits."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from determined import pytorch
from determined.pytorch import Batch
from determined.pytorch._checkpoint.resuming.compiled import (
    _adds_in_any_order,
    compiled_code,
    compiled_departures,
)
from tests.support.messages import documented
from tests.support.trials import LineTrial, the_checkpoint, train


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(8, 2)

    def forward(self, x: torch.Tensor) -> Any:
        many = x.long().clamp(0, 7).expand(-1, 4096)  # worth a loop that threads share
        return self.table(many).sum((1, 2)).unsqueeze(1) / 4096


class _Compiled(LineTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.log, self.callbacks, self.context = [], {}, context
        self.model = context.wrap_model(_Net(), compile=True)
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, in its compiler
@pytest.mark.usefixtures("threads")
def test_additions_in_any_order_are_said(caplog: pytest.LogCaptureFixture) -> None:
    torch.compiler.reset()
    train(_Compiled, max_length=Batch(2))
    assert compiled_code()["atomic"]
    train(_Compiled, max_length=Batch(3), latest_checkpoint=the_checkpoint(2))
    (said,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    documented("a compiled model with an embedding continues, with several threads", said)
    torch.use_deterministic_algorithms(True)
    try:
        assert not compiled_code()["atomic"]
    finally:
        torch.use_deterministic_algorithms(False)
    torch.set_num_threads(1)
    assert compiled_code() == {}


def test_additions_of_one_thread_have_an_order(tmp_path: Path) -> None:
    files = {}
    for name, kernels in {
        "serial": "async_compile.cpp(atomic_add_vec<float>) async_compile.cpp(#pragma omp for)",
        "parallel": "async_compile.cpp(#pragma omp for atomic_add_vec<float>)",
    }.items():
        files[name] = tmp_path / name
        files[name].write_text(kernels)
    assert not _adds_in_any_order(str(files["serial"]))
    assert _adds_in_any_order(str(files["parallel"]))


def test_only_what_may_differ_is_said() -> None:
    assert compiled_departures({}) == []
    assert compiled_departures({"atomic": False, "shapes": False}) == []
    assert len(compiled_departures({"atomic": True, "shapes": True})) == 2
    assert compiled_departures("damaged") == []
