"""Reading YAML: the scalars of version 1.2, places, and files that are not what they seem."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from determined.config.reading import yaml_reader


def value(text: str) -> Any:
    document = yaml_reader.read(f"x: {text}\n", "c.yaml")
    assert document.problems == []
    return document.value["x"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        ("1.5e3", 1500.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-0.1", -0.1),
        ("+3", 3),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("-7", -7),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("+.Inf", math.inf),
        ("true", True),
        ("False", False),
        ("TRUE", True),
        ("null", None),
        ("~", None),
        ("NULL", None),
        ("", None),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("Off", "Off"),
        ("y", "y"),
        ("1_000", 1000),
        ("60_000", 60000),
        ("1_", 1),
        ("-1_0.5", -10.5),
        ("1_0e-2", 0.1),
        ("1_0.2_5", 10.25),
        ("0b11", 3),
        ("-0b1_1", -3),
        ("0x_ff", 255),
        ("-0x1F", -31),
        ("+0o1_7", 15),
        ("0b12", "0b12"),
        ("0b", "0b"),
        ("_1", "_1"),
        ("1e1_0", "1e1_0"),
        ("12:30:45", "12:30:45"),
        ("2024-01-31", "2024-01-31"),
        ("1e", "1e"),
        ("e5", "e5"),
        (".", "."),
        ("0o8", "0o8"),
        ("=", "="),
        ("'1'", "1"),
        ('"null"', "null"),
        ("!!str 5", "5"),
        ("!!float 5", 5.0),
        ("!!int '5'", 5),
        ("!!null ''", None),
        ("! 5", "5"),
        ("[1, [2]]", [1, [2]]),
        ("{a: 1, 2: b, null: c, true: d}", {"a": 1, "2": "b", "null": "c", "true": "d"}),
        ("!!seq [1]", [1]),
        ("!!map {a: 1}", {"a": 1}),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, expected: Any) -> None:
    found = value(text)
    assert found == expected
    assert type(found) is type(expected)


def test_not_a_number_is_read() -> None:
    assert math.isnan(value(".nan"))
    assert math.isnan(value(".NaN"))


def test_anchors_and_merge_keys_work() -> None:
    text = "base: &base {a: 1, b: 2}\nother: {<<: *base, b: 3}\nlist: &l [1]\ncopy: *l\n"
    document = yaml_reader.read(text, "c.yaml")
    assert document.problems == []
    assert document.value["other"] == {"a": 1, "b": 3}
    assert document.value["copy"] == [1]


def test_merge_key_takes_several_mappings_and_the_first_wins() -> None:
    text = "a: &a {x: 1}\nb: &b {x: 2, y: 3}\nc: {<<: [*a, *b]}\n"
    assert yaml_reader.read(text, "c.yaml").value["c"] == {"x": 1, "y": 3}


def test_every_key_and_value_has_its_place() -> None:
    document = yaml_reader.read("a:\n  - b: é\n    ü: [1, 2]\n", "c.yaml")
    places = {path: (m.key.line, m.key.column, m.value.line, m.value.column) for path, m in
              document.marks.items()}  # fmt: skip
    assert places[("a",)] == (1, 1, 2, 3)
    assert places[("a", 0, "b")] == (2, 5, 2, 8)
    assert places[("a", 0, "ü", 1)] == (3, 12, 3, 12)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_that_yaml_knows_are_read(encoding: str) -> None:
    assert yaml_reader.read("x: é\n".encode(encoding), "c.yaml").value == {"x": "é"}


def test_windows_line_ends_are_read() -> None:
    document = yaml_reader.read("a: 1\r\nb: 2\r\n", "c.yaml")
    assert document.value == {"a": 1, "b": 2}
    assert document.marks[("b",)].key.line == 2


def test_reads_the_same_without_the_c_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: &x [1e-4, yes, {b: 0o17}]\nc: *x\nd: !!python/name:x y\na: 2\n"
    fast = yaml_reader.read(text, "c.yaml")
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    slow = yaml_reader.read(text, "c.yaml")
    assert slow == fast
    assert len(fast.problems) == 2


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_reading_never_raises(data: bytes | str) -> None:
    document = yaml_reader.read(data, "c.yaml")
    assert isinstance(document.problems, list)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    )
)
def test_what_is_written_is_read_back(data: Any) -> None:
    from determined.config import to_yaml

    text = to_yaml({"data": data})
    document = yaml_reader.read(text, "c.yaml")
    assert document.problems == []
    assert document.value == {"data": data}


@given(st.integers(), st.sampled_from([2, 8, 10, 16]), st.sampled_from(["", "_", "__"]))
def test_every_form_of_an_integer_is_read(number: int, base: int, between: str) -> None:
    prefix, form = {2: ("0b", "b"), 8: ("0o", "o"), 10: ("", "d"), 16: ("0x", "x")}[base]
    sign = "-" if number < 0 else ""
    assert value(sign + prefix + between.join(format(abs(number), form))) == number


def test_other_files_have_keys_with_types() -> None:
    text = "3: a\ntrue: b\n1.5: c\n'2': d\nx: {null: 1e-3}\n"
    assert yaml_reader.read_value(text, "f") == {
        3: "a",
        True: "b",
        1.5: "c",
        "2": "d",
        "x": {None: 1e-3},
    }
