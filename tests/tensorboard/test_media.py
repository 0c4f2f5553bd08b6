"""Images, texts and histograms are found once, read when asked for, and bounded whatever comes."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest

from determined.tensorboard import _media
from determined.tensorboard._media import MediaIndex, MediaKey, facts_of, read_value
from determined.tensorboard._reading import Value
from determined.tensorboard._values import images_of, texts_of
from tests.tensorboard.made_events import (
    histogram_event,
    image_event,
    png,
    record,
    scalar_event,
    text_event,
)

_IMAGE, _TEXT = MediaKey("image", "", "picture"), MediaKey("text", "sub", "words")


def _values(index: MediaIndex, key: MediaKey) -> list[Value | None]:
    return [read_value(entry) for entry in index.series()[key]]


def test_values_are_found_by_tag_and_step_and_files_may_grow(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(record(scalar_event(0)) + record(image_event(5, png(2, 3))))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "events.out.tfevents.2").write_bytes(record(text_event(1, "hello")))
    index = MediaIndex(tmp_path)
    index.refresh()
    assert index.is_complete
    assert {key: [e.step for e in found] for key, found in index.series().items()} == {
        _IMAGE: [5],
        _TEXT: [1],
    }
    half = record(image_event(2, png(4, 4)))
    with path.open("ab") as file:
        file.write(half[:-3])
        file.flush()
        index.refresh()
        assert len(index.series()[_IMAGE]) == 1  # not yet whole
        file.write(half[-3:] + record(histogram_event(7)))
    index.refresh()
    assert [entry.step for entry in index.series()[_IMAGE]] == [2, 5]
    assert MediaKey("histogram", "", "weights") in index.series()
    first, second = (images_of(value) for value in _values(index, _IMAGE) if value is not None)
    assert [facts_of(image) for image in (*first, *second)] == [
        ("image/png", 4, 4),
        ("image/png", 2, 3),
    ]
    assert index.find(_IMAGE, 3) is None
    path.unlink()
    assert _values(index, _IMAGE) == [None, None]


def test_reading_goes_on_where_it_ended(tmp_path: Path) -> None:
    records = [record(text_event(step, "x" * 100)) for step in range(50)]
    (tmp_path / "events.tfevents").write_bytes(b"".join(records))
    index = MediaIndex(tmp_path)
    rounds = 0
    while not index.is_complete:
        index.refresh(most_bytes=1000)
        rounds += 1
    assert rounds > 5
    assert [entry.step for entry in index.series()[MediaKey("text", "", "words")]] == [*range(50)]


def test_a_damaged_value_is_none(tmp_path: Path) -> None:
    path = tmp_path / "events.tfevents"
    path.write_bytes(record(text_event(1, "a"), crc=5) + record(text_event(2, "b")))
    index = MediaIndex(tmp_path)
    index.refresh()
    first, second = _values(index, MediaKey("text", "", "words"))
    assert first is None
    assert second is not None
    assert texts_of(second) == ["b"]


def test_memory_is_bounded_whatever_files_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_media, "MOST_ENTRIES", 500)
    many = b"".join(record(text_event(step, "x")) for step in range(2_000))
    for number in range(3):
        (tmp_path / f"events.tfevents.{number}").write_bytes(many)
    (tmp_path / "events.tfevents.large").write_bytes(record(image_event(1, bytes(8 << 20))) * 4)
    tracemalloc.start()
    index = MediaIndex(tmp_path)
    index.refresh()
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert index.is_full
    assert sum(map(len, index.series().values())) == 500
    assert kept < 1 << 20
    assert most < 64 << 20


def test_what_is_no_image_has_no_facts() -> None:
    assert facts_of(b"<svg onload=alert(1)>") is None
    assert facts_of(b"<html><script>") is None
    assert facts_of(b"") is None
    assert facts_of(b"\x89PNG\r\n\x1a\n") is None
    assert facts_of(b"\xff\xd8\xff") is None
    assert facts_of(b"GIF89a" + struct.pack("<HH", 7, 8)) == ("image/gif", 7, 8)
    jpeg = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x05\x00\x06\x03" + b"\x00" * 20
    assert facts_of(jpeg) == ("image/jpeg", 6, 5)
    assert facts_of(png(3, 2)) == ("image/png", 3, 2)
