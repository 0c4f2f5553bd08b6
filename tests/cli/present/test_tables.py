"""Tables: aligned, fitting, harmless; and the same rows as CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math

import click
import pytest
from click.testing import CliRunner

from determined.cli._present.layout import table
from determined.cli._present.tables import (
    Output,
    brief,
    duration_text,
    output_options,
    percent,
    show,
    show_json,
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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (59.6, "1m 00s"),
        (200, "3m 20s"),
        (7500, "2h 05m"),
        (360_000, "4d 04h"),
    ],
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration_text(100.0, 100.0 + seconds, 0.0) == text
    assert duration_text(100.0, None, 100.0 + seconds) == text


def test_a_clock_that_went_back_makes_no_negative_duration() -> None:
    assert duration_text(100.0, 90.0, 0.0) == "0.0s"
    assert duration_text(None, None, 50.0) == ""


def test_hyperparameters_are_told_briefly() -> None:
    assert brief({"lr": 0.0218653471, "layers": 3, "a": {"b": True}}) == (
        'a {"b": true}, layers 3, lr 0.0218653'
    )


def test_times_and_shares_are_written_as_the_specification_says() -> None:
    assert time_text(0, utc=True) == "1970-01-01 00:00:00+0000"
    assert time_text(None) == ""
    assert percent(0.1234) == "12.3%"
    assert percent(None) == ""
