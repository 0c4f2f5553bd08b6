"""Processes that hang in native code are ended."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from determined.core._stop_signals import StopSignals
from determined.core.hangs.forced_exit import _is_launcher

pytestmark = pytest.mark.multiprocess

DEADLINE_SECONDS = 60
ROOT = Path(__file__).parents[3]
HANGING = """
import os, sys
from determined import core
from tests.support.stuck import hang_in_native_code
distributed = core.DistributedContext.from_torch_distributed() if "RANK" in os.environ else None
with core.init(distributed=distributed, checkpoint_storage=sys.argv[1]) as context:
    context.preempt.should_preempt()
    os.write(1, b"here\\n")  # in one piece, beside those of other ranks
    hang_in_native_code()
"""
TRAINING = """
import os, sys, time
from determined import core
distributed = core.DistributedContext.from_torch_distributed()
with core.init(distributed=distributed, checkpoint_storage=sys.argv[1]) as context:
    while not context.preempt.should_preempt():
        time.sleep(0.05)
        if "said" not in globals():
            said = os.write(1, b"here\\n")
    open(f"{sys.argv[1]}-{distributed.rank}", "w").close()
"""


def start(tmp_path: Path, script: str, *launcher: str) -> subprocess.Popen[str]:
    path = tmp_path / "script.py"
    path.write_text(script)
    return subprocess.Popen(
        [sys.executable, *launcher, str(path), str(tmp_path / "storage")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def await_lines(process: subprocess.Popen[str], count: int) -> None:
    """Wait for the word of each rank; two may come as one line."""
    assert process.stdout is not None
    heard = 0
    while heard < count:
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        heard += line.count("here")


def test_a_second_signal_ends_a_process_that_hears_nothing(tmp_path: Path) -> None:
    processes = {number: start(tmp_path, HANGING) for number in (signal.SIGTERM, signal.SIGINT)}
    for process in processes.values():
        await_lines(process, 1)
    time.sleep(0.5)  # for them to hang
    for number, process in processes.items():
        process.send_signal(number)
    time.sleep(2)  # they may only be in a long batch
    assert [process.poll() for process in processes.values()] == [None, None]
    for number, process in processes.items():
        process.send_signal(number)
        _, words = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 128 + number
        assert "in hang_in_native_code" in words
        assert f"did not react to {number.name}" in words


TORCHRUN = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"]


@pytest.mark.slow
def test_ranks_that_hang_end_when_their_launcher_is_gone(tmp_path: Path) -> None:
    launcher = start(tmp_path, HANGING, *TORCHRUN)
    await_lines(launcher, 2)
    ranks = psutil.Process(launcher.pid).children(recursive=True)
    launcher.kill()
    _, alive = psutil.wait_procs(ranks, timeout=DEADLINE_SECONDS)
    _, words = launcher.communicate(timeout=DEADLINE_SECONDS)
    assert len(ranks) >= 2
    assert alive == []
    assert words.count("The launcher of this process is gone") == 2


@pytest.mark.slow
def test_ranks_that_train_stop_well_when_their_launcher_is_gone(tmp_path: Path) -> None:
    launcher = start(tmp_path, TRAINING, *TORCHRUN)
    await_lines(launcher, 2)
    ranks = psutil.Process(launcher.pid).children(recursive=True)
    launcher.kill()
    _, alive = psutil.wait_procs(ranks, timeout=DEADLINE_SECONDS)
    launcher.communicate(timeout=DEADLINE_SECONDS)
    assert alive == []
    assert (tmp_path / "storage-0").exists()
    assert (tmp_path / "storage-1").exists()


def test_what_starts_a_launcher_is_none_itself() -> None:
    commands = {
        ("/usr/bin/torchrun", "train.py"): True,
        ("-m", "determined.launch.wrap_rank", "0"): True,
        ("torchrun train.py & exit",): False,
        ("torch.distributed.run.py",): False,
    }
    for arguments, expected in commands.items():
        command = [sys.executable, "-c", "print('here', flush=True); input()", *arguments]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            await_lines(process, 1)  # the kernel shows no arguments while it is being started
            assert _is_launcher(psutil.Process(process.pid)) is expected
            process.kill()


def test_an_event_loop_keeps_its_way_to_hear_of_signals() -> None:
    async def main() -> list[str]:
        heard: list[str] = []
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, heard.append, "usr1")
        signals = StopSignals(is_chief=False)
        assert signals.arm()
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.sleep(0.2)
        signals.disarm()
        return heard

    assert asyncio.run(main()) == ["usr1"]


def test_a_forked_child_tells_its_parent_nothing() -> None:
    signals = StopSignals(is_chief=False)
    assert signals.arm()
    child = os.fork()
    if child == 0:
        os._exit(0 if signal.set_wakeup_fd(-1) == -1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    signals.disarm()
    assert signal.set_wakeup_fd(-1) == -1
