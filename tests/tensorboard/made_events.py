"""Records of event files, made with the messages of TensorBoard itself; some of them lie."""

from __future__ import annotations

import struct
import zlib

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.histogram_pb2 import HistogramProto
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto

from determined.tensorboard._checksum import masked_crc32c


def record(content: bytes, *, length: int | None = None, crc: int | None = None) -> bytes:
    """A record as writers frame it; `length` and `crc` lie about it."""
    head = struct.pack("<Q", len(content) if length is None else length)
    checksum = masked_crc32c(content) if crc is None else crc
    return head + struct.pack("<I", masked_crc32c(head)) + content + struct.pack("<I", checksum)


def scalar_event(step: int, value: float = 1.0) -> bytes:
    return _event(step, Summary.Value(tag="loss", simple_value=value))


def image_event(step: int, image: bytes, tag: str = "picture") -> bytes:
    content = Summary.Image(height=1, width=1, colorspace=3, encoded_image_string=image)
    return _event(step, Summary.Value(tag=tag, image=content))


def text_event(step: int, *texts: str, tag: str = "words") -> bytes:
    metadata = SummaryMetadata()
    metadata.plugin_data.plugin_name = "text"
    tensor = TensorProto(dtype=7, string_val=[text.encode() for text in texts])
    return _event(step, Summary.Value(tag=tag, tensor=tensor, metadata=metadata))


def histogram_event(step: int, tag: str = "weights", num_buckets: int = 4) -> bytes:
    limits = [float(place + 1) for place in range(num_buckets)]
    counts = [float(place % 7) for place in range(num_buckets)]
    made = HistogramProto(
        min=0, max=num_buckets, num=sum(counts), bucket_limit=limits, bucket=counts
    )
    return _event(step, Summary.Value(tag=tag, histo=made))


def _event(step: int, value: Summary.Value) -> bytes:
    made = Event(wall_time=1000.0 + step, step=step, summary=Summary(value=[value]))
    return bytes(made.SerializeToString())


def png(width: int, height: int, color: tuple[int, int, int] = (30, 120, 220)) -> bytes:
    """A real image of one color."""
    row = b"\x00" + bytes(color) * width
    return png_of(width, height, zlib.compress(row * height))


def png_of(width: int, height: int, data: bytes) -> bytes:
    """An image that says its size and holds `data`, whether or not they fit."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", data), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part)) + name + part + struct.pack(">I", zlib.crc32(name + part))
        for name, part in parts
    )
