"""CRC-32C of anything, fast enough for images: large data are cut into lanes that numpy reads."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from determined.tensorboard._records import _LAST_BYTE, _crc32c, _masked_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LANES = 1024
_SMALL = 16 * _LANES


def masked_crc32c(data: bytes) -> int:
    """The checksum of `data` as event files store it."""
    return int.from_bytes(_masked_bytes(crc32c(data)), "little")


def crc32c(data: bytes) -> int:
    """The checksum of `data`."""
    if len(data) < _SMALL:
        return _crc32c(data)
    length = len(data) // _LANES
    cut = length * _LANES
    lanes = np.frombuffer(data, np.uint8, cut).reshape(_LANES, length).T
    state = np.zeros(_LANES, np.uint32)
    state[0] = 0xFFFFFFFF  # the others start from nothing: a checksum is linear
    for column in lanes:
        state = _LAST_BYTE[(state ^ column) & np.uint32(0xFF)] ^ (state >> np.uint32(8))
    moved = _shift_tables(length)
    crc = 0
    for lane in state.tolist():
        crc = _apply(moved, crc) ^ lane
    for byte in data[cut:]:
        crc = int(_LAST_BYTE[(crc ^ byte) & 0xFF]) ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


@functools.lru_cache(maxsize=16)
def _shift_tables(length: int) -> tuple[tuple[int, ...], ...]:
    """What `length` bytes of zero make of each byte of a state."""
    states: NDArray[np.uint32] = np.concatenate(
        [np.arange(256, dtype=np.uint32) << np.uint32(8 * place) for place in range(4)]
    )
    for _ in range(length):
        states = _LAST_BYTE[states & np.uint32(0xFF)] ^ (states >> np.uint32(8))
    return tuple(tuple(part.tolist()) for part in states.reshape(4, 256))


def _apply(tables: tuple[tuple[int, ...], ...], state: int) -> int:
    first, second, third, fourth = tables
    return (
        first[state & 0xFF]
        ^ second[state >> 8 & 0xFF]
        ^ third[state >> 16 & 0xFF]
        ^ fourth[state >> 24]
    )
