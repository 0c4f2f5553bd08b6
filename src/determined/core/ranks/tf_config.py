"""The ranks that TensorFlow's variable `TF_CONFIG` describes."""

from __future__ import annotations

import json
from typing import Any

_EXPECTED = (
    'TF_CONFIG must be JSON like {"cluster": {"worker": ["host0:port", "host1:port"]}, "task": '
    '{"type": "worker", "index": 0}}'
)


def read_tf_config(text: str) -> dict[str, Any]:
    """Return the arguments of DistributedContext; the first worker is the chief."""
    try:
        config = json.loads(text)
        kind, index = config["task"]["type"], config["task"]["index"]
        addresses = [str(address) for address in config["cluster"].get("worker", [])]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{_EXPECTED}, got {text!r} ({type(error).__name__}: {error}).") from None
    others = sorted(set(config["cluster"]) - {"worker"})
    if kind != "worker" or others:
        raise RuntimeError(
            f"TF_CONFIG has task type {kind!r} in a cluster of {sorted(config['cluster'])}, but "
            "only workers are supported, as MultiWorkerMirroredStrategy has them."
        )
    if not isinstance(index, int) or not 0 <= index < len(addresses):
        raise ValueError(f"{_EXPECTED}; it has {len(addresses)} workers and task index {index!r}.")
    hosts = [address.rpartition(":")[0] or address for address in addresses]
    machines = list(dict.fromkeys(hosts))
    return {
        "rank": index,
        "size": len(hosts),
        "local_rank": hosts[:index].count(hosts[index]),
        "local_size": hosts.count(hosts[index]),
        "cross_rank": machines.index(hosts[index]),
        "cross_size": len(machines),
        "chief_ip": hosts[0].strip("[]"),
    }
