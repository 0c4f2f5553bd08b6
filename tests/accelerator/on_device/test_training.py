"""The training library on the simulated accelerator: waits, copies, exactness, memory."""

from __future__ import annotations

import collections
import logging
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch
from determined.pytorch import Batch
from determined.pytorch._checkpoint.state.copying import copy_state
from determined.pytorch._checkpoint.state.optimizers import load_optimizer
from determined.pytorch._checkpoint.state.snapshot import Snapshot
from determined.pytorch._data.batches import to_device
from determined.pytorch._data.seed import set_rng_state
from determined.pytorch.experimental import (
    TorchBatchProcessor,
    TorchBatchProcessorContext,
    torch_batch_process,
)
from tests.accelerator.on_device.trials import Classifier
from tests.support.trials import checkpoints, train


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("DET_PROGRESS", "off")
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))


def weights(trial: Classifier) -> dict[str, torch.Tensor]:
    return {name: value.cpu().clone() for name, value in trial.model.state_dict().items()}


def assert_equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert torch.equal(value, right[name]), name


@pytest.mark.parametrize("clips", [False, True])
def test_the_loop_waits_once_per_report_and_never_for_a_batch(
    clips: bool, device: ModuleType
) -> None:
    counted: list[collections.Counter[str]] = []

    class Counted(Classifier):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            counted.append(device.counters())
            return super().train_batch(batch, epoch_idx, batch_idx)

    Counted.clips = clips
    train(
        Counted,
        max_length=Batch(24),
        reporting_period=Batch(6),
        validation_period=Batch(100),
        checkpoint_policy="none",
    )
    waits = [counters["synchronizations"] for counters in counted]
    per_batch = [after - before for before, after in zip(waits, waits[1:], strict=False)]
    # Of the first update it is asked, once, whether there was anything to learn.
    assert per_batch == [int(batch == 0 or (batch + 1) % 6 == 0) for batch in range(23)]
    host_copies = counted[-1]["copies.to_host"] - counted[1]["copies.to_host"]
    assert host_copies == 3  # of three reports
    device_copies = counted[-1]["copies.to_device"] - counted[0]["copies.to_device"]
    assert device_copies == 2 * 23  # images and labels
    assert counted[-1]["copies.to_device.non_blocking"] >= 2 * 23


def test_a_background_save_waits_in_its_own_thread(device: ModuleType, tmp_path: Path) -> None:
    class Watched(Classifier):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            return super().train_batch(batch, epoch_idx, batch_idx)["loss"]

    apart = {"seed": 1, "checkpoint_storage": str(tmp_path / "apart")}
    whole = train(Watched, apart, max_length=Batch(6), checkpoint_policy="none")
    with device.watched_waits() as waits:
        train(
            Watched,
            {"seed": 1},
            max_length=Batch(12),
            checkpoint_period=Batch(6),
            reporting_period=Batch(12),
            checkpoint_policy="none",
        )
    assert ("event", "det-save_0") in [(why, thread) for why, _, thread in waits]
    savers = [stack for _, stack, thread in waits if thread == "MainThread" and "saver.py" in stack]
    assert savers == []
    # What was saved at batch 6 is what was there, though training went on meanwhile.
    (path,) = checkpoints()[6]
    saved = pytorch.load_trial_from_checkpoint_path(str(path), trial_class=Watched)
    assert isinstance(saved, Watched)
    assert_equal(weights(saved), weights(whole))


def test_a_snapshot_is_garbage_until_it_is_waited_for(device: ModuleType) -> None:
    state = {
        "weight": torch.ones(4, device="simulated:1"),
        "bias": torch.ones(2, device="simulated:0"),
    }
    snapshot = Snapshot()
    for value in (1, 2):
        copied = snapshot.begin_copy(state)
        for tensor in state.values():
            tensor.add_(1)  # training goes on
        assert all(tensor.is_pinned() and tensor.isnan().all() for tensor in copied.values())
        snapshot.wait()
        assert all((tensor == value).all() for tensor in copied.values())
    assert device.counters()["synchronizations.device"] == 0


@pytest.mark.parametrize("where", ["simulated:0", "simulated:1"])
@pytest.mark.parametrize("dtype", [None, torch.float16, torch.bfloat16])
def test_resume_is_exact_on_any_device_and_in_any_precision(
    where: str, dtype: torch.dtype | None, tmp_path: Path
) -> None:
    class Trial(Classifier):
        pass

    Trial.dtype = dtype
    # An unfinished window of accumulation is cut, too.
    init: dict[str, Any] = {"device": where, "seed": 1, "aggregation_frequency": 2}
    whole = train(Trial, init, max_length=Batch(9))
    storage = {**init, "checkpoint_storage": str(tmp_path / "cut")}
    train(Trial, storage, max_length=Batch(5))
    torch.randn(7, device=where)  # whatever else happens in between
    continued = train(Trial, storage, max_length=Batch(9), latest_checkpoint="latest")
    assert str(next(continued.model.parameters()).device) == where
    assert_equal(weights(whole), weights(continued))
    assert continued.computed_in == {dtype or torch.float32}


@pytest.mark.parametrize("resumed_on", ["simulated:0", "simulated:1"])
def test_resume_is_exact_if_a_trial_draws_on_several_devices(
    resumed_on: str, tmp_path: Path
) -> None:
    class Split(Classifier):
        """Its noise comes from the device that is not its own."""

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            other = f"simulated:{1 - torch.device(self.context.device).index}"
            images, labels = batch
            images = images + torch.rand(4, device=other).to(images.device)
            return super().train_batch((images, labels), epoch_idx, batch_idx)

    whole = train(Split, {"device": "simulated:0", "seed": 1}, max_length=Batch(9))
    storage: dict[str, Any] = {"seed": 1, "checkpoint_storage": str(tmp_path / "cut")}
    train(Split, {**storage, "device": "simulated:0"}, max_length=Batch(5))
    for index in (0, 1):
        torch.randn(7, device=f"simulated:{index}")  # whatever else happens in between
    resumed = {**storage, "device": resumed_on}
    continued = train(Split, resumed, max_length=Batch(9), latest_checkpoint="latest")
    assert_equal(weights(whole), weights(continued))


def test_a_validation_leaves_the_random_numbers_of_all_devices_alone() -> None:
    drawn = []

    class Drawing(Classifier):
        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            drawn.append(torch.rand((), device="simulated:1").item())
            return {"drawn": drawn[-1]}

    with pytorch.init(seed=1, device="simulated:0") as context:
        trainer = pytorch.Trainer(Drawing(context), context)
        state = torch.simulated.get_rng_state(1)  # type: ignore[attr-defined]
        trainer.validate()
        assert torch.equal(torch.simulated.get_rng_state(1), state)  # type: ignore[attr-defined]
        torch.rand(3, device="simulated:1")
        trainer.validate()
    half = len(drawn) // 2
    assert drawn[:half] == drawn[half:]


def test_what_is_trained_there_can_be_loaded_on_the_cpu_and_back(tmp_path: Path) -> None:
    trained = train(Classifier, max_length=Batch(4))
    (path,) = checkpoints()[4]
    loaded = {
        where: pytorch.load_trial_from_checkpoint_path(
            str(path), trial_class=Classifier, torch_load_kwargs={"map_location": where}
        )
        for where in ("cpu", "simulated:0")
    }
    for trial in loaded.values():
        assert isinstance(trial, Classifier)
        assert_equal(weights(trained), weights(trial))
    on_cpu = train(Classifier, {"device": "cpu"}, max_length=Batch(6), latest_checkpoint=str(path))
    assert next(on_cpu.model.parameters()).is_cpu
    (back,) = checkpoints()[6]
    again = train(Classifier, max_length=Batch(8), latest_checkpoint=str(back))
    assert str(next(again.model.parameters()).device) == "simulated:0"
    momentum = next(iter(again.optimizer.state.values()))["exp_avg"]
    assert str(momentum.device) == "simulated:0"


def test_a_validation_draws_the_same_whenever_it_is_asked_for() -> None:
    class Drawing(Classifier):
        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            return {"drawn": torch.rand((), device=self.context.device)}

    with pytorch.init(seed=1) as context:
        trainer = pytorch.Trainer(Drawing(context), context)
        drawn = []
        for _ in range(2):
            drawn.append(trainer.validate()["drawn"])
            torch.rand(3, device=context.device)
        state = torch.simulated.get_rng_state()  # type: ignore[attr-defined]
        trainer.validate()
        assert torch.equal(torch.simulated.get_rng_state(), state)  # type: ignore[attr-defined]
    assert drawn[0] == drawn[1]


def test_every_structure_is_moved_and_pageable_memory_read_at_once() -> None:
    class Pair(NamedTuple):
        left: np.ndarray
        right: torch.Tensor

    source = torch.ones(3)
    # A tensor last: what comes after a copy that may be late can hurry it up.
    batch = {"a": [source, (source.numpy(), "text")], "b": Pair(source.numpy(), source)}
    warned: set[type] = {str}
    moved: Any = to_device(batch, "simulated:1", warned)
    source.fill_(7)  # the next batch
    tensors = [moved["a"][0], moved["a"][1][0], moved["b"].left, moved["b"].right]
    assert [str(tensor.device) for tensor in tensors] == ["simulated:1"] * 4
    assert [tensor.tolist() for tensor in tensors] == [[1.0] * 3] * 4
    assert isinstance(moved["b"], Pair)


def test_nothing_is_left_on_the_device_after_training(device: ModuleType) -> None:
    before = device.live_serials()
    train(Classifier, max_length=Batch(6), checkpoint_period=Batch(3), validation_period=Batch(3))
    assert device.left_behind(before) == []


def test_running_out_of_memory_comes_with_a_hint(device: ModuleType) -> None:
    class Greedy(Classifier):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 2:
                device.fail_allocation(after=3)
            return super().train_batch(batch, epoch_idx, batch_idx)

    with pytest.raises(torch.OutOfMemoryError, match="simulated out of memory") as caught:
        train(Greedy, max_length=Batch(6))
    assert "batch" in "".join(getattr(caught.value, "__notes__", []))


def test_a_device_that_does_not_exist_is_refused() -> None:
    with (
        pytest.raises(ValueError, match="no device simulated:2: this process sees 2 of them"),
        pytorch.init(device="simulated:2"),
    ):
        pass


def test_a_random_state_of_another_kind_of_device_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        state = {"cpu_rng_state": torch.get_rng_state(), "gpu_rng_state": torch.zeros(16).byte()}
        set_rng_state(state)
    assert "another kind of accelerator's random state" in caplog.text


def test_batches_are_processed_on_the_device(tmp_path: Path) -> None:
    found: list[tuple[torch.device, float]] = []

    class Processor(TorchBatchProcessor):
        def __init__(self, context: TorchBatchProcessorContext) -> None:
            self.context = context
            self.model = context.prepare_model_for_inference(nn.Linear(1, 1))

        def process_batch(self, batch: Any, batch_idx: int) -> None:
            (x,) = cast(list[torch.Tensor], self.context.to_device(batch))
            found.append((x.device, self.model(x).sum().item()))

    torch_batch_process(Processor, TensorDataset(torch.ones(8, 1)), batch_size=4)
    assert [str(where) for where, _ in found] == ["simulated:0"] * 2


class _InLists(torch.optim.Optimizer):
    """Keeps its momentum in a list, which torch does not load as it is."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.05})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure is used
        for parameter in self.param_groups[0]["params"]:
            momenta = self.state[parameter].setdefault("momenta", [torch.zeros_like(parameter)])
            momenta[0].mul_(0.9).add_(parameter.grad)
            parameter.sub_(0.05 * momenta[0])


def test_state_in_containers_comes_back_to_the_device() -> None:
    one, two = (nn.Linear(2, 1).to("simulated") for _ in range(2))
    first, second = _InLists(one.parameters()), _InLists(two.parameters())
    one(torch.ones(1, 2, device="simulated")).sum().backward()
    first.step()
    saved = copy_state(first.state_dict(), lambda value, _: _on_host(value))
    load_optimizer(second, saved, {})
    momenta = second.state[two.weight]["momenta"]
    assert momenta[0].device == two.weight.device
    assert torch.equal(momenta[0].cpu(), first.state[one.weight]["momenta"][0].cpu())


def _on_host(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value
