"""`init(exact=True)`: what is computed twice has the same bits, or an error says what has not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from determined import pytorch
from determined.pytorch import Batch
from determined.pytorch._context.determinism import deterministic
from tests.support.messages import documented
from tests.support.trials import LineTrial, train


@pytest.fixture
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def _gradient_of_indexing() -> bytes:
    """Threads add into the same few elements; in any order, unless told otherwise."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.zeros(50, requires_grad=True)
    indices = torch.randint(0, 50, (400_000,), generator=generator)
    loss = (weight[indices] * torch.randn(400_000, generator=generator)).sum()
    (gradient,) = torch.autograd.grad(loss, weight)
    return gradient.numpy().tobytes()


@pytest.mark.usefixtures("_two_threads")
def test_a_sum_of_threads_has_the_same_bits_each_time() -> None:
    with pytorch.init(exact=True):
        assert torch.are_deterministic_algorithms_enabled()
        assert len({_gradient_of_indexing() for _ in range(20)}) == 1
    assert not torch.are_deterministic_algorithms_enabled()


class _Putting(LineTrial):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        torch.zeros(3).put_(torch.tensor([1]), torch.tensor([5.0]))
        return super().train_batch(batch, epoch_idx, batch_idx)


def test_an_operator_without_a_deterministic_form_is_named_with_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    train(_Putting, max_length=Batch(1))  # nobody asked
    with pytest.raises(RuntimeError, match="put_ does not have a determ") as error:
        train(_Putting, max_length=Batch(1), init={"exact": True})
    note = "\n".join(getattr(error.value, "__notes__", [caplog.text]))  # Python 3.10 has no notes
    assert "put_(torch.tensor([1])" in note  # the line of the trial
    (hint,) = [line for line in note.splitlines() if line.startswith("Hint")]
    documented("`init(exact=True)`, and an operator has no deterministic form", hint)


def test_on_cuda_more_is_set_and_returns_to_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    try:
        with deterministic(torch.device("cuda")) as done:
            assert done == [
                "deterministic algorithms",
                "CUBLAS_WORKSPACE_CONFIG=:4096:8",
                "no cuDNN benchmark",
                "no TF32",
            ]
            assert torch.backends.cudnn.benchmark is False
            assert torch.backends.cudnn.allow_tf32 is False
            assert torch.backends.cuda.matmul.allow_tf32 is False
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.backends.cudnn.benchmark is True
        assert torch.backends.cudnn.allow_tf32 is True
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.backends.cudnn.benchmark = False
        torch.set_float32_matmul_precision("highest")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")
    with (
        pytest.raises(ValueError, match="':0:0', with which cuBLAS is not deterministic"),
        deterministic(torch.device("cuda")),
    ):
        pass
    assert not torch.are_deterministic_algorithms_enabled()


def test_tf32_is_off_also_where_the_newer_settings_turned_it_on() -> None:
    backends: Any = torch.backends
    backends.fp32_precision = "tf32"
    try:
        with deterministic(torch.device("cuda")):
            assert backends.cuda.matmul.fp32_precision == "ieee"
            assert backends.cudnn.conv.fp32_precision == "ieee"
            assert backends.cudnn.rnn.fp32_precision == "ieee"
    finally:
        backends.fp32_precision = "none"
        backends.cudnn.allow_tf32 = True
        torch.set_float32_matmul_precision("highest")
