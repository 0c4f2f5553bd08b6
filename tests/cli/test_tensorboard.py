"""`det tensorboard start` over stored trials: what TensorBoard shows, and that it ends cleanly."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from tests.cli.det import DEADLINE_SECONDS, run_det
from tests.cli.scripts import STEPS
from tests.support.lab import Lab

pytest.importorskip("tensorboard")
pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def test_nothing_to_show_is_told_before_anything_starts(lab: Lab) -> None:
    for words, code, told in (
        ([], 2, "Give an experiment, or trials with -t."),
        (["99"], 1, "There is no experiment 99."),
        (["-t", "1,99"], 1, "There is no trial 1."),
        (["1", "--detach"], 2, "append `&` to the command"),
    ):
        answer = run_det("tensorboard", "start", *words)
        assert answer.returncode == code
        assert told in answer.stderr


def test_trials_are_shown_with_and_without_event_files(lab: Lab, tmp_path: Path) -> None:
    grid = {"lr": {"type": "categorical", "vals": [0.1, 0.2]}}
    searcher = {"name": "grid", "metric": "loss"}
    lab.wait(lab.create(STEPS, hyperparameters=grid, searcher=searcher))
    for file in (lab.home.tensorboard / "2").iterdir():
        file.unlink()  # as if it had written none: the records have its metrics
    with _tensorboard(tmp_path) as (process, url):
        tags = _until_both_are_loaded(url)
        expected = {"Determined/loss", "Determined/val_loss"}
        expected |= {"Determined/zero", "Determined/val_nothing"}
        assert {name: set(found) for name, found in tags.items()} == {
            "experiment-1/trial-1": expected,
            "experiment-1/trial-2": expected,
        }
        query = "data/plugin/scalars/scalars?tag=Determined%2Fval_loss&run=experiment-1%2Ftrial-"
        one, two = ([p[1:] for p in _get(url, f"{query}{trial}")] for trial in (1, 2))
        assert [step for step, _ in one] == [step for step, _ in two] == [10, 20]
        assert [value for _, value in one] == pytest.approx([0.3, 0.25], abs=1e-6)
        local = f"localhost:{urlsplit(url).port}"
        for stranger in ({}, {"Host": "evil.example"}, {"Host": local}, {"Cookie": "x=y"}):
            status, said = _ask(url, "data/plugin/scalars/tags", stranger)
            assert (status, b"experiment" in said) == (403, False), stranger
        assert _end(process, signal.SIGINT) == 0
    assert list(tmp_path.glob("det-*")) == []


def test_it_ends_with_the_command_also_if_that_is_killed(lab: Lab, tmp_path: Path) -> None:
    lab.wait(lab.create(STEPS))
    with _tensorboard(tmp_path) as (process, _):
        assert _end(process, signal.SIGTERM) == 0
    assert list(tmp_path.glob("det-*")) == []
    if sys.platform == "linux":
        with _tensorboard(tmp_path, "-c", _AS_A_DASHBOARD, str(lab.home.path)) as (process, _):
            assert _end(process, signal.SIGKILL) == -signal.SIGKILL


# It starts one in a thread that ends before the process does.
_AS_A_DASHBOARD = """
import psutil, sys, threading, time
from pathlib import Path
from determined.dashboard.tensorboards import TensorBoards
from determined.platform.homes.home import Home
from determined.platform.service import Service
boards = TensorBoards(Service(Home(Path(sys.argv[1]))))
thread = threading.Thread(target=boards.open, args=([1], []))
thread.start()
thread.join()
time.sleep(0.5)
assert [child.status() for child in psutil.Process().children()] != ["zombie"]
print("TensorBoard is running at:", boards.open([1], []).url, flush=True)
time.sleep(600)
"""
_COMMAND = ("-m", "determined.cli", "tensorboard", "start", "1", "--no-browser")


@contextlib.contextmanager
def _tensorboard(temporary: Path, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The command at work in a session of its own, and where its TensorBoard answers."""
    process = subprocess.Popen(
        [sys.executable, *(words or _COMMAND)],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline().decode()
        assert first.startswith("TensorBoard is running at: http://tb-")
        yield process, first.split()[-1]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> int:
    """Signal the command; return its status once its processes are gone too."""
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.send_signal(number)
    status = process.wait(DEADLINE_SECONDS)
    try:
        assert psutil.wait_procs(children, 30)[1] == []
    finally:
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.kill()
    return status


def _get(url: str, path: str) -> Any:
    """What it answers to whoever has the address that was printed."""
    return json.loads(_ask(url, path, {"Authorization": f"Bearer {url.rpartition('=')[2]}"})[1])


def _ask(url: str, path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
    """Status and body. Not every resolver knows names below localhost, so they go into Host."""
    host = urlsplit(url)
    connection = http.client.HTTPConnection("localhost", host.port, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", f"/{path}", headers={"Host": host.netloc, **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()


def _until_both_are_loaded(url: str) -> dict[str, Any]:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        tags: dict[str, Any] = _get(url, "data/plugin/scalars/tags")
        if len(tags) == 2 and all(len(found) == 4 for found in tags.values()):
            return tags
        assert time.monotonic() < deadline, tags
        time.sleep(0.2)


def test_a_port_that_is_taken_is_named(lab: Lab) -> None:
    lab.wait(lab.create(STEPS))
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        answer = run_det("tensorboard", "start", "1", "--no-browser", "--port", port)
    assert answer.returncode == 1
    assert answer.stderr == f"det: --port {port}: Address already in use.\n"
