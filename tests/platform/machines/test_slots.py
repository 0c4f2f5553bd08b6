"""The slots of a machine, with GPUs of a driver that the tests make."""

from __future__ import annotations

import contextlib
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined.platform.machines.slots import (
    Machine,
    Slot,
    count_cores,
    device_variables,
    find_slots,
    free_ports,
    port_variables,
    threads_per_process,
)
from tests.support.fake_gpus import FakeGpu, Nvidia, install_amd, install_nvidia
from tests.support.waiting import eventually

_THREE = ("GPU-aa", "GPU-bb", "GPU-cc")
_SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture(autouse=True)
def _no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("CUDA_VISIBLE_DEVICES", "DET_SLOTS"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def nvidia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nvidia:
    return install_nvidia(tmp_path, monkeypatch)


@contextlib.contextmanager
def process(command: list[str], **variables: str) -> Iterator[int]:
    running = subprocess.Popen(command, env=variables)
    try:
        yield running.pid
    finally:
        running.kill()
        running.wait()


def test_without_gpus_the_cores_are_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_slots() == Machine(tuple(Slot(n) for n in range(count_cores())))
    monkeypatch.setenv("DET_SLOTS", "5")
    assert [slot.id for slot in find_slots().slots] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("value", ["0", "-1", "many", ""])
def test_a_wrong_number_of_slots_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_SLOTS", value)
    with pytest.raises(ValueError, match="DET_SLOTS: expected an integer >= 1, got"):
        find_slots()


def test_gpus_are_slots(nvidia: Nvidia, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia.has(*map(FakeGpu, _THREE))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    monkeypatch.setenv("DET_SLOTS", "7")  # it counts CPU slots
    assert find_slots() == Machine((Slot(0, "GPU-cc"), Slot(1, "GPU-aa")), kind="cuda")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert find_slots() == Machine(tuple(map(Slot, range(7))))


def test_gpus_of_others_are_left_out_and_named(nvidia: Nvidia) -> None:
    with process(_SLEEP, DET_ALLOCATION_ID="1.x.1") as ours, process(_SLEEP) as theirs:
        pids = {"MIG-1": (theirs,), "MIG-2": (ours,)}
        nvidia.has(
            FakeGpu("GPU-aa", pids=(ours,)),
            FakeGpu("GPU-bb", pids=(ours, theirs)),
            FakeGpu("GPU-cc"),
            FakeGpu("GPU-dd", mig=("MIG-1", "MIG-2"), pids=pids),
        )
        machine = find_slots()
    assert machine.slots == (Slot(0, "GPU-aa"), Slot(2, "GPU-cc"), Slot(4, "MIG-2"))
    assert machine.skipped == (
        f"GPU 1 (GPU-bb) is not used: process {theirs} is running on it.",
        f"GPU 3 (MIG-1) is not used: process {theirs} is running on it.",
    )
    assert machine.has_gpus


def test_a_machine_whose_gpus_are_all_busy_has_no_slots(nvidia: Nvidia) -> None:
    with process(_SLEEP) as theirs:
        nvidia.has(FakeGpu("GPU-aa", pids=(theirs,)))
        machine = find_slots()
    assert machine.slots == ()
    assert machine.has_gpus
    assert device_variables((), machine) == {"CUDA_VISIBLE_DEVICES": ""}


def test_the_server_of_cudas_mps_is_nobody_but_its_clients_count(
    nvidia: Nvidia, tmp_path: Path
) -> None:
    server = tmp_path / "nvidia-cuda-mps-server"
    shutil.copy("/bin/sleep", server)
    with process([str(server), "600"]) as mps, process(_SLEEP) as client:
        eventually(lambda: Path(f"/proc/{mps}/comm").read_text() == "nvidia-cuda-mps\n")
        nvidia.has(FakeGpu("GPU-aa", pids=(mps,)), FakeGpu("GPU-bb", pids=(mps,), mps=(client,)))
        machine = find_slots()
    assert machine.slots == (Slot(0, "GPU-aa"),)
    assert machine.skipped == (f"GPU 1 (GPU-bb) is not used: process {client} is running on it.",)


def test_a_run_sees_the_gpus_of_its_slots_only() -> None:
    gpus = Machine((Slot(0, "GPU-aa"), Slot(1, "GPU-bb")), kind="cuda")
    assert device_variables(gpus.slots[1:], gpus) == {"CUDA_VISIBLE_DEVICES": "GPU-bb"}
    assert device_variables(gpus.slots, gpus) == {"CUDA_VISIBLE_DEVICES": "GPU-aa,GPU-bb"}
    assert device_variables((), gpus) == {"CUDA_VISIBLE_DEVICES": ""}
    assert device_variables((), Machine((Slot(0),))) == {}


def test_a_run_on_amd_gets_hips_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with process(_SLEEP) as theirs:
        install_amd(tmp_path, monkeypatch, [0xA, 0xB, 0xC], {0: theirs})
        monkeypatch.setenv("HIP_VISIBLE_DEVICES", "2,1,0")
        monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "1,2,0")
        code = (
            "from determined.platform.machines.slots import device_variables, find_slots\n"
            "m = find_slots()\n"
            "print(m.skipped[0])\n"
            "print(m.kind, [s.gpu[-1] for s in m.slots])\n"
            "print(device_variables(m.slots, m))\n"
            "print(device_variables([], m))\n"
        )
        command = [sys.executable, "-c", code]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == [
        f"GPU 0 (GPU-000000000000000a) is not used: process {theirs} is running on it.",
        "rocm ['c', 'b']",
        "{'ROCR_VISIBLE_DEVICES': '1,2,0', 'HIP_VISIBLE_DEVICES': '1,0'}",
        "{'ROCR_VISIBLE_DEVICES': '1,2,0', 'HIP_VISIBLE_DEVICES': '-1'}",
    ]


def test_the_gpu_of_an_apple_computer_is_one_slot_or_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert find_slots() == Machine((Slot(0, "mps"),), kind="mps")
    assert device_variables(find_slots().slots, find_slots()) == {}
    monkeypatch.setenv("DET_SLOTS", "2")
    assert find_slots().slots == (Slot(0, "mps"), Slot(1, "mps"))


def test_ports_are_free_and_not_promised_twice() -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        first = free_ports(3)
        second = free_ports(3, taken=first)
        assert len({*first, *second}) == 6
        assert busy.getsockname()[1] not in (*first, *second)
    assert port_variables([1, 2, 3]) == {
        "C10D_PORT": "1",
        "INTER_TRAIN_PROCESS_COMM_PORT_1": "2",
        "INTER_TRAIN_PROCESS_COMM_PORT_2": "3",
    }


def test_a_port_that_is_listened_on_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        monkeypatch.setattr("determined.platform.machines.slots._PORTS", range(port, port + 1))
        with pytest.raises(OSError, match="fewer than 1 free ports"):
            free_ports(1)


@pytest.mark.parametrize(
    ("cores", "slots", "trials", "threads"),
    [(8, 2, 1, 4), (8, 2, 2, 2), (2, 4, 1, 1), (4, 0, 1, 4)],
)
def test_threads_share_the_cores(cores: int, slots: int, trials: int, threads: int) -> None:
    assert threads_per_process(cores, slots, trials) == threads
