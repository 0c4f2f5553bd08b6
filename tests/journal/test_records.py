"""Records become bytes and come back as they were."""

from __future__ import annotations

import math
import re
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined import journal
from determined.errors import JournalError
from determined.journal import BatchColumns, Metrics, Record, Unknown, decode, encode

_numbers = st.floats() | st.integers() | st.booleans()
_json = st.recursive(
    st.none() | _numbers | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
_metrics = st.dictionaries(st.text(max_size=4), _json, max_size=4)


def same(a: Any, b: Any) -> bool:
    """Equal in type and value, NaN included."""
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack("d", a) == struct.pack("d", b) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), _json, max_size=3), max_size=6))
def test_batches_come_back_as_reported(batches: list[dict[str, Any]]) -> None:
    columns = BatchColumns.from_bytes(BatchColumns.of(batches).to_bytes())
    for given_batch, read in zip(batches, columns.to_dicts(), strict=True):
        assert same(
            {name: given_batch[name] for name in sorted(given_batch)},
            {name: read[name] for name in sorted(read)},
        )


def test_plain_numbers_become_numeric_columns() -> None:
    columns = BatchColumns.of([{"a": 0.5, "b": 1, "c": 1}, {"a": math.nan, "b": 2, "c": 0.5}])
    assert {name: column.is_numeric for name, column in columns.columns.items()} == {
        "a": True,
        "b": True,
        "c": False,
    }


@given(_metrics, st.lists(_metrics, max_size=3), st.integers(0, 2**40), st.text(max_size=9))
def test_metrics_come_back_as_reported(
    metrics: dict[str, Any], batches: list[dict[str, Any]], steps: int, group: str
) -> None:
    record = Metrics(group, steps, metrics, BatchColumns.of(batches), time=1.5)
    read = decode(encode(record))
    assert isinstance(read, Metrics)
    assert (read.group, read.steps_completed, read.time) == (group, steps, 1.5)
    assert same(read.metrics, metrics)
    assert read.batches is not None
    assert read.batches.count == len(batches)


@pytest.mark.parametrize(
    "record",
    [
        journal.RunStarted(2, 100, rank=1),
        journal.Metrics("validation", 5, {"loss": -math.inf, "text": "ä"}),
        journal.Progress(0.25),
        journal.Status("validating"),
        journal.Checkpoint("u1", 5, {"w/": 0, "w/a": 3}, {"steps_completed": 5}),
        journal.CheckpointDeleted("u1"),
        journal.EarlyExit("INVALID_HP", rank=3),
        journal.PreemptionAcknowledged(),
        journal.Metadata({"a": [1, None]}),
        journal.Alert(None, "text", "warn"),
        journal.SystemSamples("cpu", {"host": {"cpu_util_simple": 3.5}}),
        journal.TaskUsing("checkpoint", "u1"),
        journal.Heartbeat(),
    ],
    ids=lambda record: type(record).__name__,
)
def test_every_kind_comes_back(record: Record) -> None:
    assert decode(encode(record)) == record


def test_a_kind_of_a_newer_version_is_passed_over() -> None:
    record = decode(struct.pack("<BI", 200, 2) + b"{}")
    assert isinstance(record, Unknown)
    assert record.number == 200


def test_fields_of_a_newer_version_are_passed_over() -> None:
    text = b'{"progress":0.5,"time":1.0,"new":3}'
    record = decode(struct.pack("<BI", 3, len(text)) + text)
    assert record == journal.Progress(0.5, time=1.0)


@pytest.mark.parametrize(
    "payload", [b"", b"\x02", b"\x02\x00\x00\x00\x00", b"\x03\x02\x00\x00\x00[]"]
)
def test_nonsense_is_a_value_error(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(payload)


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (journal.Progress("half"), "a Progress record has 'half' for `progress`"),  # type: ignore[arg-type]
        (journal.Progress(math.nan), "has nan for `progress`"),
        (journal.Progress(True), "has True for `progress`"),
        (journal.Status(5), "has 5 for `status`"),  # type: ignore[arg-type]
        (journal.Metrics("g", 2**70, {}), "for `steps_completed`"),
        (journal.Metrics("g", 1.5, {}), "has 1.5 for `steps_completed`"),  # type: ignore[arg-type]
        (journal.Metrics("g", 1, []), "for `metrics`"),  # type: ignore[arg-type]
        (journal.Metadata([1]), "for `metadata`"),  # type: ignore[arg-type]
        (journal.Checkpoint("u", 1, {"a": "b"}, {}), "for `resources`"),  # type: ignore[dict-item]
        (journal.Heartbeat(time=math.inf), "has inf for `time`"),
        (journal.Heartbeat(time=-1.0), "a Heartbeat record has no valid time: -1.0"),
        (journal.Heartbeat(time=1e300), "has no valid time"),
        (journal.Heartbeat(time="soon"), "has 'soon' for `time`"),  # type: ignore[arg-type]
        *(
            (cls(name, *rest), "cannot be the name of a checkpoint")
            for name in ("../x", "/etc", "..", "", "a/b", "x" * 300, "a\x1b")
            for cls, rest in (
                (journal.Checkpoint, (1, {}, {})),
                (journal.CheckpointAnnounced, (1,)),
                (journal.CheckpointDeleted, ()),
            )
        ),
    ],
)
def test_a_record_that_makes_no_sense_is_named(record: Record, told: str) -> None:
    with pytest.raises(JournalError, match=re.escape(told)):
        decode(encode(record))


def test_a_record_nested_without_end_is_not_understood() -> None:
    text = b'{"metadata":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    payload = struct.pack("<BI", journal.Metadata.kind, len(text)) + text
    with pytest.raises(ValueError, match="cannot be read"):
        decode(payload)
