"""What the end of a log says about a failure: the relevant traceback, and the last lines."""

from __future__ import annotations

import os
import re
from pathlib import Path

from determined._os.regular_file import open_regular
from determined.platform.runs.folder import CONFIGURATION_MARK, Traceback

_SEARCHED_BYTES = 8 << 20
_KEPT_LINES = 40
_KEPT_LINE_CHARACTERS = 2000
_LONGEST_TRACEBACK_LINES = 300

_RANK = re.compile(r"\[rank=(\d+)\] ")
_TORCH_TAG = re.compile(r"\[rank\d+\]: ")
_TITLE = re.compile(r"Traceback \(most recent call last\):|\s*\+ Exception Group Traceback ")
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
# Errors that only report another rank's failure; the module was `core._group` in 0.2.
_ECHO = re.compile(
    r"determined\.(core\.(_group|ranks\.group)\.|errors\.DistributedError)|torch\.distributed\."
)


def read_end(log: Path) -> str:
    """Return the end of a log as text, from the beginning of a line on."""
    try:
        file = open_regular(log)
    except OSError:
        return ""
    with file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - _SEARCHED_BYTES)
        file.seek(start)
        content = file.read(_SEARCHED_BYTES)
    if start:
        content = content[content.find(b"\n") + 1 :]
    return content.decode(errors="replace")


def last_lines(text: str) -> tuple[str, ...]:
    """Return the last lines of a log, without the many states of a progress bar."""
    lines = text.rstrip("\n").split("\n")[-_KEPT_LINES:]
    return tuple(
        line.rstrip("\r").rpartition("\r")[2][-_KEPT_LINE_CHARACTERS:]
        for line in lines
        if line and not line.startswith(CONFIGURATION_MARK)
    )


def find_traceback(text: str) -> Traceback | None:
    """Return the traceback of the failure's cause.

    A process dies of the last traceback that it prints, with those it is chained to. Of several
    ranks, the one whose last traceback came first is to blame, unless it only reports another's
    failure.
    """
    if "Traceback (most recent call last)" not in text:
        return None
    lasts: dict[int | None, _Block] = {}
    unfinished: dict[int | None, _Block] = {}
    for number, line in enumerate(text.split("\n")):
        rank, content = _split(line)
        if rank in unfinished:
            unfinished[rank].lines.append(content)
            if unfinished[rank].is_over:
                lasts[rank] = unfinished.pop(rank)
        elif _TITLE.match(content):
            block = lasts.get(rank)
            if block is None or block.lines[-1] not in _CHAINED:
                block = _Block(number)
            block.lines.append(content)
            unfinished[rank] = block
        elif content in _CHAINED and rank in lasts:
            lasts[rank].lines.append(content)
    lasts.update(unfinished)
    if not lasts:
        return None
    # Where lines have ranks, those without one are the launcher's.
    rank = min(lasts, key=lambda r: (lasts[r].is_echo, r is None, lasts[r].begin))
    return Traceback(rank, "\n".join(lasts[rank].lines).rstrip())


class _Block:
    """The lines of one traceback, and of those it is chained to."""

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.lines: list[str] = []

    @property
    def is_over(self) -> bool:
        """A traceback ends with the first line that is not indented: the exception itself."""
        last = self.lines[-1]
        is_exception = bool(last) and not last[0].isspace() and not _TITLE.match(last)
        return is_exception or len(self.lines) > _LONGEST_TRACEBACK_LINES

    @property
    def is_echo(self) -> bool:
        return _ECHO.match(self.lines[-1]) is not None


def _split(line: str) -> tuple[int | None, str]:
    line = line.rstrip("\r")
    tag = _RANK.match(line)
    content = line[tag.end() :] if tag else line
    own = _TORCH_TAG.match(content)
    return int(tag[1]) if tag else None, content[own.end() :] if own else content
