"""`det run` in a real terminal: the second run is warm, and otherwise as with python."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="warm starts are for Linux"),
]

_DEADLINE_SECONDS = 120.0
_FILES = {
    "tell.py": "import sys; print('warm' if 'torch' in sys.modules else 'cold', sys.argv[1:])",
    "exits.py": "import sys; sys.exit(int(sys.argv[1]))",
    "dies.py": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)\nwhile True: pass",
    "asks.py": "print('got', input('name? '))",
    "waits.py": """
import os, sys, time
try:
    print("waiting", os.getpgrp() == os.tcgetpgrp(0), f"as {os.getpid()}.", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted")
    sys.exit(9)
""",
}


class Terminal:
    """A shell in a terminal of its own."""

    def __init__(self, folder: Path) -> None:
        for name, text in _FILES.items():
            (folder / name).write_text(text)
        self._ours, theirs = pty.openpty()
        environment = {**os.environ, "PS1": "", "DET": f"{sys.executable} -m determined.cli run"}
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env=environment,
            preexec_fn=lambda: _own(theirs),
        )
        os.close(theirs)
        self._seen = ""
        self.say("stty -echo")
        self.ask("echo ready", "ready")

    def say(self, line: str, end: str = "\n") -> None:
        os.write(self._ours, f"{line}{end}".encode())

    def wait_for(self, text: str) -> str:
        """Return what is seen up to a text."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while text not in self._seen:
            assert time.monotonic() < deadline, self._seen
            if select.select([self._ours], [], [], 0.1)[0]:
                self._seen += os.read(self._ours, 65536).decode()
        before, _, self._seen = self._seen.partition(text)
        return before + text

    def ask(self, line: str, answer: str) -> str:
        self.say(line)
        return self.wait_for(answer)

    def status(self, line: str) -> int:
        """Return the exit status that the shell has of a command."""
        self.say(f"{line}; echo status $?.")
        self.wait_for("status ")
        return int(self.wait_for(".").rstrip("."))

    @property
    def is_with_the_shell(self) -> bool:
        """Whether the terminal is with the shell, and not with a command that it runs."""
        return os.tcgetpgrp(self._ours) == self._shell.pid

    @property
    def helpers(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                is_helper = any("warm/__main__.py" in word for word in process.cmdline())
                if is_helper and os.getsid(process.pid) == self._shell.pid:
                    found.append(process)
        return found

    def close(self) -> None:
        helpers = self.helpers
        self.say("exit")
        self._shell.wait(_DEADLINE_SECONDS)
        os.close(self._ours)
        gone, left = psutil.wait_procs(helpers, timeout=30)  # they see that the session is over
        for process in left:
            process.kill()
        assert left == []


def _own(terminal: int) -> None:
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path_factory.mktemp("run"))
    assert "cold []" in terminal.ask("$DET tell.py", "]")
    _wait_until(lambda: "warm" in terminal.ask("$DET tell.py", "]"))  # the helper is loading
    yield terminal
    terminal.close()


def test_arguments_reach_the_script(terminal: Terminal) -> None:
    seen = terminal.ask("$DET tell.py -v --help 'a b'", "]")
    assert "warm ['-v', '--help', 'a b']" in seen
    assert "warm ['-m']" in terminal.ask("$DET -m tell -m", "]")


def test_the_exit_status_is_the_one_of_the_script(terminal: Terminal) -> None:
    assert terminal.status("$DET exits.py 0") == 0
    assert terminal.status("$DET exits.py 7") == 7
    assert terminal.status("$DET dies.py") == 128 + signal.SIGTERM
    assert terminal.status("$DET nothing.py") == 2


def test_the_script_has_the_terminal(terminal: Terminal) -> None:
    terminal.ask("$DET asks.py", "name? ")
    assert "got Ada" in terminal.ask("Ada", "got Ada")


def test_pipes_of_the_shell_work(terminal: Terminal) -> None:
    terminal.say("echo Eve | $DET asks.py | tr a-z A-Z")
    terminal.wait_for("GOT EVE")


def test_ctrl_c_interrupts_the_script_alone(terminal: Terminal) -> None:
    terminal.say("$DET waits.py; echo status $?.")
    terminal.wait_for("waiting True")
    terminal.say("\x03", end="")
    terminal.wait_for("interrupted")
    terminal.wait_for("status 9.")


def test_ctrl_z_stops_the_job_and_fg_continues_it(terminal: Terminal) -> None:
    terminal.say("$DET waits.py")
    terminal.wait_for("waiting True")
    terminal.say("\x1a", end="")
    terminal.wait_for("Stopped")
    terminal.say("fg > /dev/null; echo status $?.")
    _wait_until(lambda: not terminal.is_with_the_shell)
    terminal.say("\x03", end="")
    terminal.wait_for("interrupted")


def test_the_script_ends_with_the_command(terminal: Terminal) -> None:
    terminal.say("$DET waits.py & pid=$!")
    terminal.wait_for("waiting False as ")
    script = int(terminal.wait_for(".").rstrip("."))
    terminal.say("kill -9 $pid; wait $pid; echo status $?.")
    terminal.wait_for("status 137.")
    _wait_until(lambda: not psutil.pid_exists(script))


def test_another_environment_starts_cold(terminal: Terminal) -> None:
    assert "cold" in terminal.ask("OMP_NUM_THREADS=7 $DET tell.py", "]")


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
