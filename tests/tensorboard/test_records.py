from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from determined.tensorboard._records import scalar_records, version_record

_points = st.lists(
    st.tuples(
        st.floats(0, 4e9),
        st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300),
        st.floats(width=32) | st.floats(),
    ),
    min_size=1,
    max_size=20,
)


def _events(data: bytes) -> Iterator[Event]:
    """Read records the way the format is described, checking both checksums with TensorBoard's."""
    while data:
        length_bytes, length_crc = data[:8], data[8:12]
        (length,) = struct.unpack("<Q", length_bytes)
        event, event_crc = data[12 : 12 + length], data[12 + length : 16 + length]
        assert struct.unpack("<I", length_crc)[0] == masked_crc32c(length_bytes)
        assert struct.unpack("<I", event_crc)[0] == masked_crc32c(event)
        yield Event.FromString(event)
        data = data[16 + length :]


@given(tag=st.text() | st.text(min_size=120, max_size=300), points=_points)
def test_every_record_is_what_tensorboard_reads(
    tag: str, points: list[tuple[float, int, float]]
) -> None:
    wall_times, steps, values = zip(*points, strict=True)
    data = scalar_records(tag, np.array(wall_times), np.array(steps, np.int64), np.array(values))
    events = list(_events(data))
    assert [event.wall_time for event in events] == list(wall_times)
    assert [event.step for event in events] == list(steps)
    assert [event.summary.value[0].tag for event in events] == [tag] * len(points)
    with np.errstate(over="ignore"):
        expected = np.array(values, np.float32)
    read = np.array([event.summary.value[0].simple_value for event in events], np.float32)
    np.testing.assert_array_equal(read, expected)


def test_a_tag_that_is_not_valid_text_is_made_valid() -> None:
    data = scalar_records("a\udc80", np.zeros(1), np.zeros(1, np.int64), np.zeros(1))
    assert [event.summary.value[0].tag for event in _events(data)] == ["a?"]


def test_a_file_starts_with_the_version() -> None:
    (event,) = _events(version_record(12.5))
    assert (event.wall_time, event.file_version) == (12.5, "brain.Event:2")
