from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from determined.platform.runs.folder import EXITED, LOST, SIGNALLED, RunExit
from determined.platform.runs.launchers.ends import combined, lost
from tests.support.runs import make_run

_DONE = RunExit(0, EXITED, started_at=1.0, ended_at=9.0, leftover_processes=1)
_FAILED = RunExit(3, EXITED, started_at=2.0, ended_at=5.0)
_STOPPED = RunExit(143, SIGNALLED, stopped_by="SIGTERM", started_at=2.0, ended_at=4.0)
_GONE = RunExit(137, LOST, message="Its node has left.", ended_at=8.0)


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ((_DONE, _FAILED, _STOPPED), _FAILED),  # the others were stopped because of it
        ((_DONE, _FAILED, _GONE), _GONE),
        ((_DONE, _STOPPED), _STOPPED),
        ((_DONE, _DONE), _DONE),
    ],
)
def test_the_part_that_tells_most_speaks_for_all(
    ends: tuple[RunExit, ...], told: RunExit, tmp_path: Path
) -> None:
    (tmp_path / "log").write_text("last words\n")
    for order in permutations(ends):
        end = combined(list(order), tmp_path / "log")
        assert (end.exit_code, end.reason) == (told.exit_code, told.reason)
        assert end.last_lines == (("last words",) if told.exit_code else ())
        assert end.ended_at == max(part.ended_at or 0.0 for part in ends)
        assert end.leftover_processes == sum(part.leftover_processes for part in ends)


def test_a_lost_run_has_its_last_lines(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", script="pass")
    run.log.write_text("so far\n")
    end = lost(run, "Its keeper was lost.")
    assert (end.exit_code, end.reason, end.message) == (137, LOST, "Its keeper was lost.")
    assert end.last_lines == ("so far",)
    assert end.is_infrastructure_fault
