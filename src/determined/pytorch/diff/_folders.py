"""Two runs whose checkpoints lie in folders: on paper, by hashes, and by training both again."""

from __future__ import annotations

import os
import pathlib
import tempfile
from typing import Any

from determined._contracts.replay_span import read_verdict
from determined._contracts.run_diff import ByHashes, RunDiff, by_hashes, on_paper
from determined.pytorch.replay._folder import (
    FolderRun,
    facts_of,
    open_run,
    prepare,
    span_of,
)
from determined.pytorch.replay._running import Launch, launch


def diff(
    first: str | os.PathLike[str],
    second: str | os.PathLike[str],
    *,
    launch: Launch = launch,
) -> RunDiff:
    """Find where two runs part.

    Both are trained again, batch by batch and in step, from the last checkpoint at which they were
    equal, unless all their checkpoints are.

    Args:
        first: A checkpoint, or a folder with the checkpoints of one run.
        second: The same of another run.
        launch: Runs the two processes; by default in new interpreters.
    """
    runs = open_run(first), open_run(second)
    paper = on_paper(*map(facts_of, runs))
    found = by_hashes(runs[0].points, runs[1].points)
    shorter = min(run.length for run in runs)
    if found.different is None and found.equal == shorter and not found.settings:
        return RunDiff(paper, found, shorter)
    last = shorter if found.different is None else found.different
    verdict = _in_step(runs, found, last, launch)
    parting, settings = verdict["parting"], verdict["settings"]
    note = ""
    if parting is None and found.different is not None:
        note = (
            f"Trained again, both are identical through batch {last}: what made them differ was "
            "not in their code, settings or data, but in the environment of one of them."
        )
    return RunDiff(paper, found, last, parting, settings, 1, note)


def _in_step(
    runs: tuple[FolderRun, FolderRun], found: ByHashes, last: int, launch: Launch
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="determined-diff-") as name:
        folder, commands = pathlib.Path(name), []
        for number, run in enumerate(runs):
            place = folder / str(number)
            place.mkdir()
            span, _ = span_of(
                run,
                (found.start + 1, last),
                place,
                socket=str(folder / "socket"),
                is_leader=number == 0,
                verdict=str(folder / "verdict.json"),
            )
            start = next((p.name for p in run.points if p.batch == found.start), None)
            commands.append(prepare(run, span.starting_from(start), place))
        launch(commands)
        verdict = read_verdict(folder / "verdict.json")
    if verdict is None:
        raise RuntimeError("The two runs were trained again, but came to no verdict.")
    return verdict
