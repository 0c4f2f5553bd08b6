"""Who processes are, and that a signal reaches no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from determined._os import processes

pytestmark = pytest.mark.multiprocess


def sleeper(**options: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"], **options)  # type: ignore[call-overload,no-any-return]  # passed on


def test_an_identity_is_of_one_process_only() -> None:
    child = sleeper()
    identity = processes.identify(child.pid)
    assert identity is not None
    assert processes.look_up(identity) is not None
    assert processes.look_up(identity._replace(start_time=identity.start_time + 1)) is None
    assert processes.look_up(identity._replace(boot_id="another")) is None
    child.kill()
    child.wait()
    assert processes.look_up(identity) is None
    assert processes.identify(child.pid) is None


def test_a_zombie_is_gone() -> None:
    child = subprocess.Popen(["true"])
    identity = processes.identify(child.pid)
    deadline = time.monotonic() + 60
    while identity is not None and processes.look_up(identity) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.wait()


def test_a_signal_does_not_reach_another_with_the_same_pid() -> None:
    child = sleeper()
    process = processes.find(child.pid)
    assert process is not None
    assert not processes.send(process._replace(start_time=process.start_time - 1), signal.SIGKILL)
    assert child.poll() is None
    assert processes.send(process, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert not processes.send(process, signal.SIGKILL)


def test_a_name_with_spaces_and_brackets_is_read_correctly() -> None:
    script = (
        "import ctypes, time; ctypes.CDLL(None).prctl(15, b'a) Z (b'); print(1); time.sleep(600)"
    )
    child = subprocess.Popen([sys.executable, "-u", "-c", script], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    process = processes.find(child.pid)
    child.kill()
    child.wait()
    child.stdout.close()
    assert process is not None
    assert (process.parent, process.is_gone) == (os.getpid(), False)


def test_descendants_are_found_at_any_depth() -> None:
    child = subprocess.Popen(["sh", "-c", "sh -c 'sleep 600; :' ; :"])
    deadline = time.monotonic() + 60
    while len(found := processes.descendants(child.pid)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert processes.end_all(lambda: processes.descendants(child.pid), lambda: 0.0) == 2
    child.kill()
    child.wait()
    rest = [processes.find(process.pid) for process in found]
    assert all(process is None or process.is_gone for process in rest)


def test_processes_are_found_by_their_environment() -> None:
    child = sleeper(env={"MARK": "a.1"})
    other = sleeper(env={"MARK": "a.12"})
    try:
        assert [p.pid for p in processes.with_variable("MARK", "a.1")] == [child.pid]
        assert processes.has_variable(other.pid, "MARK")
        assert not processes.has_variable(other.pid, "MAR")
    finally:
        for process in (child, other):
            process.kill()
            process.wait()


def test_psutil_tells_the_same_where_it_stands_in() -> None:
    child = sleeper()
    try:
        expected, found = processes.find(child.pid), processes._find_by_psutil(child.pid)
        assert expected is not None
        assert found is not None
        assert (found.pid, found.parent) == (expected.pid, expected.parent)
        assert not found.is_gone
        assert not found.is_stopped
        os.kill(child.pid, signal.SIGSTOP)
        deadline = time.monotonic() + 60
        while not (p := processes._find_by_psutil(child.pid)) or not p.is_stopped:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        child.kill()
        child.wait()
    assert processes._find_by_psutil(child.pid) is None
