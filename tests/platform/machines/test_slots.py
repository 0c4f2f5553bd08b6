"""The slots of a machine; GPUs are listed by a script that stands for the vendor's tool."""

from __future__ import annotations

import socket
import subprocess
import sys
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
from tests.support.tools import install


@pytest.fixture(autouse=True)
def _no_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    for variable in ("CUDA_VISIBLE_DEVICES", "DET_SLOTS"):
        monkeypatch.delenv(variable, raising=False)


def install_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, users: str = "") -> None:
    script = (
        'case "$1" in\n'
        f"--query-compute-apps*) printf '{users}';;\n"
        "*) printf 'GPU-aa\\nGPU-bb\\nGPU-cc\\n';;\n"
        "esac"
    )
    install(tmp_path, "nvidia-smi", script, monkeypatch)


def test_without_gpus_the_cores_are_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_slots() == Machine(tuple(Slot(n) for n in range(count_cores())))
    monkeypatch.setenv("DET_SLOTS", "5")
    assert [slot.id for slot in find_slots().slots] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("value", ["0", "-1", "many", ""])
def test_a_wrong_number_of_slots_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_SLOTS", value)
    with pytest.raises(ValueError, match="DET_SLOTS: expected an integer >= 1, got"):
        find_slots()


def test_gpus_are_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_gpus(tmp_path, monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert find_slots().slots == (Slot(0, "GPU-cc"), Slot(1, "GPU-aa"))


def test_gpus_of_others_are_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    ours = subprocess.Popen(sleep, env={"DET_ALLOCATION_ID": "1.x.1"})
    theirs = subprocess.Popen(sleep, env={})
    try:
        install_gpus(tmp_path, monkeypatch, f"GPU-aa, {ours.pid}\\nGPU-bb, {theirs.pid}\\n")
        machine = find_slots()
    finally:
        for process in (ours, theirs):
            process.kill()
            process.wait()
    assert machine.slots == (Slot(0, "GPU-aa"), Slot(2, "GPU-cc"))
    assert machine.skipped == (
        f"GPU 1 (GPU-bb) is not used: process {theirs.pid} is running on it.",
    )


def test_a_run_sees_the_gpus_of_its_slots_only() -> None:
    gpus = Machine((Slot(0, "GPU-aa"), Slot(1, "GPU-bb")))
    assert device_variables(gpus.slots[1:], gpus) == {"CUDA_VISIBLE_DEVICES": "GPU-bb"}
    assert device_variables(gpus.slots, gpus) == {"CUDA_VISIBLE_DEVICES": "GPU-aa,GPU-bb"}
    assert device_variables((), gpus) == {"CUDA_VISIBLE_DEVICES": ""}
    assert device_variables((), Machine((Slot(0),))) == {}


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
