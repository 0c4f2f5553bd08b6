"""A Ray cluster of machines with networks of their own, whose cables can be pulled out.

The head is in this network namespace, each node in another one. A bridge joins them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

_MEMORY = 80 << 20
_START_SECONDS = 60.0
# A node is dead after some six seconds without an answer, and knows it about ten seconds later.
_HEALTH = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 4,
    "gcs_rpc_server_reconnect_timeout_s": 10,
    "enable_worker_prestart": False,
}


class SeparateMachines:
    """A head at the first address of a network, and machines that have names."""

    def __init__(self, folder: Path, num_cpus: int = 0) -> None:
        self._folder = folder
        self._tag = f"det{os.getpid() % 100_000}"
        self._network = f"10.213.{os.getpid() % 250}"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._names: list[str] = []
        _ip("link", "add", self._tag, "type", "bridge")
        _ip("addr", "add", f"{self._network}.1/24", "dev", self._tag)
        _ip("link", "set", self._tag, "up")
        self._port = _free_port(f"{self._network}.1")
        self._num_cpus = num_cpus
        self.start_head()

    @property
    def address(self) -> str:
        return f"{self._network}.1:{self._port}"

    def start_head(self) -> None:
        """Start it, also again: as another cluster at the same address.

        The old nodes are not part of it; Ray refuses to start while it sees their processes.
        """
        for name in list(self._running):
            self.kill(name)
        arguments = [f"--port={self._port}", "--include-dashboard=false", "--head"]
        arguments.append(f"--system-config={json.dumps(_HEALTH)}")
        self._start("head", [], f"{self._network}.1", self._num_cpus, *arguments)

    def start(self, name: str, num_cpus: int = 1) -> None:
        """Start a node on a machine, a new one or one whose node has ended."""
        if name not in self._names:
            self._plug_in(name)
        elif name in self._running:
            self.kill(name)  # what is left of it
        inside = ["ip", "netns", "exec", self._space(name)]
        self._start(name, inside, self._address(name), num_cpus, f"--address={self.address}")

    def cut(self, name: str) -> None:
        _ip("link", "set", self._cable(name), "down")

    def mend(self, name: str) -> None:
        _ip("link", "set", self._cable(name), "up")

    def kill(self, name: str) -> None:
        """Kill all processes of a node at once but those of runs."""
        starter = self._running.pop(name)
        with contextlib.suppress(psutil.Error):
            family = psutil.Process(starter.pid).children(recursive=True)
            starter.kill()
            for process in family:
                process.kill()
        starter.wait()

    def disk(self, name: str) -> Path:
        """What the node of a machine has as its DET_NODE_DIR."""
        return self._folder / f"disk-{name}"

    def close(self) -> None:
        for name in list(self._running):
            self.kill(name)
        for name in self._names:
            _ip("link", "del", self._cable(name))
            _ip("netns", "del", self._space(name))
        _ip("link", "del", self._tag)

    def _start(
        self, name: str, inside: list[str], here: str, num_cpus: int, *arguments: str
    ) -> None:
        self.disk(name).mkdir(mode=0o700, exist_ok=True)
        command = [*inside, sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
        command += [f"--node-ip-address={here}", f"--num-cpus={num_cpus}", "--disable-usage-stats"]
        command += [f"--object-store-memory={_MEMORY}", *arguments]
        said = self._folder / f"{name}.out"
        with said.open("wb") as out:
            self._running[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, "DET_NODE_DIR": str(self.disk(name))},
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while b"runtime started" not in said.read_bytes():
            assert self._running[name].poll() is None, said.read_text()
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.05)

    def _plug_in(self, name: str) -> None:
        space, cable = self._space(name), self._cable(name)
        self._names.append(name)
        _ip("netns", "add", space)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", cable, "master", self._tag, "up")
        _ip("-n", space, "addr", "add", f"{self._address(name)}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _ip("-n", space, "link", "set", device, "up")

    def _address(self, name: str) -> str:
        return f"{self._network}.{self._names.index(name) + 2}"

    def _space(self, name: str) -> str:
        return f"{self._tag}-{name}"

    def _cable(self, name: str) -> str:
        return f"{self._tag}-{name}"[-15:]  # the kernel takes no longer names


def require_networks() -> None:
    """Skip the test unless namespaces and bridges can be made here."""
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` command here")
    name = f"try{os.getpid()}"
    with contextlib.ExitStack() as made:
        try:
            for what in (["netns", "add", name], ["link", "add", name, "type", "bridge"]):
                _ip(*what)
                made.callback(_ip, what[0], "del", what[2])
        except subprocess.CalledProcessError as error:
            words = error.stderr.decode(errors="replace").strip()
            pytest.skip(f"no network namespaces can be made here: {words}")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def _free_port(address: str) -> int:
    with socket.socket() as found:
        found.bind((address, 0))
        port: int = found.getsockname()[1]
        return port
