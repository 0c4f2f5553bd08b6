"""TensorBoard's record format: many points of one tag become bytes in a few numpy calls.

A record is a length, its checksum, a protobuf `Event`, its checksum. The points of a tag share one
layout and differ only in wall time, step and value. CRC-32C is linear: a point's checksum is that
of the unchanging bytes, combined with one table look-up per changing byte.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, bits reversed
_MASK_DELTA = 0xA282EAD8
_VARYING_FIELDS = ("wall_time", "step", "value")


def version_record(wall_time: float) -> bytes:
    """Return the record every event file starts with."""
    version = b"brain.Event:2"
    event = b"\x09" + struct.pack("<d", wall_time) + b"\x1a" + _varint(len(version)) + version
    length = struct.pack("<Q", len(event))
    return length + _masked_bytes(_crc32c(length)) + event + _masked_bytes(_crc32c(event))


def scalar_records(
    tag: str,
    wall_times: NDArray[np.float64],
    steps: NDArray[np.int64],
    values: NDArray[np.float64],
) -> bytes:
    """Return one record per point, in order. The format keeps 32 bits of a value."""
    if len(values) == 1:
        return _single_record(tag, wall_times[0], int(steps[0]), values[0])
    unsigned_steps = steps.view(np.uint64)
    layout = _layout(tag, _varint_width(int(unsigned_steps.max())))
    records = np.full(len(values), layout.template)
    records["wall_time"] = wall_times
    records["step"] = _varints(unsigned_steps, records["step"].shape[1])
    with np.errstate(over="ignore", invalid="ignore"):  # too large for 32 bits is infinity
        records["value"] = values
    varying = records.view(np.uint8).reshape(len(records), -1)[:, layout.positions]
    effects = layout.effects[np.arange(len(layout.positions)), varying]
    records["event_crc"] = _masked(np.bitwise_xor.reduce(effects, axis=1) ^ layout.crc)
    return records.tobytes()


def _single_record(tag: str, wall_time: float, step: int, value: float) -> bytes:
    """Return the same record in plain Python: for one point, numpy is six times slower."""
    step, digits = step & 0xFFFFFFFFFFFFFFFF, bytearray()
    while step > 0x7F:
        digits.append(step & 0x7F | 0x80)
        step >>= 7
    digits.append(step)
    layout = _layout(tag, len(digits))
    with np.errstate(over="ignore", invalid="ignore"):
        value_bytes = np.float32(value).astype("<f4").tobytes()
    event = b"".join(
        (b"\x09", struct.pack("<d", wall_time), b"\x10", digits, layout.summary, value_bytes)
    )
    return layout.head + event + _masked_bytes(_crc32c(event))


class _Layout(NamedTuple):
    head: bytes  # length of the event and its checksum
    summary: bytes  # what stands between step and value
    template: NDArray[Any]  # one record in which everything that varies is zero
    crc: np.uint32  # checksum of the template's event
    positions: NDArray[np.intp]  # of the varying bytes, from the start of the record
    effects: NDArray[
        np.uint32
    ]  # per varying byte: what each of its 256 values does to the checksum


@functools.lru_cache(maxsize=1024)
def _layout(tag: str, step_width: int) -> _Layout:
    name = tag.encode("utf-8", errors="replace")
    name_field = b"\x0a" + _varint(len(name)) + name
    summary_value = b"\x0a" + _varint(len(name_field) + 5) + name_field
    summary = b"\x2a" + _varint(len(summary_value) + 5) + summary_value + b"\x15"
    dtype = np.dtype(
        [
            ("length", "<u8"),
            ("length_crc", "<u4"),
            ("wall_time_key", "V1"),
            ("wall_time", "<f8"),
            ("step_key", "V1"),
            ("step", "u1", (step_width,)),
            ("summary", f"V{len(summary)}"),
            ("value", "<f4"),
            ("event_crc", "<u4"),
        ]
    )
    fields = dtype.fields
    assert fields is not None
    start, end = fields["wall_time_key"][1], fields["event_crc"][1]
    template = np.zeros((), dtype)
    template["length"] = end - start
    template["length_crc"] = _masked(np.uint32(_crc32c(struct.pack("<Q", end - start))))
    template["wall_time_key"] = np.void(b"\x09")
    template["step_key"] = np.void(b"\x10")
    template["summary"] = np.void(summary)
    spans = [(fields[name][1], fields[name][0].itemsize) for name in _VARYING_FIELDS]
    positions = np.concatenate([np.arange(first, first + size) for first, size in spans])
    crc = np.uint32(_crc32c(template.tobytes()[start:end]))
    return _Layout(
        template.tobytes()[:start],
        summary,
        template,
        crc,
        positions,
        _effects(end - start)[end - 1 - positions],
    )


def _byte_effects() -> NDArray[np.uint32]:
    effects = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        effects = (effects >> np.uint32(1)) ^ ((effects & np.uint32(1)) * np.uint32(_POLYNOMIAL))
    return effects


_LAST_BYTE = _byte_effects()
_LAST_BYTE_LIST: list[int] = _LAST_BYTE.tolist()  # plain ints are faster one at a time


def _effects(length: int) -> NDArray[np.uint32]:
    """Row `d` says what each value of a byte does to the checksum when `d` bytes follow it."""
    rows = np.empty((length, 256), np.uint32)
    rows[0] = _LAST_BYTE
    for distance in range(1, length):
        before = rows[distance - 1]
        rows[distance] = (before >> np.uint32(8)) ^ _LAST_BYTE[before & np.uint32(0xFF)]
    return rows


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _LAST_BYTE_LIST[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _masked(crc: Any) -> Any:
    """Rotate and shift a checksum, as the format asks. Takes and gives uint32, wrapping around."""
    wide = np.asarray(crc, np.uint64)
    rotated = (wide >> np.uint64(15)) | (wide << np.uint64(17))
    return ((rotated & np.uint64(0xFFFFFFFF)) + np.uint64(_MASK_DELTA)).astype(np.uint32)


def _masked_bytes(crc: int) -> bytes:
    return struct.pack("<I", ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF)


def _varint_width(number: int) -> int:
    return max(1, -(-number.bit_length() // 7))


def _varint(number: int) -> bytes:
    return _varints(np.array([number], np.uint64), _varint_width(number)).tobytes()


def _varints(numbers: NDArray[np.uint64], width: int) -> NDArray[np.uint8]:
    """Return protobuf varints, padded to `width` bytes each, which every reader accepts."""
    shifts = np.arange(0, 7 * width, 7, dtype=np.uint64)
    septets: NDArray[np.uint64] = (numbers[:, None] >> shifts) & np.uint64(0x7F)
    digits = septets.astype(np.uint8)
    digits[:, :-1] |= 0x80
    return digits
