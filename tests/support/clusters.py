"""A Ray cluster of several nodes on this machine."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from determined.platform.machines.slots import free_ports

_MEMORY = 80 << 20
_ATTEMPTS = 3
_NODES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"resources": {"big": 1}, "labels": {"pool": "special"}},
)


@contextlib.contextmanager
def ray_start(
    *arguments: str, log: Path, before: Sequence[str] = (), **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    """`ray start` with these arguments, as a user does; it ends with all that it started."""
    ports = ("--min-worker-port", "0", "--max-worker-port", "0")
    memory = ("--object-store-memory", str(_MEMORY), "--disable-usage-stats")
    words = (sys.executable, "-m", "ray.scripts.scripts", "start", "--block")
    with log.open("wb") as file:
        node = subprocess.Popen(
            [*before, *words, *arguments, *ports, *memory],
            stdout=file,
            stderr=file,
            env={**os.environ, "RAY_DISABLE_IMPORT_WARNING": "1", **variables},
        )
    try:
        yield node
    finally:
        ours = [psutil.Process(node.pid), *psutil.Process(node.pid).children(recursive=True)]
        node.terminate()
        node.wait(60)
        for process in psutil.wait_procs(ours, 10)[1]:
            process.kill()


class SimulatedCluster:
    """A head without slots and three nodes of two CPU slots each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        (self._client_port,) = free_ports(1)
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": _MEMORY}
        head |= {"include_log_monitor": False, "no_monitor": True}
        head["ray_client_server_port"] = self._client_port
        # Deaths are noticed sooner than by default, and no worker waits for work.
        config = {"health_check_period_ms": 500, "health_check_failure_threshold": 4}
        config |= {"enable_worker_prestart": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # Ray leaves a log file open
            self._cluster = Cluster(
                initialize_head=True, head_node_args={**head, "_system_config": config}
            )
        self.nodes = [self.add(**given) for given in _NODES]

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    @property
    def client_address(self) -> str:
        return f"ray://127.0.0.1:{self._client_port}"

    def add(self, num_cpus: int = 2, **given: Any) -> Any:
        """Start a node; Ray gives up after 30 s, which a machine under load may need."""
        for attempt in range(_ATTEMPTS):
            try:
                return self._cluster.add_node(
                    num_cpus=num_cpus, object_store_memory=_MEMORY, **given
                )
            except Exception as error:  # Ray raises no class of its own
                if "timed out during startup" not in str(error) or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    def wait_for(self, resource: str, process: subprocess.Popen[bytes]) -> bool:
        """Wait until a node has a resource; False if the process that brings it ends before."""
        import ray

        ray.init(self.address, ignore_reinit_error=True, log_to_driver=False)
        while not any(resource in node["Resources"] for node in ray.nodes()):  # type: ignore[no-untyped-call]  # of Ray
            if process.poll() is not None:
                return False
            time.sleep(0.1)
        return True

    def kill(self, node: Any) -> None:
        """Kill the raylet of a node at once, as a machine that fails."""
        os.kill(node.all_processes["raylet"][0].process.pid, signal.SIGKILL)

    def drain(self, node_id: str) -> None:
        """Announce that a node will be taken away, as a cloud does before it takes one back."""
        raylet: Any = importlib.import_module("ray._raylet")
        names: Any = importlib.import_module("ray.core.generated.autoscaler_pb2")
        reason = names.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
        client = raylet.GcsClient(address=self.address)
        accepted, why = client.drain_node(node_id, reason, "a test", 0)
        assert accepted, why

    @contextlib.contextmanager
    def without_head(self) -> Iterator[None]:
        """The head answers nobody meanwhile."""
        node: Any = self._cluster.head_node
        head = node.all_processes["gcs_server"][0].process.pid
        os.kill(head, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(head, signal.SIGCONT)

    def remove(self, node: Any) -> None:
        """Let a node leave, as `ray stop` does."""
        self._cluster.remove_node(node)

    def replace(self, node_id: str) -> None:
        """Let a node die, and put another one in its place."""
        (dying,) = (node for node in self.nodes if node.node_id == node_id)
        self.nodes.remove(dying)
        self.kill(dying)
        self.nodes.append(self.add())

    def close(self) -> None:
        import ray

        ours = psutil.Process().children(recursive=True)
        ray.shutdown()
        self._cluster.shutdown()  # type: ignore[no-untyped-call]  # of Ray
        _, left = psutil.wait_procs(ours, 10)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
