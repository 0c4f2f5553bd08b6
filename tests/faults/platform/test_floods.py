"""Trials that print without measure: everybody's memory stays small, and the log is whole."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from determined.platform.homes.home import Home
from determined.platform.supervisor import presence
from tests.cli.det import run_det
from tests.dashboard.served import Served, served
from tests.support.faults import at_least, factor
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(900)]

_MEGABYTES = at_least(20, 85)  # of lines; the long form has 1 GB
_LINE_MEGABYTES = 105  # in one line

_FLOOD = """
import os, pathlib, sys, time
megabyte = b"".join(b"line %07d: \\x1b[31mred\\x1b[0m \\xff\\xc3 half\\n" % n for n in range(29127))
for _ in range({lines}): os.write(1, megabyte)
for _ in range({line}): os.write(1, b"\\xe2\\x82\\x00\\x9b31m\\x07x" * 116508)
os.write(1, b"\\nthe end\\n")
while not pathlib.Path({gate!r}).exists(): time.sleep(0.02)
sys.stderr.write("Traceback (most recent call last):\\n  x\\nValueError: " + "long " * 500_000)
sys.exit(1)
"""


@pytest.fixture(scope="module")
def flood(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, dict[str, float]]]:
    """A lab with such a trial, and the most memory in MiB that its keepers ever had."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "60")
        patch.setenv("DET_SLOTS", "1")
        lab = Lab(tmp_path_factory.mktemp("flood"))
        gate = lab.folder / "gate"
        number = lab.create(
            _FLOOD.format(lines=_MEGABYTES, line=_LINE_MEGABYTES, gate=str(gate)),
            log_policies=[{"name": "end", "pattern": "the end"}, {"name": "no", "pattern": "^y+z"}],
        )
        lab.until(lambda: lab.runs(number))
        run = Path(lab.runs(number)[0].folder)
        lab.until((run / "log.matches").exists)  # the keeper has read all of it
        facts = presence.find(lab.home)
        assert facts is not None
        (keeper,) = [p for p in lab.processes() if "keeper" in " ".join(p.cmdline())]
        peaks = {"supervisor": _peak(facts.pid), "keeper": _peak(keeper.pid)}
        gate.touch()
        assert lab.wait(number).state == "ERROR"
        peaks["supervisor at the end"] = _peak(facts.pid)
        yield lab, peaks
        lab.close()


def _peak(pid: int) -> float:
    """The most memory in MiB that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def test_nobody_grows_with_what_is_printed(flood: tuple[Lab, dict[str, float]]) -> None:
    _, peaks = flood
    print({name: round(peak, 1) for name, peak in peaks.items()})  # noqa: T201
    assert peaks["keeper"] < 40, peaks
    assert peaks["supervisor at the end"] < 90, peaks


def test_the_log_is_whole_and_its_end_is_told(flood: tuple[Lab, dict[str, float]]) -> None:
    lab, _ = flood
    (run,) = lab.runs(1)
    size = Path(run.folder, "log").stat().st_size
    assert size > (_MEGABYTES + _LINE_MEGABYTES) * 1_000_000
    (trial,) = lab.trials(1)
    assert "ValueError: long long" in trial.reason
    assert len(trial.reason) < 2000


# Its own most memory is told by the process itself: the kernel's account begins with its parent's.
_MEASURED = """
import sys
from determined.cli._commands.errors import exit_code_of
from determined.cli._commands.nouns import det
code = exit_code_of(det, sys.argv[1:])
sys.stderr.write(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
sys.exit(code)
"""
_READS = ["t logs 1 --tail 5", "t logs 1 --head 5", "t describe 1", "e describe 1 --json"]


@pytest.mark.parametrize("words", [*_READS, *(["t logs 1 --search end"] if factor() > 1 else [])])
def test_commands_read_it_in_little_memory(flood: tuple[Lab, dict[str, float]], words: str) -> None:
    lab, _ = flood
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, *words.split()],
        env={**os.environ, "DET_HOME": str(lab.home.path)},
        capture_output=True,
        check=True,
    )
    print(f"det {words}: {int(done.stderr) / 1024:.1f} MiB")  # noqa: T201
    assert int(done.stderr) / 1024 < 90
    assert len(done.stdout) < 3_000_000
    if "logs" in words and "head" not in words:
        assert b"the end" in done.stdout
    if "tail" in words:
        assert b"(the rest of this line is left out)" in done.stdout


def test_the_dashboard_reads_it_in_little_memory(flood: tuple[Lab, dict[str, float]]) -> None:
    lab, _ = flood
    with served(Home(lab.home.path)) as shown:
        before = psutil.Process().memory_info().rss
        for question in ("tail=1&limit=50", "search=the+end", "search=zzz", "limit=20&level=ERROR"):
            answer = shown.client.get(f"/api/trials/1/logs?{question}")
            assert answer.status_code == 200, answer.text
            assert len(answer.content) < 20_000_000
        assert _downloaded(shown) > _MEGABYTES * 1_000_000
        grown = (psutil.Process().memory_info().rss - before) / 2**20
    print(f"the dashboard grew by {grown:.1f} MiB")  # noqa: T201
    assert grown < 150


def _downloaded(shown: Served) -> int:
    with shown.client.stream("GET", "/api/trials/1/logs/download") as answer:
        return sum(len(piece) for piece in answer.iter_bytes(1 << 20))


def test_a_reader_that_does_not_read_holds_nobody_up(flood: tuple[Lab, dict[str, float]]) -> None:
    lab, _ = flood
    environment = {**os.environ, "DET_HOME": str(lab.home.path)}
    command = [sys.executable, "-m", "determined.cli", "t", "logs", "1"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as stuck:
        listed = run_det("e", "list", environment=environment)
        assert listed.returncode == 0
        assert lab.wait(lab.create("pass")).state == "COMPLETED"
        assert stuck.poll() is None
        stuck.kill()


def test_a_full_pipe_to_the_supervisor_keeps_nobody_waiting(tmp_path: Path) -> None:
    home = Home(tmp_path)
    os.mkfifo(home.wake)
    busy = os.open(home.wake, os.O_RDWR | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while os.write(busy, bytes(4096)):
            pass
    assert presence.wake(home)
    os.close(busy)
