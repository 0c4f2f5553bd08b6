"""A Ray cluster of several nodes on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

import psutil

_MEMORY = 80 << 20
_ATTEMPTS = 3
_NODES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"resources": {"big": 1}, "labels": {"pool": "special"}},
)


class SimulatedCluster:
    """A head without slots and three nodes of two CPU slots each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": _MEMORY}
        head |= {"include_log_monitor": False, "no_monitor": True}
        # Deaths are noticed sooner than by default, and no worker waits for work.
        config = {"health_check_period_ms": 500, "health_check_failure_threshold": 4}
        config |= {"enable_worker_prestart": False}
        self._cluster = Cluster(
            initialize_head=True, head_node_args={**head, "_system_config": config}
        )
        self.nodes = [self.add(**given) for given in _NODES]

    @property
    def address(self) -> str:
        return str(self._cluster.address)

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

    def kill(self, node: Any) -> None:
        """Kill the raylet of a node at once, as a machine that fails."""
        os.kill(node.all_processes["raylet"][0].process.pid, signal.SIGKILL)

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
