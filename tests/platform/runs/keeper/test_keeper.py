"""The parent of a run: entrypoints of every kind, and nothing left of any of them."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined._os import processes
from determined.platform.queries.log_reader import LogReader
from determined.platform.runs.folder import (
    EXITED,
    NOT_STARTED,
    SIGNALLED,
    LogMatch,
    LogPolicy,
    RunExit,
    RunFolder,
)
from determined.platform.runs.launchers.local import LocalLauncher
from tests.support.faults import mounted
from tests.support.runs import assert_nothing_left, eventually, make_run

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def keep(run: RunFolder) -> RunExit:
    """Run it to its end."""

    async def whole() -> RunExit | None:
        launcher = LocalLauncher()
        await launcher.start(run)
        return await asyncio.wait_for(launcher.wait(run), 100)

    end = asyncio.run(whole())
    assert end is not None, run.keeper_errors.read_text()
    assert_nothing_left(run)
    assert run.keeper_errors.read_text() == ""
    return end


def begin(run: RunFolder, word: str = "up") -> processes.Process:
    """Start a run, wait until it has written something, and return its keeper."""
    asyncio.run(LocalLauncher().start(run))
    eventually(lambda: run.log.exists() and word.encode() in run.log.read_bytes(), "output")
    eventually(lambda: run.entrypoint is not None)
    assert run.keeper is not None
    keeper = processes.look_up(run.keeper)
    assert keeper is not None
    return keeper


def collect(run: RunFolder) -> RunExit:
    end = asyncio.run(asyncio.wait_for(LocalLauncher().wait(run), 60))
    assert end is not None, run.keeper_errors.read_text()
    assert_nothing_left(run)
    return end


@pytest.mark.parametrize("code", [0, 1, 2, 77, 255])
def test_the_exit_code_is_the_entrypoints(code: int, tmp_path: Path) -> None:
    end = keep(make_run(tmp_path / "run", "sh", "-c", f"exit {code}"))
    assert (end.exit_code, end.reason, end.signal) == (code, EXITED, None)
    assert end.started_at is not None
    assert end.ended_at is not None
    assert end.started_at <= end.ended_at


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGUSR2])
def test_a_signal_that_ended_it_is_named(number: signal.Signals, tmp_path: Path) -> None:
    end = keep(make_run(tmp_path / "run", script=f"import os; os.kill(os.getpid(), {number})"))
    assert (end.exit_code, end.reason, end.signal) == (128 + number, SIGNALLED, number.name)
    assert end.stopped_by is None


def test_a_command_that_does_not_exist_is_told(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "no-such-program", "x")
    end = keep(run)
    assert (end.exit_code, end.reason) == (127, NOT_STARTED)
    assert end.message == (
        "The entrypoint could not be started: no-such-program: No such file or directory."
    )
    assert "no-such-program" in run.log.read_text()


def test_a_file_that_is_no_program_is_told(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("x")
    end = keep(make_run(tmp_path / "run", str(tmp_path / "data.txt")))
    assert (end.exit_code, end.reason) == (126, NOT_STARTED)


def test_variables_that_cannot_be_set_are_told(tmp_path: Path) -> None:
    for number, value in enumerate(("a\0b", "x" * 10_000_000)):
        end = keep(make_run(tmp_path / f"run {number}", "true", env={"BAD": value}))
        assert (end.exit_code, end.reason) == (126, NOT_STARTED)
        assert end.message is not None
        assert end.message.startswith("The entrypoint could not be started: true: ")


def test_a_stop_while_leftovers_are_ended_changes_nothing(tmp_path: Path) -> None:
    """It does not prolong their grace, and reaches no process that got the entrypoint's pid."""
    left = "import signal, time; signal.signal(15, lambda *_: print('asked')); print('up')"
    left += "\nwhile True: time.sleep(0.1)"
    script = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {left!r}])\n"
    script += "import time; time.sleep(1); print('leaving')"
    run = make_run(tmp_path / "run", script=script, leftover_grace_seconds=1)
    keeper = begin(run, "asked")
    processes.send(keeper, signal.SIGTERM)
    end = collect(run)
    assert (end.exit_code, end.leftover_processes) == (0, 1)
    assert run.log.read_text().count("asked") == 1


def test_output_of_both_streams_is_in_the_log_in_order(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "sh", "-c", "echo 1; echo 2 >&2; echo 3", prologue="0\n")
    keep(run)
    assert run.log.read_text() == "0\n1\n2\n3\n"


def test_files_of_a_run_are_private(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", script="print('x')")
    keep(run)
    assert run.path.stat().st_mode & 0o777 == 0o700
    modes = {p.name: p.stat().st_mode & 0o777 for p in run.path.iterdir() if p.is_file()}
    assert set(modes.values()) == {0o600}, modes


def test_the_entrypoint_gets_a_clean_process(tmp_path: Path) -> None:
    """Its own session, default signals, no descriptors of ours, its own environment."""
    script = (
        "import os, signal, sys\n"
        "print(os.getcwd()); print(os.getsid(0) == os.getpid())\n"
        "print(sorted(os.listdir('/proc/self/fd')))\n"
        "print([s.name for s in map(signal.Signals, signal.valid_signals() - set(range(32, 65)))"
        " if signal.getsignal(s) == signal.SIG_IGN])\n"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, []), os.environ['MINE'], sys.stdin.read())"
    )
    run = make_run(tmp_path / "run", script=script, env={"MINE": "ümlaut"})
    of_ours = os.dup(0)
    os.set_inheritable(of_ours, True)
    try:
        keep(run)
    finally:
        os.close(of_ours)
    lines = run.log.read_text().splitlines()
    assert lines[0] == str(run.workdir)
    assert lines[1] == "True"
    assert eval(lines[2]) == ["0", "1", "2", "3"]  # the last one reads the list
    assert set(eval(lines[3])) == {"SIGPIPE", "SIGXFSZ"}  # by the interpreter itself
    assert lines[4] == "set() ümlaut "


def test_a_startup_hook_prepares_the_entrypoint(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", sys.executable, "-c", "import os; print(os.environ['HOOKED'])")
    (run.workdir / "startup-hook.sh").write_text("echo hook\nfalse || export HOOKED='a b'\n")
    assert keep(run).exit_code == 0
    assert run.log.read_text() == "hook\na b\n"


def test_a_failing_startup_hook_fails_the_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "echo", "never")
    (run.workdir / "startup-hook.sh").write_text("echo before\n(exit 9)\necho after\n")
    assert keep(run).exit_code == 9
    assert run.log.read_text() == "before\n"


_DAEMON = (
    "import os, signal, sys, time\n"
    "for _ in range(2):\n"
    "    if os.fork(): os._exit(0)\n"
    "    os.setsid()\n"
)


@pytest.mark.parametrize(
    "left_behind",
    [
        "subprocess.Popen(['sleep', '600'])",
        "subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=-3, stderr=-3)",
        f"subprocess.run([sys.executable, '-c', {_DAEMON + 'time.sleep(600)'!r}])",
        "subprocess.Popen(['sh', '-c', 'trap \"\" TERM; while :; do sleep 1; done'])",
        "subprocess.Popen(['env', '-i', 'sleep', '600'], start_new_session=True)",
        "p = subprocess.Popen(['sleep', '600']); p.send_signal(19)",
    ],
)
def test_what_the_entrypoint_leaves_behind_is_ended(left_behind: str, tmp_path: Path) -> None:
    script = f"import subprocess, sys, time\n{left_behind}\ntime.sleep(0.3)"
    end = keep(make_run(tmp_path / "run", script=script, leftover_grace_seconds=1))
    assert end.exit_code == 0
    assert end.leftover_processes >= 1


def test_processes_that_fork_on_and_on_are_ended(tmp_path: Path) -> None:
    script = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    for _ in range(3000):\n"
        "        if os.fork(): os._exit(0)\n"
        "        time.sleep(0.001)\n"
        "time.sleep(0.2)"
    )
    keep(make_run(tmp_path / "run", script=script, leftover_grace_seconds=0.2))


def test_a_run_that_closes_its_streams_goes_on(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = (
        "import os, time\nprint('up')\nfor n in range(3): os.close(n)\n"
        f"time.sleep(0.3); open({str(mark)!r}, 'w').close(); os._exit(4)"
    )
    assert keep(make_run(tmp_path / "run", script=script)).exit_code == 4
    assert mark.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_are_passed_on_once(number: signal.Signals, tmp_path: Path) -> None:
    script = (
        "import signal, time\nseen = []\n"
        f"signal.signal({number}, lambda *_: seen.append(1))\nprint('up')\n"
        "while not seen: time.sleep(0.01)\n"
        "time.sleep(0.5); print('got', len(seen)); raise SystemExit(5)"
    )
    run = make_run(tmp_path / "run", script=script)
    processes.send(begin(run), number)
    assert collect(run).exit_code == 5
    assert run.log.read_text() == "up\ngot 1\n"


def test_hanging_up_does_not_end_a_run(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = (
        "import os, time; print('up')\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        "print('done')"
    )
    run = make_run(tmp_path / "run", script=script)
    processes.send(begin(run), signal.SIGHUP)
    gate.touch()
    assert collect(run).exit_code == 0
    assert run.log.read_text() == "up\ndone\n"


def test_a_trial_behind_a_shell_is_asked_once_and_may_save(tmp_path: Path) -> None:
    """The shell dies of SIGTERM at once; its child is asked then, and its workers are not."""
    worker = "import time; print('worker up'); time.sleep(600)"
    trial = (
        "import signal, subprocess, sys, time\nseen = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: seen.append(1))\n"
        f"w = subprocess.Popen([sys.executable, '-c', {worker!r}])\n"
        "while not seen: time.sleep(0.01)\n"
        "time.sleep(1); print('worker lives:', w.poll() is None, 'asked:', len(seen))\n"
        "w.kill(); w.wait()"
    )
    (tmp_path / "trial.py").write_text(trial)
    command = f"{sys.executable} {tmp_path / 'trial.py'}; echo never"
    run = make_run(tmp_path / "run", "sh", "-c", command)
    processes.send(begin(run, "worker up"), signal.SIGTERM)
    end = collect(run)
    assert (end.exit_code, end.stopped_by) == (143, "SIGTERM")
    assert run.log.read_text() == "worker up\nworker lives: True asked: 1\n"


def test_a_failure_is_told_with_its_traceback_and_last_lines(tmp_path: Path) -> None:
    script = (
        "print('epoch 1')\ntry: 1/0\nexcept ZeroDivisionError as e: raise ValueError('bad') from e"
    )
    end = keep(make_run(tmp_path / "run", script=script))
    assert end.traceback is not None
    assert end.traceback.rank is None
    assert end.traceback.text.startswith("Traceback (most recent call last):")
    assert "ZeroDivisionError: division by zero" in end.traceback.text
    assert end.traceback.text.endswith("ValueError: bad")
    assert end.last_lines[0] == "epoch 1"
    assert end.last_lines[-1] == "ValueError: bad"


def test_log_policies_match_lines_of_the_run_only(tmp_path: Path) -> None:
    policies = (
        LogPolicy("oom", ".*CUDA out of memory.*", "cancel_retries"),
        LogPolicy("ecc", ".*ECC error.*"),
        LogPolicy("broken", "(", None),
    )
    run = make_run(
        tmp_path / "run",
        script="print('fine')\nprint('RuntimeError: CUDA out of memory. Tried')",
        policies=policies,
        prologue="INFO: Experiment configuration: {'a': 'ECC error, CUDA out of memory'}\n",
    )
    expected = (LogMatch("oom", "cancel_retries", 3, "RuntimeError: CUDA out of memory. Tried"),)
    assert keep(run).matches == expected
    assert run.matches == expected
    assert "log policy 'broken' is off" in run.log.read_text()


def test_matches_are_seen_while_the_run_goes_on(tmp_path: Path) -> None:
    script = "import time; print('up'); print('out of memory'); time.sleep(600)"
    run = make_run(tmp_path / "run", script=script, policies=(LogPolicy("oom", "out of memory"),))
    keeper = begin(run)
    eventually(lambda: run.matches, "a match")
    processes.send(keeper, signal.SIGQUIT)
    collect(run)


def test_lines_have_the_time_at_which_they_came(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = (
        "import os, time\nprint('up\\nsecond')\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        "print('[rank=3] ERROR: [7] x: third'); print('last', end='')"
    )
    run = make_run(tmp_path / "run", script=script)
    before = time.time()
    begin(run, "second")
    time.sleep(0.5)
    opened = time.time()
    gate.touch()
    collect(run)
    reader = LogReader(run.log, run.log_times)
    lines = list(reader.lines())
    assert [line.text for line in lines] == [
        *("up", "second", "[rank=3] ERROR: [7] x: third", "last")
    ]
    times = [line.time or 0 for line in lines]
    assert times == sorted(times)
    assert before - 0.01 <= times[0] <= times[1] < opened
    assert times[2] >= opened - 0.01
    assert (lines[2].rank, lines[2].level) == (3, "ERROR")
    assert reader.first_at_or_after(opened) == 2
    assert [line.text for line in reader.tail(1)] == ["last"]


def test_a_flood_of_output_neither_blocks_nor_grows_the_keeper(tmp_path: Path) -> None:
    """Many lines, one endless line, bytes that are no text, terminal codes."""
    script = (
        "import os\n"
        "block = b''.join(b'line %d of many\\n' % n for n in range(5000))\n"
        "for _ in range(600): os.write(1, block)\n"
        "for _ in range(40): os.write(1, b'\\xff\\x00\\x1b[31mx' * 131072)\n"
        "os.write(1, b'\\nCUDA out of memory\\n'); print('up')\n"
        "import time; time.sleep(600)"
    )
    policies = (LogPolicy("oom", ".*CUDA out of memory.*"), LogPolicy("never", r"^x(?=y)"))
    run = make_run(tmp_path / "run", script=script, policies=policies)
    keeper = begin(run, "up")
    eventually(lambda: run.matches, "the match after the flood")
    status = Path(f"/proc/{keeper.pid}/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    processes.send(keeper, signal.SIGQUIT)
    collect(run)
    assert peak < 40, f"{peak} MiB"
    assert run.log.stat().st_size > 80e6
    assert run.log_times.stat().st_size < 100e3
    assert run.matches[0].line == 600 * 5000 + 1
    reader = LogReader(run.log, run.log_times)
    (line,) = reader.lines(2_345_678, 2_345_679)
    assert line.text == f"line {2_345_678 % 5000} of many"
    assert reader.count() == 600 * 5000 + 3


def test_a_pattern_that_takes_for_ever_is_given_up(tmp_path: Path) -> None:
    policies = (LogPolicy("slow", "(a+)+$"), LogPolicy("fine", "end"))
    run = make_run(
        tmp_path / "run", script="print('a' * 40 + 'b'); print('end')", policies=policies
    )
    end = keep(run)
    assert [match.name for match in end.matches] == ["fine"]
    assert (
        "log policy 'slow' is off, because its pattern took more than 2 seconds"
        in run.log.read_text()
    )


def test_an_idle_keeper_uses_no_processor_time(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", script="import time; print('up'); time.sleep(600)")
    keeper = begin(run)
    time.sleep(0.3)

    def ticks() -> int:
        fields = Path(f"/proc/{keeper.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(2)
    used = (ticks() - before) / os.sysconf("SC_CLK_TCK")
    processes.send(keeper, signal.SIGQUIT)
    collect(run)
    assert used <= 0.02


def test_the_keeper_needs_no_installed_packages(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", script="import time; print('up'); time.sleep(600)")
    keeper = begin(run)
    maps = Path(f"/proc/{keeper.pid}/maps").read_text()
    processes.send(keeper, signal.SIGQUIT)
    collect(run)
    assert "site-packages" not in maps


def test_a_folder_with_spaces_and_other_letters_works(tmp_path: Path) -> None:
    run = make_run(tmp_path / "ein Ordner – 日本" / "run 1", script="import os; print(os.getcwd())")
    assert keep(run).exit_code == 0
    assert run.log.read_text() == f"{run.workdir}\n"


def test_a_second_keeper_of_the_same_run_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", script="import time; print('up'); time.sleep(600)")
    keeper = begin(run)
    command = [sys.executable, "-m", "determined.platform.runs.keeper", str(run.path)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert second.returncode == 1
    assert "is already handled by another process" in second.stderr
    processes.send(keeper, signal.SIGQUIT)
    collect(run)


def test_a_run_that_fills_its_disk_still_says_how_it_ended(tmp_path: Path) -> None:
    fills = "while True: print('x' * 4000)"
    with mounted("-t", "tmpfs", "-o", "size=1m", "tmpfs", at=tmp_path / "disk"):
        run = make_run(
            tmp_path / "disk" / "run", script=fills, env={"PYTHONDONTWRITEBYTECODE": "1"}
        )
        end = keep(run)
        assert (end.exit_code, end.reason) == (1, EXITED)
        assert end.last_lines[-1] == f"There is no room left on the disk of {run.path}."


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """A control group with 40 MB of memory; whoever writes to the file in it joins."""
    old, new = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    base, limit = (old, "memory.limit_in_bytes") if old.is_dir() else (new, "memory.max")
    group = base / f"determined-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        (group / limit).write_text(str(40 << 20))
        yield group / "cgroup.procs"
    except OSError as error:
        pytest.skip(f"memory cannot be limited here: {error}")
    finally:
        eventually(lambda: not (group / "cgroup.procs").read_text(), "an empty group")
        group.rmdir()


@pytest.mark.parametrize("leaves_it_to_a_child", [False, True])
def test_a_run_that_the_kernel_ends_for_memory_says_so(
    leaves_it_to_a_child: bool, little_memory: Path, tmp_path: Path
) -> None:
    script = (
        f"import os, sys; open({str(little_memory)!r}, 'w').write('0')\n"
        f"if {leaves_it_to_a_child} and (pid := os.fork()):\n"
        "    sys.exit(128 + os.WTERMSIG(os.waitpid(pid, 0)[1]))\n"
        "print('up'); kept = [b'x' * (1 << 20) for _ in range(400)]"
    )
    end = keep(make_run(tmp_path / "run", script=script))
    assert end.exit_code == 137
    assert end.last_lines == (
        "up",
        "SIGKILL. The kernel has killed a process for lack of memory since the run began.",
    )


def test_a_run_that_somebody_kills_says_nothing_of_memory(tmp_path: Path) -> None:
    end = keep(make_run(tmp_path / "run", "sh", "-c", "echo up; kill -9 $$"))
    assert end.last_lines == ("up",)


# Each process lives just long enough to start the next one.
_CHANGES_ITS_PID = """
import os, sys
print("up", flush=True)
if os.fork():
    sys.exit(0)
os.setsid()
os.environ.clear()
while True:
    if os.fork():
        os._exit(0)
"""


def test_a_daemon_that_keeps_changing_its_pid_ends_with_its_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", script=_CHANGES_ITS_PID, leftover_grace_seconds=0.2)
    end = keep(run)
    assert end.exit_code == 0
    time.sleep(0.2)  # whatever was left would have moved on
    mine = [p for p in processes.table().values() if not p.is_gone]
    here = str(run.workdir)
    assert not [p.pid for p in mine if _directory(p.pid) == here]


def _directory(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""


def test_a_run_ends_once_its_lease_was_not_renewed_for_long_enough(tmp_path: Path) -> None:
    script = "print('up', flush=True)\nimport time\ntime.sleep(600)"
    lease = tmp_path / "lease"
    lease.write_text(str(time.monotonic() + 1))
    run = make_run(tmp_path / "run", script=script, lease=str(lease), lease_seconds=1.0)
    end = keep(run)
    assert time.monotonic() >= float(lease.read_text()) + 1
    assert (end.signal, end.stopped_by) == ("SIGTERM", "SIGTERM")
    assert "this node was cut off from its cluster for 1 s: stopping" in run.log.read_text()


def test_a_run_whose_home_is_deleted_ends(tmp_path: Path) -> None:
    home = tmp_path / "home"
    script = "print('up', flush=True)\nimport time\ntime.sleep(600)"
    run = make_run(home / "trials" / "1", script=script)
    keeper = begin(run)
    entrypoint = run.entrypoint
    assert entrypoint is not None
    shutil.rmtree(home)
    eventually(lambda: _is_over(keeper.pid))
    assert processes.look_up(entrypoint) is None
    assert not home.exists()


def _is_over(pid: int) -> bool:
    found = processes.find(pid)
    return found is None or found.is_gone


def test_a_run_whose_home_is_moved_goes_on(tmp_path: Path) -> None:
    home = tmp_path / "home"
    script = "print('up', flush=True)\nimport pathlib, sys, time\n"
    script += f"while not pathlib.Path({str(tmp_path / 'go')!r}).exists():\n    time.sleep(0.05)"
    run = make_run(home / "trials" / "1", script=script)
    keeper = begin(run)
    home.rename(tmp_path / "moved")
    time.sleep(7.0)  # longer than a keeper waits for a folder that was deleted
    assert not _is_over(keeper.pid)
    (tmp_path / "go").touch()
    eventually(lambda: _is_over(keeper.pid))
    end = RunFolder(tmp_path / "moved" / "trials" / "1").exit
    assert end is not None
    assert end.exit_code == 0
    assert not home.exists()
