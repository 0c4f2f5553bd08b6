"""`det dashboard`: it says where it is, serves, and ends when it is told to."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import psutil
import pytest

from determined.platform.homes.home import Home
from determined.platform.supervisor import presence
from tests.support import old_homes

_COMMAND = [sys.executable, "-m", "determined.cli", "dashboard", "--no-browser"]


def start(home: Path, *options: str) -> tuple[subprocess.Popen[str], str]:
    """Start a dashboard; returns it with what it said until it was ready."""
    process = subprocess.Popen(
        [*_COMMAND, *options],
        env={**os.environ, "DET_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    killer = threading.Timer(90, process.kill)
    killer.start()
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if "Ctrl-C" in line:
            break
    killer.cancel()
    return process, said


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Interrupt it; returns its exit code and the rest of what it said."""
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    return process.returncode, rest


@pytest.mark.slow
def test_the_printed_address_opens_the_dashboard(tmp_path: Path) -> None:
    home = tmp_path / "home"
    process, said = start(home, "--port", "0")
    try:
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=(\S+)", said)
        assert found is not None, said
        assert str(home) in said
        assert psutil.Process(process.pid).nice() == psutil.Process().nice()  # trials inherit it
        with httpx.Client(follow_redirects=True, timeout=60) as client:
            assert client.get(found[0]).status_code == 200
            base = found[0].partition("?")[0]
            session = client.get(f"{base}api/session").json()
            assert session["home"] == str(home)
            client.get(f"{base}nowhere?token={found[1]}x")
            for path in ("", "nowhere", "api/x", "static/x"):
                shown = client.get(f"{base}{path}?token={found[1]}", follow_redirects=False)
                assert found[1] not in f"{shown.headers}{shown.text}"
            commands = subprocess.run(["ps", "axeww", "-o", "args"], capture_output=True, text=True)
            assert found[1] not in commands.stdout
            with client.stream("GET", f"{base}api/events") as stream:  # open while it ends
                assert next(stream.iter_lines()).startswith("retry")
                code, rest = end(process)
    finally:
        process.kill()
        process.wait()
    assert code in (0, 3)
    assert found[1] not in rest
    assert "Traceback" not in rest
    assert list(home.iterdir()) == [home / "dashboard.token"]


@pytest.mark.slow
def test_a_dashboard_for_other_machines_says_what_that_means(tmp_path: Path) -> None:
    process, said = start(tmp_path / "home", "--host", "0.0.0.0", "--port", "0")
    try:
        assert "any machine" in said
        assert "not encrypted" in said
        address = re.search(r"http://127\.0\.0\.1:\d+/", said)
        assert address is not None
        assert httpx.get(f"{address[0]}api/session").status_code == 401
        foreign = httpx.get(f"{address[0]}api/session", headers={"Host": "evil.example"})
        assert foreign.status_code == 403
    finally:
        end(process)


@pytest.mark.slow
def test_a_home_of_an_older_version_is_brought_up_to_date_first(tmp_path: Path) -> None:
    home = tmp_path / "home"
    old_homes.unpack(1, home)
    process, said = start(home, "--port", "0")
    try:
        found = re.search(r"http://\S+/\?token=\S+", said)
        assert found is not None, said
        with httpx.Client(follow_redirects=True, timeout=60) as client:
            client.get(found[0])
            answer = client.get(f"{found[0].partition('?')[0]}api/experiments")
            assert answer.json()["total"] == 1
    finally:
        _, rest = end(process)
        presence.stop(Home(home))
    assert "Traceback" not in rest


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = subprocess.run(
            [*_COMMAND, "--port", str(taken.getsockname()[1])],
            env={**os.environ, "DET_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            timeout=90,
        )
    assert done.returncode == 1
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr
