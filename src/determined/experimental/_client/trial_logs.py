"""The log of a trial for Python: which lines, and until when."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from determined.experimental._client.enums import LogLevel
from determined.experimental._client.session import Session

if TYPE_CHECKING:
    from determined.platform.queries.logs import LogEntry, LogFilter

_POLL_SECONDS = 0.2


def log_filter(
    rank_ids: Sequence[int] | None,
    min_level: LogLevel | None,
    before: str | int | None,
    after: str | int | None,
    search_text: str | None,
) -> LogFilter:
    """Read the arguments of `iter_logs`."""
    from determined.platform.queries.logs import LogFilter

    if min_level is not None and not isinstance(min_level, LogLevel):
        raise ValueError(f"`min_level` must be a LogLevel, got {min_level!r}.")
    return LogFilter(
        ranks=frozenset(rank_ids or ()),
        level=None if min_level is None else min_level.name,
        after=_seconds("timestamp_after", after),
        before=_seconds("timestamp_before", before),
        search=None if search_text is None else re.compile(re.escape(search_text)),
    )


def iter_lines(
    session: Session,
    trial_id: int,
    wanted: LogFilter,
    follow: bool,
    head: int | None,
    tail: int | None,
) -> Iterator[str]:
    """Yield the lines that are wanted."""
    from determined.platform.queries.logs import read_logs, tail_logs

    entries: Iterable[LogEntry]
    if follow:
        entries = _follow(session, trial_id, wanted)
    elif tail is not None:
        entries = tail_logs(session.service.reader.runs(trial_id), wanted, tail)
    else:
        entries = itertools.islice(read_logs(session.service.reader.runs(trial_id), wanted), head)
    for entry in entries:
        yield f"{entry.line.text}\n"


def _follow(session: Session, trial_id: int, wanted: LogFilter) -> Iterator[LogEntry]:
    from determined.platform.queries.logs import LogFollower
    from determined.store import TERMINAL_STATES

    service = session.service
    follower = LogFollower(service.reader, wanted)
    is_over = False
    while True:
        is_last = is_over  # what was written before it was over is read once more
        yield from follower.poll([trial_id])
        if is_last:
            return
        is_over = service.trial(trial_id).state in TERMINAL_STATES
        if not is_over:
            service.wake_if_needed()
            time.sleep(_POLL_SECONDS)


def _seconds(name: str, moment: str | int | float | None) -> float | None:
    """A moment: RFC 3339 text (UTC unless it says otherwise), or seconds since 1970."""
    if moment is None or isinstance(moment, (int, float)):
        return moment
    try:
        # Python 3.10 does not know the Z.
        read = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", moment.strip()))
    except (ValueError, AttributeError):
        raise ValueError(
            f"`{name}` must be a time such as 2026-01-31T12:00:00Z or seconds since 1970, "
            f"got {moment!r}."
        ) from None
    return (read if read.tzinfo else read.replace(tzinfo=timezone.utc)).timestamp()
