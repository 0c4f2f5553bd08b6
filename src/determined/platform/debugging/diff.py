"""Where two trials part: on paper, by hashes of checkpoints, and by training both again."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from determined._contracts.run_diff import ByHashes, RunDiff, by_hashes, on_paper
from determined._os.together import wait_together
from determined.errors import RefusedError
from determined.platform.debugging.replay import Interval, Replays
from determined.platform.homes.home import Home
from determined.platform.queries.run_record import facts_of
from determined.store import Experiment, Reader, Trial

_SHOWN = 3000
Named = tuple[Trial, Experiment]


def diff_trials(reader: Reader, home: Home, first: Named, second: Named, folder: Path) -> RunDiff:
    """Find where two trials part; `folder` is empty, and the only place that is written to."""
    both = [Replays(reader, home, trial, experiment) for trial, experiment in (first, second)]
    facts = [
        facts_of(reader, home, trial, experiment, replays.points)
        for (trial, experiment), replays in zip((first, second), both, strict=True)
    ]
    paper, found = on_paper(*facts), by_hashes(both[0].points, both[1].points)
    lengths = [
        max([trial.total_batches, *(point.batch for point in replays.points)])
        for (trial, _), replays in zip((first, second), both, strict=True)
    ]
    shorter = min(lengths)
    if found.different is None and found.equal == shorter and not found.settings:
        return RunDiff(paper, found, shorter)
    last = shorter if found.different is None else found.different
    verdict = _in_step(both, found, last, folder)
    note = ""
    if verdict["parting"] is None and found.different is not None:
        note = (
            f"Trained again, both are identical through batch {last}: what made them differ was "
            "not in their code, settings or data, but in the environment of one of them."
        )
    return RunDiff(paper, found, last, verdict["parting"], verdict["settings"], 1, note)


def _in_step(both: list[Replays], found: ByHashes, last: int, folder: Path) -> dict[str, Any]:
    processes = []
    for number, replays in enumerate(both):
        place = folder / str(number)
        place.mkdir()
        start = next((p for p in replays.points if p.has_files and p.batch == found.start), None)
        (planned,) = replays.plan(found.start + 1, last)
        interval = Interval(planned.first, last, start)
        ready, _ = replays.prepare(
            interval,
            place,
            socket=str(folder / "socket"),
            is_leader=number == 0,
            verdict=str(folder / "verdict.json"),
        )
        with (place / "log").open("wb") as log:
            process = subprocess.Popen(
                ready.argv,
                cwd=ready.workdir,
                env=ready.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        processes.append(process)
    codes = wait_together(processes)
    verdict = folder / "verdict.json"
    if not verdict.exists():
        failed = next((number for number, code in enumerate(codes) if code > 0), 1)
        said = (folder / str(failed) / "log").read_text(errors="replace")[-_SHOWN:]
        raise RefusedError(f"The trials could not be trained again.\n{said}")
    content: dict[str, Any] = json.loads(verdict.read_text())
    return content
