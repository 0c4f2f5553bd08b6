"""What is checked on which device. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# By name: what the table says of it.
CHECKS = {
    "devices": "the devices that the driver lists are those that torch uses",
    "resume": "a run that was stopped and continued in a new process ends with the same bits",
    "waits": "the loop never waits for the device between reports",
    "amp": "mixed precision computes in the narrow type, and learns",
    "saving": "a checkpoint holds the weights of its batch, while training goes on",
    "ddp": "ranks over all devices agree, and train what one process trains",
    "ddp-gloo": "the same through gloo",
    "fsdp": "a sharded model trains what a whole one trains",
    "slots": "trials that run at once get different slots, and see their own device",
    "overhead": "the loop adds less than half a millisecond per batch to a plain one",
}
_ON_EACH_DEVICE = ("resume",)


class Planned(NamedTuple):
    """One check on one device; those of one stage may run at the same time."""

    check: str
    device: str
    stage: int


def plan(devices: Sequence[str], only: Sequence[str] = ()) -> list[Planned]:
    """Return the checks in order: most on the first device, each its own stage."""
    planned = []
    for stage, check in enumerate(only or CHECKS):
        chosen = devices if check in _ON_EACH_DEVICE else devices[:1]
        planned += [Planned(check, device, stage) for device in chosen]
    return planned
