"""A recording of a terminal: lines with their colours and times, and a picture of them."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tools.terminal_svg import Line, lines_of, svg, with_short_waits

_NAMES = "{http://www.w3.org/2000/svg}"


def test_lines_have_the_colours_and_times_of_what_was_written() -> None:
    chunks = [(0.5, "one\r\ntw"), (1.0, "o \x1b[1;32mgreen\x1b[0m!\r\n")]
    first, second = lines_of(chunks)
    assert (first.seconds, first.text) == (0.5, "one")
    assert second == Line(1.0, (("two ", ""), ("green", "bold green"), ("!", "")))


def test_what_moves_the_cursor_cannot_be_drawn_line_by_line() -> None:
    with pytest.raises(ValueError, match="moves the cursor"):
        lines_of([(0.0, "\x1b[2Aup\r\n")])


def test_only_long_waits_are_shortened() -> None:
    lines = [Line(at, (("x", ""),)) for at in (0.0, 1.0, 31.0, 31.5)]
    assert [line.seconds for line in with_short_waits(lines, 2.0)] == [0.0, 1.0, 3.0, 3.5]


def test_picture_is_well_formed_whatever_was_written_and_ends_with_the_last_lines() -> None:
    lines = [Line(float(i), ((f"<{i}> & ]]>", "red"),)) for i in range(5)]
    root = ElementTree.fromstring(svg(lines, "a < b", columns=20, rows=3, hold=2.0))
    texts = ["".join(t.itertext()) for t in root.iter(f"{_NAMES}text")]
    assert texts == ["a < b", *(f"<{i}> & ]]>" for i in range(5))]
    (style,) = [element.text or "" for element in root.iter(f"{_NAMES}style")]
    assert "#all{transform:translateY(-38px)" in style
    assert "#l4{animation:l4 6.00s step-end infinite}" in style
