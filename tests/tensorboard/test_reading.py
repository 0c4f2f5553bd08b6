"""Event files are read as TensorBoard reads them, and hostile ones do no harm."""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event as EventProto
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from torch.utils.tensorboard import SummaryWriter

from determined.tensorboard._checksum import masked_crc32c
from determined.tensorboard._reading import (
    MOST_RECORD_BYTES,
    Event,
    event_files,
    parse_event,
    read_events,
)
from determined.tensorboard._values import (
    histogram_of,
    hparams_of,
    images_of,
    kind_of,
    scalar_of,
    texts_of,
)
from tests.tensorboard.made_events import record, scalar_event


def test_what_torch_writes_is_read(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("loss", 0.25, 3, walltime=100.5)
        writer.add_image("picture", np.full((3, 4, 5), 0.5, np.float32), 4)
        writer.add_text("words", "<b>bold</b>", 5)
        writer.add_histogram("weights", torch.tensor([0.0, 0.5, 1.0, 1.0]), 6)
    (path,) = event_files(tmp_path)
    found = {v.tag: (e, v) for e in read_events(path) for v in e.values}
    event, loss = found["loss"]
    assert (event.time, event.step, scalar_of(loss)) == (100.5, 3, 0.25)
    picture = found["picture"][1]
    (png,) = images_of(picture)
    assert (kind_of(picture), png[:4]) == ("image", b"\x89PNG")
    words = found["words/text_summary"][1]
    assert (kind_of(words), texts_of(words)) == ("text", ["<b>bold</b>"])
    histogram = histogram_of(found["weights"][1])
    assert histogram is not None
    assert (sum(histogram.counts), histogram.limits[0], histogram.limits[-1]) == (4, 0, 1)
    assert found["weights"][0].step == 6


def test_what_tensorflow_2_writes_is_read() -> None:
    def value(plugin: str, tensor: TensorProto) -> Event:
        metadata = SummaryMetadata()
        metadata.plugin_data.plugin_name = plugin
        made = Summary(value=[Summary.Value(tag="t", tensor=tensor, metadata=metadata)])
        event = parse_event(EventProto(step=-1, summary=made).SerializeToString())
        assert event is not None
        assert event.step == -1
        return event

    numbers = np.array([[0, 1, 2], [1, 2, 3]], "<f8")
    packed = TensorProto(dtype=2, tensor_content=numbers.tobytes())
    (scalar_value,) = value("scalars", TensorProto(dtype=1, float_val=[2.5])).values
    assert (kind_of(scalar_value), scalar_of(scalar_value)) == ("scalar", 2.5)
    (image,) = value("images", TensorProto(dtype=7, string_val=[b"4", b"5", b"png"])).values
    assert (kind_of(image), images_of(image)) == ("image", [b"png"])
    (histogram,) = value("histograms", packed).values
    found = histogram_of(histogram)
    assert found is not None
    assert (found.limits, found.counts) == ([0, 1, 2], [2, 3])


def test_hyperparameters_are_read(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        given = {"lr": 0.5, "name": "adam", "nesterov": True}
        writer.add_hparams(given, {"accuracy": 0.5}, run_name=".")
    found: dict[str, object] = {}
    for path in event_files(tmp_path):
        for event in read_events(path):
            for value in event.values:
                found |= hparams_of(value)
    assert found == given


def test_damage_is_skipped_or_ends_the_file_and_never_asks_for_memory(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1"
    whole = [record(scalar_event(step)) for step in range(3)]

    def steps(*parts: bytes) -> list[int]:
        path.write_bytes(b"".join(parts))
        return [event.step for event in read_events(path)]

    assert steps(*whole) == [0, 1, 2]
    assert steps(whole[0], record(scalar_event(9), crc=1), whole[2]) == [0, 2]  # a bad checksum
    assert steps(whole[0], record(b"\xff" * 40), whole[2]) == [0, 2]  # not protobuf
    assert steps(whole[0], b"\x00" * 30, whole[2]) == [0]  # a bad length
    assert steps(whole[0], record(b"", length=2**63)) == [0]  # far beyond the end
    for cut in range(len(whole[1])):
        assert steps(whole[0], whole[1][:cut]) == [0]
    tracemalloc.start()
    with path.open("wb") as file:  # sparse: more than is read of any record
        file.write(whole[0])
        head = struct.pack("<Q", 4 * MOST_RECORD_BYTES)
        file.write(head + struct.pack("<I", masked_crc32c(head)))
        file.seek(4 * MOST_RECORD_BYTES + 4, io.SEEK_CUR)
        file.write(whole[2])
    assert [event.step for event in read_events(path)] == [0, 2]
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_a_pipe_or_a_folder_is_no_event_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.tfevents.1")
    (tmp_path / "b.tfevents.2").mkdir()
    assert [list(read_events(path)) for path in event_files(tmp_path)] == [[], []]
    assert event_files(tmp_path / "missing") == []


@given(st.binary(max_size=200))
def test_any_bytes_are_an_event_or_none(content: bytes) -> None:
    event = parse_event(content)
    for value in event.values if event is not None else ():
        scalar_of(value), images_of(value), texts_of(value), histogram_of(value), hparams_of(value)


def test_a_changed_byte_in_a_message_does_no_harm(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_histogram("weights", torch.arange(9.0), 6)
        writer.add_text("words", "text", 5)
    (path,) = event_files(tmp_path)
    contents = path.read_bytes()
    for position in range(0, len(contents), 17):
        changed = bytearray(contents)
        changed[position] ^= 0xFF
        path.write_bytes(changed)
        for event in read_events(path):
            for one in event.values:
                scalar_of(one), histogram_of(one), texts_of(one)
