"""When lines came: any log, in any pieces, read back by number, time and from the end."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined._contracts.log_index import LONGEST_LINE_BYTES, Stamper, pack
from determined.platform.queries.log_reader import LogReader, parse_line

_PIECES = st.lists(st.text(alphabet="ab\n\r", max_size=8).map(str.encode), max_size=20)


def write(folder: Path, pieces: list[bytes]) -> LogReader:
    """Write a log whose n-th piece came at second n."""
    stamper = Stamper()
    stamps = [stamper.stamp(piece, 1_000_000 * n) for n, piece in enumerate(pieces)]
    (folder / "log").write_bytes(b"".join(pieces))
    (folder / "log.times").write_bytes(b"".join(pack(s) for s in stamps if s is not None))
    return LogReader(folder / "log", folder / "log.times")


def split(content: bytes) -> list[bytes]:
    lines = content.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def time_of_each_line(pieces: list[bytes]) -> list[float]:
    times, at_start = [], True
    for n, piece in enumerate(pieces):
        for byte in piece:
            if at_start:
                times.append(float(n))
            at_start = byte == ord("\n")
    return times


@given(_PIECES)
def test_every_line_is_read_back_once_in_order(pieces: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as name:
        reader = write(Path(name), pieces)
        lines = list(reader.lines())
        expected = [line.decode().rstrip("\r") for line in split(b"".join(pieces))]
        assert [line.text for line in lines] == expected
        assert [line.number for line in lines] == list(range(len(expected)))
        assert reader.count() == len(expected)


@given(_PIECES)
def test_a_line_never_has_a_time_before_it_came(pieces: list[bytes]) -> None:
    """Nor after: lines that begin in one piece share its time."""
    with tempfile.TemporaryDirectory() as name:
        lines = list(write(Path(name), pieces).lines())
        assert [line.time for line in lines] == time_of_each_line(pieces)


@given(_PIECES, st.integers(0, 30), st.integers(0, 30))
def test_a_part_equals_the_part_of_the_whole(pieces: list[bytes], first: int, stop: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        reader = write(Path(name), pieces)
        whole = list(reader.lines())
        assert list(reader.lines(first, stop)) == whole[first:stop]
        assert list(reader.tail(first)) == (whole[-first:] if first else [])


@given(_PIECES, st.integers(0, 22))
def test_a_time_leads_to_the_first_line_from_then_on(pieces: list[bytes], second: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        reader = write(Path(name), pieces)
        later = [n for n, t in enumerate(time_of_each_line(pieces)) if t >= second]
        assert reader.first_at_or_after(second) == (later[0] if later else reader.count())


def test_a_clock_that_is_set_back_keeps_the_index_sorted() -> None:
    stamper = Stamper()
    stamps = [stamper.stamp(b"x\n", t) for t in (5, 3, 8)]
    assert [s.microseconds for s in stamps if s] == [5, 5, 8]


def test_lines_without_stamps_have_the_last_known_time(tmp_path: Path) -> None:
    reader = write(tmp_path, [b"a\n", b"b\n"])
    with (tmp_path / "log").open("ab") as file:
        file.write(b"c\nd")
    with (tmp_path / "log.times").open("ab") as file:
        file.write(b"half a record"[:7])
    assert [(line.text, line.time) for line in reader.lines()] == [
        *(("a", 0.0), ("b", 1.0), ("c", 1.0), ("d", 1.0))
    ]


def test_no_log_has_no_lines(tmp_path: Path) -> None:
    reader = LogReader(tmp_path / "log", tmp_path / "log.times")
    assert (list(reader.lines()), reader.count(), reader.first_at_or_after(0)) == ([], 0, 0)
    (tmp_path / "log").write_bytes(b"unstamped\n")
    assert [(line.text, line.time) for line in reader.lines()] == [("unstamped", None)]


def test_a_very_long_line_is_cut(tmp_path: Path) -> None:
    reader = write(tmp_path, [b"x" * (3 * LONGEST_LINE_BYTES) + b"\nnext\n"])
    long, following = reader.lines()
    assert (
        len(long.text.removesuffix("... (the rest of this line is left out)")) == LONGEST_LINE_BYTES
    )
    assert following.text == "next"


@pytest.mark.parametrize(
    ("content", "rank", "level"),
    [
        (b"[rank=12] WARNING: [3] root: hot\n", 12, "WARNING"),
        (b"INFO: [3] root: fine\n", None, "INFO"),
        (b"[rank=1] INFORMATION: x", 1, None),
        (b"rank=1 ERROR: x", None, None),
        (b"\xff[rank=1] ", None, None),
    ],
)
def test_prefixes_tell_rank_and_level(content: bytes, rank: int | None, level: str | None) -> None:
    line = parse_line(0, None, content)
    assert (line.rank, line.level) == (rank, level)


@given(_PIECES, st.integers(0, 30))
def test_a_known_place_is_where_its_line_begins(pieces: list[bytes], number: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        reader = write(Path(folder), pieces)
        offset, line = reader.place(number)
        content = reader.path.read_bytes()
    assert line <= number or line == 0
    assert content.count(b"\n", 0, offset) == line
    assert offset == 0 or content[offset - 1 : offset] == b"\n"
