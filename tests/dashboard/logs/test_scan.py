"""Scanning bytes for lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.dashboard.logs.scan import scan, text_finder


@given(
    content=st.binary(max_size=300),
    needle=st.sampled_from(["a", "ab", "\t"]),
)
def test_scanning_bytes_finds_the_lines_that_hold_a_text(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, needle: str
) -> None:
    path = tmp_path_factory.mktemp("scan") / "log"
    path.write_bytes(content)
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    blocks = list(scan(path, 0, 0, 1000, text_finder(needle)))
    found = [number for _, numbers in blocks for number in numbers]
    wanted = needle.lower().encode()
    assert found == [n for n, line in enumerate(lines) if wanted in line.lower()]
    assert blocks == [] or blocks[-1][0] == len(lines)


def test_lines_longer_than_a_block_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (3 << 20) + b"\nfind me\n")
    found = [n for _, numbers in scan(path, 0, 0, 10, text_finder("find me")) for n in numbers]
    assert found == [1]
