"""The cluster that runs the trials of a home: its live nodes, and an agent on each of them.

It relies on the following of Ray 2.60 (`docs/architecture.md` has more):
- A detached actor and a detached placement group outlive the driver and are found by name.
- An actor that is bound to a node and may restart is back a few seconds after its process is
  killed; calls raise ActorUnavailableError until then, other errors once the node is dead.
- A worker that ends takes its children with it, but not processes that it has disowned.
- A bundle of a placement group is bound to a node by the label `ray.io/node-id`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from determined._version import __version__
from determined.errors import DeterminedError
from determined.platform.homes.home import Home
from determined.platform.machines.cluster import INSECURE_VARIABLE, ClusterSettings
from determined.platform.machines.nodes import Node, NodeTable, load_nodes
from determined.platform.machines.slots import Machine
from determined.platform.runs.launchers.protocol import RunNotPlacedError
from determined.platform.runs.launchers.ray.agent import Agent, NodeFacts
from determined.platform.runs.launchers.ray.connection import NAMESPACE, Connection

try:
    import ray
    from ray.exceptions import (
        ActorUnavailableError,
        ActorUnschedulableError,
        RayActorError,
        RayError,
    )
    from ray.util.placement_group import PlacementGroup
    from ray.util.scheduling_strategies import (
        NodeAffinitySchedulingStrategy,
        PlacementGroupSchedulingStrategy,
    )
except ImportError as missing:
    raise DeterminedError(
        "Runs should go to a Ray cluster, but Ray is not installed here: "
        f"`pip install 'determined-pytorch[ray]'`, on all nodes too. ({missing})"
    ) from None

logger = logging.getLogger("determined.supervisor")

_POLL_SECONDS = 2.0
_RETRY_SECONDS = 0.3
_DESCRIBE_SECONDS = 60.0
_RECONNECT_SECONDS = 30.0
_RESERVE_SECONDS = 20
_MOST_CALLS = 100_000  # concurrent calls of an agent: one per run waits for news
_LABEL = "ray.io/node-id"
_POOL_LABEL = "pool"
_DRAINED = "it is being drained. Trials there save and go on elsewhere."


class NodeGoneError(DeterminedError):
    """A node has left the cluster, and what ran there with it."""


async def open_cluster(home: Home, settings: ClusterSettings) -> Cluster:
    """Connect and find the nodes; if the cluster does not answer, keep trying."""
    table = load_nodes(home.cluster) or NodeTable(settings.address)
    cluster = Cluster(home, settings, replace(table, address=settings.address))
    await cluster.open()
    return cluster


class Cluster:
    """Nodes, agents and reservations."""

    def __init__(self, home: Home, settings: ClusterSettings, table: NodeTable) -> None:
        self._home = home
        self._settings = settings
        self._table = table
        self._machine = table.machine
        self._connection = Connection(settings)
        self._is_open = asyncio.Event()
        self._agents: dict[str, Any] = {}
        self._facts: dict[str, NodeFacts | str] = {}
        self._not_before: dict[str, float] = {}
        """When nodes that no agent can run on are tried again."""
        self._refreshing = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None

    def machine(self) -> Machine:
        """What there is to schedule on; the same object until that changes."""
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        return self._machine

    def is_alive(self, node: str) -> bool:
        return node in self._agents

    @property
    def home_id(self) -> str:
        return self._table.home

    async def close(self) -> None:
        """Stop watching, and end the agents that keep no runs."""
        if self._watching is not None:
            self._watching.cancel()
        for node, agent in list(self._agents.items()):
            with contextlib.suppress(Exception):
                if not await asyncio.wait_for(self._call(node, "keys"), _DESCRIBE_SECONDS):
                    ray.kill(agent)

    async def open(self) -> None:
        """Connect and find the nodes; if the cluster cannot be reached, record why."""
        try:
            await self._connection.open()
        except DeterminedError as error:
            if self._watching is not None and str(error) != self._table.trouble:
                logger.warning("%s", error)
            await self._publish(replace(self._table, trouble=str(error)))
            return
        await self.refresh()
        await self.release_unused()
        self._is_open.set()

    # Nodes

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                await (self.refresh() if self._is_open.is_set() else self.open())
            except Exception:  # the head may be away for a while: keep what is known
                logger.exception("the cluster's state cannot be read")

    async def refresh(self) -> None:
        """Find the live nodes, and start agents on new ones."""
        async with self._refreshing:
            nodes = [node for node in await asyncio.to_thread(ray.nodes) if node["Alive"]]
            living = {node["NodeID"]: node for node in nodes}
            for gone in self._agents.keys() - living.keys():
                logger.warning("node %s has left the cluster", gone)
                del self._agents[gone]
                self._facts.pop(gone, None)
            slots = {key: self._count_slots(node, nodes) for key, node in living.items()}
            new = [key for key, count in slots.items() if count and key not in self._agents]
            now = time.monotonic()
            due = [key for key in new if now >= self._not_before.get(key, 0.0)]
            await asyncio.gather(*(self._connect_agent(key) for key in due))
            await asyncio.gather(*(self._refresh_facts(key) for key in self._full_nodes()))
            draining = await asyncio.to_thread(_draining_nodes)
            found = [
                self._describe(living[key], count, is_draining=key in draining)
                for key, count in slots.items()
                if count and key in self._facts
            ]
            await self._publish(self._table.updated(found))

    async def _publish(self, table: NodeTable) -> None:
        """Schedule on the nodes known now, and publish them for clients."""
        shown = load_nodes(self._home.cluster)
        if shown is None or replace(shown, seen=table.seen) != table:
            self._table = table
            self._machine = table.machine
            await asyncio.to_thread(table.save, self._home.cluster)

    def _count_slots(self, node: Mapping[str, Any], nodes: list[dict[str, Any]]) -> int:
        kind = self._settings.slot_type
        if kind is None:
            kind = "gpu" if any(other["Resources"].get("GPU") for other in nodes) else "cpu"
        return int(node["Resources"].get(kind.upper(), 0))

    def _describe(self, node: Mapping[str, Any], count: int, *, is_draining: bool) -> Node:
        facts = self._facts[node["NodeID"]]
        known = facts if isinstance(facts, NodeFacts) else None
        objection = facts if isinstance(facts, str) else self._objection(facts, node)
        label = node.get("Labels", {}).get(_POOL_LABEL)
        pools = {name for name in node["Resources"] if _is_custom(name)} | (
            {label} if label else set()
        )
        return Node(
            id=node["NodeID"],
            host=known.host if known else node["NodeManagerHostname"],
            address=node["NodeManagerAddress"],
            num_slots=count,
            has_gpus=bool(node["Resources"].get("GPU")) and self._settings.slot_type != "cpu",
            cores=known.cores if known else 1,
            pools=tuple(sorted(pools)),
            left_out=_DRAINED if is_draining else objection,
            is_leaving=is_draining,
        )

    def _objection(self, facts: NodeFacts, node: Mapping[str, Any]) -> str:
        if facts.version != __version__:
            return (
                f"it has determined-pytorch {facts.version}, the supervisor {__version__}: "
                "install the same version there."
            )
        if facts.full:
            return (
                f"its disk has no room left in {facts.full}: make some, or set DET_NODE_DIR to "
                "another folder there."
            )
        is_open = facts.auth_mode != "token" and not _is_loopback(node["NodeManagerAddress"])
        if is_open and not self._settings.is_insecure:
            return (
                "anyone who can reach it can run code there. Start the cluster with "
                "RAY_AUTH_MODE=token, or accept it as it is: `insecure: true` below `cluster:` in "
                f"platform.yaml, or {INSECURE_VARIABLE}=1."
            )
        return ""

    def _full_nodes(self) -> list[str]:
        facts = self._facts.items()
        return [node for node, known in facts if isinstance(known, NodeFacts) and known.full]

    async def _refresh_facts(self, node: str) -> None:
        """Ask a node for its facts; if it does not answer, keep the old ones."""
        if agent := self._agents.get(node):
            with contextlib.suppress(RayError, asyncio.TimeoutError):
                self._facts[node] = await asyncio.wait_for(_ask(agent), _DESCRIBE_SECONDS)

    async def require_room(self, node: str) -> None:
        """Exclude a node while its disk is full; RunNotPlacedError if it is."""
        try:
            self._facts[node] = await self.call(node, "describe")
        except NodeGoneError as error:
            raise RunNotPlacedError(str(error)) from error
        if node in self._full_nodes():
            await self.refresh()
            raise RunNotPlacedError(f"The disk of node {node} has no room left.")

    async def _connect_agent(self, node: str) -> None:
        """Find the agent of a node, or start one, and ask for its facts."""
        try:
            agent, facts = await asyncio.wait_for(self._find_current_agent(node), _DESCRIBE_SECONDS)
        except Exception as error:
            why = _why_no_agent(error)
            if self._facts.get(node) != why:
                logger.warning("node %s: %s", node, why)
            self._facts[node] = why
            self._not_before[node] = time.monotonic() + _RECONNECT_SECONDS
            return
        self._agents[node], self._facts[node] = agent, facts

    async def _find_current_agent(self, node: str) -> tuple[Any, NodeFacts]:
        agent = self._find_agent(node)
        facts = await _ask(agent)
        if facts.version != __version__:  # the package may have been updated since
            ray.kill(agent, no_restart=False)
            await asyncio.sleep(_RETRY_SECONDS)
            facts = await _ask_until_available(agent)
        return agent, facts

    def _find_agent(self, node: str) -> Any:
        return (
            ray.remote(Agent)
            .options(
                name=f"{self._prefix}agent-{node}",
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_restarts=-1,
                max_concurrency=_MOST_CALLS,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            )
            .remote(self._table.home, node)
        )

    async def call(self, node: str, verb: str, *arguments: Any) -> Any:
        """Call an agent, again while it restarts; NodeGoneError once its node is gone."""
        await self._is_open.wait()
        return await self._call(node, verb, *arguments)

    async def _call(self, node: str, verb: str, *arguments: Any) -> Any:
        while (agent := self._agents.get(node)) is not None:
            try:
                return await getattr(agent, verb).remote(*arguments)
            except ActorUnavailableError:
                await asyncio.sleep(_RETRY_SECONDS)
            except (RayActorError, ActorUnschedulableError):
                await asyncio.sleep(_RETRY_SECONDS)
                await self.refresh()
                if node in self._agents:  # the agent was ended, but not the node
                    self._agents[node] = self._find_agent(node)
        raise NodeGoneError(f"Node {node} has left the cluster.")

    # Reservations

    @property
    def _prefix(self) -> str:
        return f"determined-{self._table.home}-"

    async def reserve(self, key: str, bundles: Mapping[str, Mapping[str, float]]) -> None:
        """Have the cluster reserve resources for a run; RunNotPlacedError if it has none."""
        await self.release(key)
        await asyncio.to_thread(self._reserve, key, bundles)

    def _reserve(self, key: str, bundles: Mapping[str, Mapping[str, float]]) -> None:
        group = ray.util.placement_group(
            [dict(bundle) for bundle in bundles.values()],
            name=self._prefix + key,
            lifetime="detached",
            bundle_label_selector=[{_LABEL: node} for node in bundles],
        )
        for _ in range(_RESERVE_SECONDS):
            if group.wait(1):
                return
            if gone := [node for node in bundles if not self.is_alive(node)]:
                break
        ray.util.remove_placement_group(group)
        if gone:
            raise NodeGoneError(f"Node {gone[0]} has left the cluster.")
        wanted = ", ".join(f"{dict(b)} of node {node}" for node, b in bundles.items())
        raise RunNotPlacedError(
            f"The cluster could not reserve {wanted} within {_RESERVE_SECONDS} s: something else "
            "is using it."
        )

    async def devices(self, key: str, index: int, count: float) -> list[str]:
        """The GPUs that a reservation holds on its node number `index`."""
        strategy = PlacementGroupSchedulingStrategy(
            self._group(key), placement_group_bundle_index=index
        )
        task = ray.remote(_visible_devices).options(
            num_cpus=0, num_gpus=count, scheduling_strategy=strategy
        )
        found: list[str] = await task.remote()
        return found

    async def release(self, key: str) -> None:
        """Release what is reserved for a run."""
        with contextlib.suppress(ValueError):
            ray.util.remove_placement_group(await asyncio.to_thread(self._group, key))

    def _group(self, key: str) -> PlacementGroup:
        group: PlacementGroup = ray.util.get_placement_group(self._prefix + key)
        return group

    async def release_unused(self) -> None:
        """Release what is reserved for runs that no node knows: their supervisor died."""
        known = {key for node in self._agents for key in await self._call(node, "keys")}
        for group in (await asyncio.to_thread(ray.util.placement_group_table)).values():
            key = group["name"].removeprefix(self._prefix)
            is_ours = group["name"].startswith(self._prefix) and group["state"] != "REMOVED"
            if is_ours and key not in known:
                await self.release(key)


async def _ask(agent: Any) -> NodeFacts:
    facts: NodeFacts = await agent.describe.remote()
    return facts


async def _ask_until_available(agent: Any) -> NodeFacts:
    while True:
        try:
            return await _ask(agent)
        except ActorUnavailableError:
            await asyncio.sleep(_RETRY_SECONDS)


def _why_no_agent(error: Exception) -> str:
    line = (str(error).strip() or type(error).__name__).splitlines()[-1]
    if "No module named 'determined" in line:
        return "its Python has no determined-pytorch: install the same version there."
    return f"no agent can run there: {line}"


def _draining_nodes() -> Mapping[str, int]:
    """The nodes that are about to be taken away; Ray has no public name for this.

    None are known through Ray's client server.
    """
    try:
        found: Mapping[str, int] = ray._private.state.state.get_draining_nodes()
    except Exception:
        return {}
    return found


def _visible_devices() -> list[str]:
    return [str(number) for number in ray.get_gpu_ids()]


def _is_custom(resource: str) -> bool:
    built_in = ("CPU", "GPU", "memory", "object_store_memory", "accelerator_type")
    return not resource.startswith(("node:", "accelerator_type:")) and resource not in built_in


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address in ("::1", "localhost")
