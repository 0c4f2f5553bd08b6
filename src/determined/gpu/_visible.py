"""What a list such as CUDA_VISIBLE_DEVICES leaves visible. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

Device = TypeVar("Device")


class Choice(NamedTuple, Generic[Device]):
    """What an entry of a list can name: the names, the devices it stands for, and its number."""

    names: tuple[str, ...]
    devices: tuple[Device, ...]
    number: int | None = None


def visible(choices: Sequence[Choice[Device]], limit: str | None) -> list[Device]:
    """Return what the list leaves visible, in its order; without a list, all that has a number.

    The rules are those of the vendors: an entry is a number, a name, or the start of one name; the
    list ends at the first entry that is none of these, and one that repeats a device shows none.
    """
    if limit is None:
        return [device for c in choices if c.number is not None for device in c.devices]
    chosen: list[Device] = []
    for entry in (word.strip() for word in limit.split(",")):
        fitting = _fitting(choices, entry)
        if len(fitting) != 1:
            break
        if any(device in chosen for device in fitting[0].devices):
            return []
        chosen += fitting[0].devices
    return chosen


def _fitting(choices: Sequence[Choice[Device]], entry: str) -> list[Choice[Device]]:
    if entry.isdecimal():
        return [choice for choice in choices if choice.number == int(entry)]
    if exact := [choice for choice in choices if entry in choice.names]:
        return exact
    return [c for c in choices if entry and any(name.startswith(entry) for name in c.names)]
