"""Clusters that everybody on the network may use, and those that ask for a token."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined.platform.machines.slots import free_ports
from determined.platform.supervisor import presence
from tests.cli.det import run_det
from tests.support import faults
from tests.support.clusters import ray_start
from tests.support.lab import Lab

pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]'")
pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(faults.factor() == 1, reason="takes a minute: set DET_TEST_FAULTS=2"),
]
_TOKEN = "0123456789abcdef" * 2
_LOOPBACK_ONLY = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


@pytest.fixture
def ray_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Short, for Ray makes sockets below it."""
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    monkeypatch.setenv("DET_NODE_DIR", str(folder / "disk"))
    monkeypatch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "60")
    monkeypatch.delenv("DET_CLUSTER_INSECURE", raising=False)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _head(port: int) -> tuple[str, ...]:
    """A cluster of one node."""
    (client,) = free_ports(1, taken=[port])
    ports = ("--port", str(port), "--ray-client-server-port", str(client))
    return ("--head", *ports, "--num-cpus", "1", "--include-dashboard", "false")


def test_a_token_lets_in_those_who_have_it(
    ray_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setenv("DET_CLUSTER", f"127.0.0.1:{port}")
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _TOKEN}
    lab = Lab(tmp_path)
    monkeypatch.setenv("DET_HOME", str(lab.home.path))
    with ray_start(*_head(port), log=tmp_path / "ray.log", **variables):
        try:
            lab.until(lambda: not _is_free(port))
            experiment_id = lab.create("import os; print('mode', os.environ.get('RAY_AUTH_MODE'))")
            listed = run_det("slot", "list").stdout
            assert "If it asks for a token: set RAY_AUTH_MODE=token" in listed
            assert "no node of the cluster can be used" in listed
            assert presence.stop(lab.home)  # though Ray keeps trying
            for name, value in variables.items():
                monkeypatch.setenv(name, value)
            assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
            assert "left out" not in run_det("slot", "list").stdout
            assert "mode None" in lab.log(lab.runs(experiment_id)[0])  # as where it was created
        finally:
            lab.close()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_an_open_cluster_that_only_loopback_reaches_is_used(
    ray_folder: Path, tmp_path: Path
) -> None:
    """In a network namespace that has nothing else: this test runs itself there."""
    answer = subprocess.run(
        [*_LOOPBACK_ONLY, sys.executable, "-m", __name__, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=200,
    )
    if "Operation not permitted" in answer.stderr:
        pytest.skip("no network namespaces here")
    assert answer.returncode == 0, answer.stderr
    assert "(127.0.0.1)" in answer.stdout
    assert "left out" not in answer.stdout


def _on_loopback(folder: Path) -> None:
    (port,) = free_ports(1)
    with pytest.MonkeyPatch.context() as patch, ray_start(*_head(port), log=folder / "ray.log"):
        patch.setenv("DET_CLUSTER", f"127.0.0.1:{port}")
        lab = Lab(folder)
        patch.setenv("DET_HOME", str(lab.home.path))
        try:
            assert lab.wait(lab.create("pass")).state == "COMPLETED", lab.account()
            sys.stdout.write(run_det("slot", "list").stdout)
        finally:
            lab.close()


if __name__ == "__main__":
    _on_loopback(Path(sys.argv[1]))
