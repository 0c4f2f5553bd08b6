"""Tables: aligned, fitting, harmless; and the same rows as CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from determined.cli._present.tables import (
    Output,
    columns_of,
    output_options,
    percent,
    show,
    show_json,
    table,
    time_text,
)


@pytest.mark.parametrize(
    ("number", "text"),
    [(math.nan, '"NaN"'), (math.inf, '"Infinity"'), (-math.inf, '"-Infinity"'), (0.5, "0.5")],
)
def test_json_has_names_for_numbers_that_it_lacks(
    number: float, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_json({"a": [number], "b": (number, {"c": number})})
    shown = capsys.readouterr().out
    assert json.loads(shown, parse_constant=pytest.fail)
    assert shown.count(text) == 3


_HEADERS = ["ID", "Name", "Loss"]
_ROWS: list[list[object]] = [[1, "short", 0.25], [12, "a longer name", None]]


def test_table_is_laid_out_with_numbers_to_the_right() -> None:
    assert table(_HEADERS, _ROWS).splitlines() == [
        " ID | Name          | Loss",
        "----+---------------+------",
        "  1 | short         | 0.25",
        " 12 | a longer name |",
    ]


def test_table_without_rows_has_its_head() -> None:
    assert table(["A", "B"], []) == " A | B\n---+---"


def test_wide_columns_are_cut_to_fit() -> None:
    lines = table(_HEADERS, [[1, "x" * 300, 0.5], [2, "短" * 100, 0.5]], width=60).splitlines()
    assert max(columns_of(line) for line in lines) <= 60
    assert "…" in lines[2]
    assert "…" in lines[3]


def test_names_cannot_steer_the_terminal() -> None:
    shown = table(["Name"], [["a\x1b[31mb\nc\u202e"]])
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\\x1b[31mb\\nc" in shown


@given(
    st.lists(st.lists(st.text(max_size=40), min_size=3, max_size=3), max_size=5),
    st.integers(40, 200),
)
def test_tables_fit_and_have_one_line_per_row(rows: list[list[str]], width: int) -> None:
    lines = table(["A", "B", "C"], rows, width).split("\n")
    assert len(lines) == 2 + len(rows)
    assert all(columns_of(line) <= width for line in lines)


@click.command()
@output_options
def _listing(output: Output) -> None:
    show(_HEADERS, _ROWS, output)


@pytest.mark.parametrize("words", [["--csv"], ["--json"], []])
def test_rows_are_the_same_in_every_form(words: list[str]) -> None:
    result = CliRunner().invoke(_listing, words)
    assert result.exit_code == 0
    if words == ["--csv"]:
        found = list(csv.reader(io.StringIO(result.output)))
        assert found == [_HEADERS, ["1", "short", "0.25"], ["12", "a longer name", ""]]
    elif words == ["--json"]:
        assert json.loads(result.output)[1] == {"ID": 12, "Name": "a longer name", "Loss": None}
    else:
        assert result.output == table(_HEADERS, _ROWS) + "\n"


def test_times_and_shares_are_written_as_the_specification_says() -> None:
    assert time_text(0, utc=True) == "1970-01-01 00:00:00+0000"
    assert time_text(None) == ""
    assert percent(0.1234) == "12.3%"
    assert percent(None) == ""
