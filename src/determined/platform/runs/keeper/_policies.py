"""Log policies: patterns that are searched in every line of a log, whatever is printed.

Each policy counts once, so a pattern that was found is not searched again. A pattern that takes
too long on some line is dropped, so that it cannot block the keeper.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from determined._contracts.log_index import LONGEST_LINE_BYTES
from determined.platform.runs.folder import CONFIGURATION_MARK, LogMatch, LogPolicy

_LONGEST_SEARCH_SECONDS = 2.0
_SHOWN_CHARACTERS = 1000
# These may depend on where a text begins or ends, so lines are searched one by one.
_NEEDS_SINGLE_LINES = r"\\[AZ]|\(\?(?!:|P<|i\))|[*+?}]\+|\\n|\\s|\\W|\\D|\[\^"


class _TooSlowError(Exception):
    pass


class Pattern:
    """A regular expression that is searched in lines, many at once where that is equivalent."""

    def __init__(self, pattern: str) -> None:
        # What comes before or after a match makes no difference, only quadratic time.
        core = re.sub(r"^(\.\*\??)+(?![+?{])", "", pattern)
        core = re.sub(r"(?<!\\)(\.\*)+$", "", core)
        self._line = re.compile(core)
        together = not re.search(_NEEDS_SINGLE_LINES, core)
        self._lines = re.compile(core, re.MULTILINE) if together else None

    def first(self, lines: str) -> int | None:
        """Return the position, among the lines of a text, of the first one that matches."""
        if self._lines is not None and not self._lines.search(lines):
            return None
        for position, line in enumerate(lines.split("\n")):
            if self._line.search(line) and CONFIGURATION_MARK not in line:
                return position
        return None


class Policies:
    """Applies policies to a log that comes in pieces."""

    def __init__(self, policies: tuple[LogPolicy, ...], say: Callable[[str], None]) -> None:
        self._say = say
        self._waiting: list[tuple[LogPolicy, Pattern]] = []
        for policy in policies:
            try:
                self._waiting.append((policy, Pattern(policy.pattern)))
            except re.error as error:
                say(
                    f"log policy {policy.name!r} is off, because its pattern is not a regular "
                    f"expression: {error}"
                )
        self._rest = b""
        self._line = 0
        self.matches: tuple[LogMatch, ...] = ()

    def search(self, piece: bytes, *, is_last: bool = False) -> bool:
        """Search the next piece of the log; return whether there are new matches."""
        if not self._waiting:
            return False
        content = self._rest + piece
        end = len(content) if is_last or len(content) > LONGEST_LINE_BYTES else 0
        end = content.rfind(b"\n") + 1 or end
        whole, self._rest = content[:end], content[end:]
        before = len(self.matches)
        if whole:
            self._search(whole.decode(errors="replace").removesuffix("\n"))
        self._line += whole.count(b"\n")
        return len(self.matches) > before

    def _search(self, lines: str) -> None:
        for policy, pattern in list(self._waiting):
            try:
                with _time_limit():
                    found = pattern.first(lines)
            except _TooSlowError:
                found = None
                self._waiting.remove((policy, pattern))
                self._say(
                    f"log policy {policy.name!r} is off, because its pattern took more than "
                    f"{_LONGEST_SEARCH_SECONDS:g} seconds: {policy.pattern}"
                )
            if found is not None:
                self._waiting.remove((policy, pattern))
                text = lines.split("\n")[found][:_SHOWN_CHARACTERS]
                match = LogMatch(policy.name, policy.action, self._line + found, text)
                self.matches += (match,)


@contextmanager
def _time_limit() -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise _TooSlowError

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, _LONGEST_SEARCH_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
