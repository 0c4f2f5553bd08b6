"""How a run ended when its keeper cannot say, or when several keepers do."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from determined.platform.runs.folder import LOST, RunExit, RunFolder
from determined.platform.runs.keeper import log_excerpt


def lost(run: RunFolder, why: str) -> RunExit:
    """The end of a run whose keeper is gone and left no record."""
    return RunExit(
        exit_code=128 + signal.SIGKILL,
        reason=LOST,
        message=why,
        ended_at=time.time(),
        last_lines=log_excerpt.last_lines(log_excerpt.read_end(run.log)),
        matches=run.matches,
    )


def combined(ends: list[RunExit], log: Path) -> RunExit:
    """How a run on several nodes ended: lost if a part is, else like the part that failed first."""
    if len(ends) == 1:
        return ends[0]
    ranked = sorted(
        ends,
        key=lambda end: (
            not end.is_infrastructure_fault,
            not end.exit_code,
            end.stopped_by is not None,
            end.ended_at or 0.0,
        ),
    )
    first = ranked[0]
    if first.exit_code:
        text = log_excerpt.read_end(log)
        first = first._replace(
            traceback=log_excerpt.find_traceback(text), last_lines=log_excerpt.last_lines(text)
        )
    return first._replace(
        started_at=min((end.started_at for end in ends if end.started_at), default=None),
        ended_at=max((end.ended_at for end in ends if end.ended_at), default=None),
        matches=tuple(dict.fromkeys(match for end in ends for match in end.matches)),
        leftover_processes=sum(end.leftover_processes for end in ends),
    )
