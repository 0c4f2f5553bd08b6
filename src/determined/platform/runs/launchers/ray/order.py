"""What an agent has to start. Pure, except for finding the interpreter of a node."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from determined.platform.runs.folder import RunFolder, RunSpec
from determined.platform.runs.launchers.remote.mirror import TENSORBOARD
from determined.platform.runs.placement import Placement

_PATHS = {"DET_RUN_DIR": "path", "DET_INFO_DIR": "info", "DET_WORKDIR": "workdir"}
TENSORBOARD_VARIABLE = "DET_TENSORBOARD_DIR"
_OF_HOME = "DET_HOME"


class Order(NamedTuple):
    """One part of a run: everything that its folder on the node is made of."""

    key: str
    spec: RunSpec
    environment: dict[str, str]
    info: dict[str, Any]
    control: bytes | None
    code: str | None
    interpreter: str


def order_for(
    run: RunFolder,
    placement: Placement,
    index: int,
    ports: Mapping[str, str],
    devices: Sequence[str],
    notes: Sequence[str] = (),
) -> Order:
    """What the node of part `index` is to start; `devices` are its GPUs there.

    The log begins with `notes`.
    """
    part = placement.parts[index]
    info = run.read_info()
    if "rendezvous" in info:
        info["rendezvous"]["container_rank"] = index
    if "cluster" in info:
        info["cluster"] |= {"agent_id": part.host, "slot_ids": list(part.slots)}
    if "resources" in info:
        info["resources"]["gpu_uuids"] = list(devices)
    environment = {**run.environment, **ports, "DET_AGENT_ID": part.host}
    environment["DET_SLOT_IDS"] = str(list(part.slots))
    if placement.has_gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    control = run.control.read_bytes() if run.control.exists() else None
    spec = run.spec
    prologue = "".join(f"{note}\n" for note in notes) + spec.prologue
    spec = spec._replace(prologue="" if index else prologue)  # once is enough
    return Order(
        spec.allocation_id, spec, environment, info, control, placement.code, placement.interpreter
    )


def settled(order: Order, run: RunFolder, node_interpreter: str) -> Order:
    """The order with the paths of the node that received it."""
    environment = dict(order.environment)
    environment |= {
        name: str(getattr(run, attribute))
        for name, attribute in _PATHS.items()
        if name in environment
    }
    if TENSORBOARD_VARIABLE in environment:
        environment[TENSORBOARD_VARIABLE] = str(run.path / TENSORBOARD)
    environment.pop(_OF_HOME, None)  # there is none here, and none may be created
    mine = interpreter_on(order.interpreter, node_interpreter)
    argv = tuple(mine if word == order.interpreter else word for word in order.spec.argv)
    if mine != order.interpreter and "PATH" in environment:
        first = str(Path(mine).parent)
        others = [p for p in environment["PATH"].split(os.pathsep) if p and p != first]
        environment["PATH"] = os.pathsep.join([first, *others])
    return order._replace(environment=environment, spec=order.spec._replace(argv=argv))


def interpreter_on(wanted: str, own: str) -> str:
    """The interpreter of the experiment where a node has it, else the node's own."""
    return wanted if wanted and os.access(wanted, os.X_OK) else own
