"""Search a log for a regular expression, in a separate process that is killed if it takes too long.

Some expressions take forever on some lines, and a thread that is matching cannot be stopped. Run
as a script: `python -I grep.py`, with the request as JSON on stdin and the line numbers as JSON
on stdout. It uses only the standard library, so that it starts within milliseconds.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

_LONGEST_LINE = 1 << 16
_LOOK_EVERY = 256


class Part(NamedTuple):
    """A part of a log: the lines from `first` up to but not including `stop`.

    The byte `offset` is the beginning of the line `known`, which is `first` or a line before it.
    """

    path: str
    offset: int
    known: int
    first: int
    stop: int


class SearchTimeoutError(Exception):
    """The search did not finish in time."""


class Found(NamedTuple):
    """Line numbers, and the line up to which the log was searched."""

    lines: list[int]
    looked_up_to: int


def grep(
    pattern: str, parts: Sequence[Part], limit: int, seconds: float, hard_limit: float = 3.0
) -> Found:
    """Find lines; SearchTimeoutError if a single line takes too long."""
    request = {"pattern": pattern, "parts": parts, "limit": limit, "seconds": seconds}
    command = [sys.executable, "-I", "-S", str(Path(__file__))]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=seconds + hard_limit,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise SearchTimeoutError from None
    answer = json.loads(done.stdout)
    return Found(answer["lines"], answer["looked_up_to"])


def _search(pattern: str, parts: list[list[object]], limit: int, seconds: float) -> Found:
    expression = re.compile(pattern, re.IGNORECASE)
    deadline = time.monotonic() + seconds
    lines: list[int] = []
    number = 0
    for path, offset, known, first, stop in (Part(*part) for part in parts):  # type: ignore[arg-type]
        with open(path, "rb") as file:  # noqa: PTH123  # pathlib would double the start-up
            file.seek(offset)
            number = known
            while number < stop and (line := _next_line(file)):
                text = line.decode(errors="replace").rstrip("\r\n")
                if number >= first and expression.search(text) is not None:
                    lines.append(number)
                number += 1
                is_turn = number > first and number % _LOOK_EVERY == 0  # each time gets further
                if len(lines) >= limit or (is_turn and time.monotonic() > deadline):
                    return Found(lines, number)
    return Found(lines, number)


def _next_line(file: BinaryIO) -> bytes:
    """The next line, up to a limit: a line may not fit in memory."""
    line = rest = file.readline(_LONGEST_LINE)
    while rest and not rest.endswith(b"\n"):
        rest = file.readline(_LONGEST_LINE)
    return line


if __name__ == "__main__":
    content = json.load(sys.stdin)
    found = _search(content["pattern"], content["parts"], content["limit"], content["seconds"])
    json.dump(found._asdict(), sys.stdout)
