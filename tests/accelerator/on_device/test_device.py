"""The simulated accelerator itself: what it lets pass, and what it does not."""

from __future__ import annotations

import copy
import io
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

HERE = "simulated:0"


def _network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)
    )


def _train(network: nn.Module, batches: list[Any], device: str) -> dict[str, torch.Tensor]:
    optimizer = torch.optim.AdamW(network.to(device).parameters(), lr=0.1)
    for images, labels in batches:
        loss = nn.functional.cross_entropy(network(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return {name: value.cpu() for name, value in network.state_dict().items()}


def test_it_computes_what_the_cpu_computes() -> None:
    batches = [(torch.randn(4, 1, 8, 8), torch.randint(3, (4,))) for _ in range(3)]
    network = _network()
    there = _train(copy.deepcopy(network), batches, HERE)
    for name, value in _train(network, batches, "cpu").items():
        assert torch.equal(value, there[name]), name


def test_saved_tensors_come_back_to_it_or_to_the_cpu() -> None:
    file = io.BytesIO()
    torch.save({"weight": torch.arange(6.0, device="simulated:1")[2:]}, file)
    for where, expected in ((None, "simulated:1"), ("cpu", "cpu"), (HERE, HERE)):
        file.seek(0)
        weight = torch.load(file, map_location=where)["weight"]
        assert str(weight.device) == expected
        assert weight.tolist() == [2, 3, 4, 5]


def test_a_copy_to_the_device_reads_its_source_late() -> None:
    source = torch.ones(4).pin_memory()
    assert source.is_pinned()
    early, late = (source.to(HERE, non_blocking=True) for _ in range(2))
    needed = early + 0  # now
    source.fill_(7)
    assert needed.tolist() == [1] * 4
    assert late.tolist() == [7] * 4


def test_a_copy_to_the_host_is_garbage_until_waited_for(device: ModuleType) -> None:
    source = torch.ones(4, device=HERE)
    waits: list[Callable[[], Any]] = [
        torch.accelerator.synchronize,
        torch.accelerator.current_stream().synchronize,
        lambda: source.sum().item(),  # waits for its stream
        lambda: torch.accelerator.current_stream().record_event().synchronize(),
    ]
    for wait in waits:
        target = torch.zeros(4).pin_memory()
        target.copy_(source, non_blocking=True)
        source.add_(1)  # comes after the copy
        assert target.isnan().all()
        assert not torch.accelerator.current_stream().query()
        wait()
        assert torch.equal(target, (source - 1).cpu())
        assert device.num_pending_copies() == 0


def test_streams_must_be_ordered_by_events(device: ModuleType) -> None:
    side = torch.Stream(device=HERE)
    weight = torch.ones(4, device=HERE)
    with side, pytest.raises(RuntimeError, match="wrote, and no event orders the two"):
        weight.add(1)
    side.wait_event(torch.accelerator.current_stream().record_event())
    with side:
        target = torch.zeros(4).pin_memory().copy_(weight, non_blocking=True)
        copied = side.record_event()
    with pytest.raises(RuntimeError, match="reads, and no event orders the two"):
        weight.add_(1)
    assert not copied.query()
    torch.accelerator.current_stream().wait_event(copied)
    weight.add_(1)
    assert target.isnan().all()
    copied.synchronize()
    assert target.tolist() == [1] * 4
    assert device.counters()["synchronizations"] == 1


def test_memory_freed_while_another_stream_uses_it_is_noted(device: ModuleType) -> None:
    side = torch.Stream(device=HERE)
    for is_recorded in (True, False):
        batch = torch.ones(4, device=HERE)
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            batch.sum()
        if is_recorded:
            batch.record_stream(side)
        del batch
        assert len(device.take_violations()) == (not is_recorded)


def test_backward_follows_the_streams_of_forward() -> None:
    side = torch.Stream(device=HERE)
    weight = torch.ones(3, device=HERE, requires_grad=True)
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        loss = (weight * 2).sum()
    torch.accelerator.current_stream().wait_stream(side)
    torch.autograd.backward(loss)
    assert weight.grad is not None
    assert weight.grad.tolist() == [2] * 3


@pytest.mark.parametrize("other", ["simulated:1", "cpu"])
def test_tensors_of_two_devices_do_not_mix(other: str) -> None:
    here, there = torch.ones(2, device=HERE), torch.ones(2, device=other)
    for operation in (torch.add, torch.dot, torch.maximum):
        with pytest.raises(RuntimeError, match=f"two devices, {HERE} and {other}"):
            operation(here, there)
    with pytest.raises(RuntimeError, match="two devices"):
        nn.Linear(2, 2).to(other)(here)
    assert (here + there.to(HERE)).tolist() == [2, 2]
    assert (here * torch.tensor(3.0)).tolist() == [3, 3]  # a number may stay on the host


def test_waits_and_copies_are_counted(device: ModuleType) -> None:
    batch = torch.ones(4).to(HERE)
    pinned = torch.ones(4).pin_memory().to(HERE, non_blocking=True)
    total = (batch * pinned).sum()
    assert device.counters()["synchronizations"] == 1
    with device.watched_waits() as waits:
        assert total.item() == 4
        assert torch.nonzero(batch).shape == (4, 1)
        batch.cpu()
    assert [why for why, *_ in waits] == ["item", "result", "copy_to_host"]
    assert "test_waits_and_copies_are_counted" in waits[0][1]
    counters = device.counters()
    assert counters["synchronizations"] == 4
    assert counters["copies.to_device"] == 2
    assert counters["copies.to_device.non_blocking"] == 1
    assert counters["copies.to_host"] == 2


def test_memory_is_counted_and_limited(device: ModuleType) -> None:
    before, known = device.memory_allocated(), device.live_serials()
    kept = torch.ones(1000, device=HERE)
    assert device.memory_allocated() == before + 4000
    assert torch.accelerator.memory_allocated() == before + 4000
    assert [line.split(":")[0] for line in device.left_behind(known)] == ["4000 bytes on device 0"]
    with (
        device.limited_memory(before + 5000),
        pytest.raises(torch.OutOfMemoryError, match="simulated out of memory. Tried to allocate"),
    ):
        torch.ones(1000, device=HERE)
    device.fail_allocation(after=1)
    torch.ones(1, device=HERE)
    with pytest.raises(torch.OutOfMemoryError):
        torch.ones(1, device=HERE)
    del kept
    assert device.left_behind(known) == []


def test_each_device_has_random_numbers_of_its_own() -> None:
    torch.manual_seed(3)
    host_state = torch.get_rng_state()
    first = [torch.randn(4, device=f"simulated:{index}").tolist() for index in (0, 1)]
    state = torch.simulated.get_rng_state(0)  # type: ignore[attr-defined]
    dropped = nn.functional.dropout(torch.ones(64, device=HERE)).tolist()
    assert torch.equal(torch.get_rng_state(), host_state)
    torch.simulated.set_rng_state(state, 0)  # type: ignore[attr-defined]
    assert nn.functional.dropout(torch.ones(64, device=HERE)).tolist() == dropped
    torch.manual_seed(3)
    assert [torch.randn(4, device=f"simulated:{index}").tolist() for index in (0, 1)] == first
    own = torch.Generator(device=HERE).manual_seed(5)
    assert torch.randn(3, device=HERE, generator=own).shape == (3,)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_and_loss_scaling(dtype: torch.dtype, device: ModuleType) -> None:
    layer = nn.Linear(4, 2).to(HERE)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("simulated")
    with torch.autocast("simulated", dtype=dtype):
        output = layer(torch.ones(3, 4, device=HERE))
        assert output.dtype == dtype
        loss = nn.functional.mse_loss(output, torch.zeros_like(output))
        assert loss.dtype == torch.float32
    torch.autograd.backward(scaler.scale(loss))
    device.reset_counters()
    scaler.step(optimizer)
    scaler.update()
    assert device.counters()["synchronizations.item"] == 1  # whether a gradient overflowed


def test_views_share_memory_and_sizes_follow() -> None:
    base = torch.zeros(3, 4, device=HERE)
    base[1:].t()[0] = 5
    base.view(-1)[0] = 1
    assert base[:, 0].tolist() == [1, 5, 5]
    out = torch.empty(0, device=HERE)
    torch.cat([base, base], out=out)
    assert out.shape == (6, 4)
    base.untyped_storage().resize_(0)
    assert base.untyped_storage().nbytes() == 0


def test_a_forked_child_cannot_use_it(device: ModuleType) -> None:
    weight = torch.ones(1, device=HERE)
    child = os.fork()
    if child == 0:
        try:
            torch.manual_seed(0)  # leaves the device alone
            assert not torch.accelerator.is_available()
            weight.add_(1)
        except RuntimeError as error:
            os._exit(0 if "in forked subprocess" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
