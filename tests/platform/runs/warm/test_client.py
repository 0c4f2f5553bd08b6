"""Fork servers come and go; whatever happens to them, runs start."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from determined.platform.runs.folder import RunFolder
from tests.platform.runs.warm.conftest import Bench
from tests.support.waiting import eventually

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(600)]

# Whether torch was loaded when the program began.
_TELL = "import sys; print('torch' in sys.modules)"
# A program whose fork server has no torch, so that a new one takes a tenth of a second.
_WITHOUT_TORCH = {
    "program.py": "import sys; print('determined.core' in sys.modules)",
    "torch_is_mentioned.py": "",
}


def was_warm(run: RunFolder) -> bool:
    (line,) = [line for line in run.log.read_text().splitlines() if line in ("True", "False")]
    return line == "True"


def note(run: RunFolder) -> str:
    lines = [line for line in run.log.read_text().splitlines() if "Cold start" in line]
    assert len(lines) <= 1
    return "".join(lines).partition("determined.keeper: ")[2]


def test_what_cannot_start_warm_starts_cold_and_says_why(bench: Bench) -> None:
    script = {"program.py": _TELL}
    cases = {
        "": bench.lay_out("program.py", files=script),
        "Cold start: its entrypoint needs a shell.": bench.lay_out(
            "sh", "-c", "true && python3 program.py", files=script
        ),
        "Cold start: its entrypoint gives Python options.": bench.lay_out(
            "-B", "program.py", files=script
        ),
        "Cold start: a startup-hook.sh comes first.": bench.lay_out(
            "program.py", files={**script, "startup-hook.sh": "export A=1\n"}
        ),
        "Cold start: PYTHONPATH names a relative folder.": bench.lay_out(
            "program.py", files=script, variables={"PYTHONPATH": "lib"}
        ),
        "Cold start: its own module random has the same name as one that is already loaded.": (
            bench.lay_out("program.py", files={**script, "random.py": ""})
        ),
    }
    for words, run in cases.items():
        (end,) = bench.run(run)
        assert end.exit_code == 0, run.log.read_text()
        assert note(run) == words
        assert was_warm(run) == (words == "")
    off = bench.lay_out("program.py", files=script, warm=False)
    bench.run(off)
    assert (was_warm(off), note(off)) == (False, "")


def test_code_that_never_mentions_torch_starts_warm_without_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    tell = "import sys; print('determined.core' in sys.modules, 'tor' + 'ch' in sys.modules)"
    plain = {"program.py": tell, "torch_is_mentioned.py": ""}
    runs = [bench.lay_out("program.py", files=plain), bench.lay_out("program.py", files=plain)]
    bench.run(*runs)
    assert [run.log.read_text() for run in runs] == ["True False\n"] * 2
    assert (len(bench.fork_servers), bench.kinds) == (1, {False})
    bench.run(mentioned := bench.lay_out("program.py", files={"program.py": tell}))
    assert mentioned.log.read_text() == "True True\n"
    assert (len(bench.fork_servers), bench.kinds) == (2, {False, True})
    bench.launcher._fork_servers.end()


def test_another_environment_has_a_fork_server_of_its_own(bench: Bench) -> None:
    runs = [
        bench.lay_out("program.py", files=_WITHOUT_TORCH, variables=variables)
        for variables in ({}, {"UNKNOWN": "1"}, {"DET_TRIAL_ID": "7"})
    ]
    before = len(bench.fork_servers)
    bench.run(*runs)
    assert all(map(was_warm, runs))
    assert len(bench.fork_servers) - before in (
        1,
        2,
    )  # of these three; an earlier test may have one


def test_a_fork_server_ends_with_who_started_it_and_its_runs_go_on(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    waits = f"print('here')\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)"
    program = f"import os, time\n{waits}\nprint('done')"
    files = {**_WITHOUT_TORCH, "program.py": program}
    run = Bench(tmp_path).lay_out("program.py", files=files)
    starter = f"""
import asyncio, os, sys
sys.path.insert(0, {str(Path(__file__).parents[4])!r})
from determined.platform.runs.launchers.local import LocalLauncher
from determined.platform.runs.folder import RunFolder
launcher = LocalLauncher()
asyncio.run(launcher.start(RunFolder({str(run.path)!r})))
(server,) = launcher._fork_servers._servers.values()
print(server.pid)
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", starter], capture_output=True, check=True)
    server = int(done.stdout)
    eventually(lambda: not psutil.pid_exists(server))
    gate.touch()
    end = asyncio.run(Bench(tmp_path / "other").launcher.wait(run))
    assert end is not None
    assert end.exit_code == 0
    assert run.log.read_text() == "here\ndone\n"


def test_an_idle_fork_server_ends_and_the_next_run_has_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_WARM_IDLE_SECONDS", "1")
    bench = Bench(tmp_path)
    first, second = (bench.lay_out("program.py", files=_WITHOUT_TORCH) for _ in range(2))
    bench.run(first)
    eventually(lambda: bench.fork_servers == [])
    bench.run(second)
    assert [was_warm(first), was_warm(second)] == [True, True]
    bench.launcher._fork_servers.end()


def test_a_changed_file_of_what_is_loaded_makes_a_new_fork_server(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    extra = tmp_path / "site"
    extra.mkdir()
    (extra / "sitecustomize.py").write_text("import changing")
    (extra / "changing.py").write_text("VALUE = 1")
    variables = {"PYTHONPATH": str(extra)}
    tell = f"import changing; print(changing.VALUE); {_WITHOUT_TORCH['program.py']}"
    files = {**_WITHOUT_TORCH, "program.py": tell}
    first, second, third = (
        bench.lay_out("program.py", files=files, variables=variables) for _ in range(3)
    )
    bench.run(first)
    (extra / "changing.py").write_text("VALUE = 22")
    bench.run(second)
    bench.run(third)
    assert [was_warm(run) for run in (first, second, third)] == [True, False, True]
    values = [run.log.read_text().split()[0] for run in (first, second, third)]
    assert values == ["1", "22", "22"]
    bench.launcher._fork_servers.end()


@pytest.fixture
def killed(bench: Bench) -> Iterator[list[int]]:
    """The fork servers that are killed, at random moments, for as long as the test runs."""
    is_over = threading.Event()
    found: list[int] = []

    def kill() -> None:
        draw = random.Random(0)
        while not is_over.wait(draw.uniform(0.0, 0.05)):
            for pid in bench.fork_servers:
                os.kill(pid, signal.SIGKILL)
                found.append(pid)
                time.sleep(draw.uniform(0.0, 0.3))

    thread = threading.Thread(target=kill)
    thread.start()
    yield found
    is_over.set()
    thread.join()


def test_runs_start_exactly_once_however_often_fork_servers_are_killed(
    bench: Bench, killed: list[int]
) -> None:
    while len(set(killed)) < 10:
        bench.launcher._fork_servers._starts.clear()
        bench.launcher._fork_servers._unfit.clear()
        runs = [bench.lay_out("program.py", files=_WITHOUT_TORCH) for _ in range(3)]
        for run, end in zip(runs, bench.run(*runs), strict=True):
            assert end.exit_code == 0
            was_warm(run)  # exactly one line: it ran once


def test_a_stopped_fork_server_is_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("determined.platform.runs.warm.client._ANSWER_SECONDS", 1.0)
    bench.launcher._fork_servers._unfit.clear()
    first, second = (bench.lay_out("program.py", files=_WITHOUT_TORCH) for _ in range(2))
    bench.run(first)
    for pid in bench.fork_servers:
        os.kill(pid, signal.SIGSTOP)
    bench.run(second)
    assert [was_warm(first), was_warm(second)] == [True, False]
