"""Tables as text: aligned, fitting, harmless, coloured."""

from __future__ import annotations

import re

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.cli._present.layout import columns_of, fitted, number_text, table

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


_WIDE = ["ID", "Owner", "Name", "State", "Best", "Started", "Ended"]
_MOMENT = "2026-01-02 03:04:05+0000"
_TWO: list[list[object]] = [
    [1, "me", "first of two experiments", "COMPLETED", 0.98765, _MOMENT, _MOMENT],
    [2, "me", "second of two experiments", "ERROR", 0.12345, _MOMENT, "2026-02-03 03:04:05+0000"],
]


def _head(text: str) -> list[str]:
    return [cell.strip() for cell in text.splitlines()[0].split("|")]


def test_what_fits_is_whole_with_three_digits() -> None:
    text = fitted(_WIDE, _TWO, 140)
    assert _head(text) == _WIDE
    assert "| 0.988 |" in text
    assert _MOMENT in text


def test_seconds_go_first_then_constant_columns_then_the_least_useful() -> None:
    spare = ("Ended", "Started")
    assert _head(fitted(_WIDE, _TWO, 90, spare=spare)) == _WIDE
    assert _head(fitted(_WIDE, _TWO, 84, spare=spare)) == [
        *("ID", "Owner", "Name", "State", "Best", "Ended")
    ]
    assert _head(fitted(_WIDE, _TWO, 70, spare=spare)) == ["ID", "Name", "State", "Best", "Ended"]
    assert _head(fitted(_WIDE, _TWO, 60, spare=spare)) == ["ID", "Name", "State", "Best"]


def test_name_state_and_metric_stay_even_if_they_are_the_same_everywhere() -> None:
    headers = ["ID", "Name", "State", "Best loss", "Slots"]
    rows = [[i, "n" * 30, "COMPLETED", 1.0, "s" * 30] for i in range(5)]
    assert _head(fitted(headers, rows, 60)) == ["ID", "Name", "State", "Best loss"]


def test_a_long_name_is_cut_before_a_useful_column_goes() -> None:
    rows = [[*row[:2], "x" * 300, *row[3:]] for row in _TWO]
    text = fitted(_WIDE, rows, 84, spare=("Ended", "Started"))
    assert "Ended" in text
    assert "x…" in text


def test_states_are_coloured_and_nothing_else() -> None:
    text = fitted(_WIDE, _TWO, 140, colours=True)
    assert click.style("COMPLETED", fg="green") in text
    assert click.style("ERROR", fg="red") + "     |" in text
    assert re.sub(r"\x1b\[\d*m", "", text) == fitted(_WIDE, _TWO, 140)


def test_few_rows_become_lists_in_full() -> None:
    text = fitted(_WIDE, _TWO[:1], 40, in_full=True, colours=True)
    assert " Owner   | me" in text
    assert click.style("COMPLETED", fg="green") in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.98765, "0.988"), (1234.5, "1234"), (123456.7, "123457"), (1.5e9, "1.5e+09"), (0.3, "0.3")],
)
def test_numbers_have_three_digits_that_count(value: float, text: str) -> None:
    assert number_text(value) == text


@given(
    st.integers(1, 30),
    st.lists(st.text(max_size=60), max_size=40),
    st.integers(60, 200),
    st.booleans(),
)
def test_tables_fit_a_terminal(count: int, texts: list[str], width: int, in_full: bool) -> None:
    headers = ["ID", *(f"Column {i}" for i in range(count - 1))]
    rows = [[row, *(f"{row}{t}" for t in (texts * count)[: count - 1])] for row in range(6)]
    rows = [row + [""] * (count - len(row)) for row in rows]
    lines = fitted(headers, rows, width, in_full=in_full, spare=headers[1:3]).splitlines()
    assert all(columns_of(line) <= width for line in lines)
