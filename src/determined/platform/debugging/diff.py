"""Where two trials part: on paper, by hashes of checkpoints, and by training both again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from determined._contracts.replay_span import read_verdict
from determined._contracts.run_diff import ByHashes, Point, RunDiff, by_hashes, on_paper
from determined._os.together import run_together
from determined.errors import RefusedError
from determined.platform.debugging.replay import Interval, Replays
from determined.platform.homes.home import Home
from determined.platform.queries.run_record import facts_of
from determined.store import Experiment, Reader, Trial

Named = tuple[Trial, Experiment]


def diff_trials(reader: Reader, home: Home, first: Named, second: Named, folder: Path) -> RunDiff:
    """Find where two trials part; `folder` is empty, and the only place that is written to."""
    both = [Replays(reader, home, trial, experiment) for trial, experiment in (first, second)]
    facts = [
        facts_of(reader, home, trial, experiment, replays.points)
        for (trial, experiment), replays in zip((first, second), both, strict=True)
    ]
    points = _with_branches(reader, [trial for trial, _ in (first, second)], both)
    paper, found = on_paper(*facts), by_hashes(*points)
    lengths = [
        max([trial.total_batches, *(point.batch for point in replays.points)])
        for (trial, _), replays in zip((first, second), both, strict=True)
    ]
    shorter = min(lengths)
    if found.different is None and found.equal == shorter and not found.settings:
        return RunDiff(paper, found, shorter)
    last = shorter if found.different is None else found.different
    if (why := _why_not_in_step(reader, (first[0], second[0]), both, found)) is not None:
        return RunDiff(paper, found, found.equal, note=why)
    verdict = _in_step(both, points, found, last, folder)
    note = ""
    if verdict["parting"] is None and found.different is not None:
        note = (
            f"Trained again, both are identical through batch {last}: what made them differ was "
            "not in their code, settings or data, but in the environment of one of them."
        )
    return RunDiff(paper, found, last, verdict["parting"], verdict["settings"], 1, note)


def _with_branches(
    reader: Reader, trials: Sequence[Trial], both: Sequence[Replays]
) -> list[list[Point]]:
    """The checkpoints of two trials; those of a parent with what its fork saved where it leaves.

    Up to there a fork trains as its parent does, so this is a state of both.
    """
    points = [list(replays.points) for replays in both]
    for mine, other in ((0, 1), (1, 0)):
        fork = reader.forks.fork(trials[mine].id)
        if fork is None or fork.parent_trial_id != trials[other].id:
            continue
        at = next((p for p in points[mine] if p.batch == fork.at and p.has_files), None)
        if at is not None:
            others = [p for p in points[other] if p.batch != fork.at or p.has_files]
            if all(p.batch != fork.at for p in others):
                points[other] = sorted([*others, at], key=lambda p: p.batch)
    return points


def _why_not_in_step(
    reader: Reader, trials: Sequence[Trial], both: Sequence[Replays], found: ByHashes
) -> str | None:
    """Say why two trials cannot be trained again in step; None if they can."""
    slots = [replays.slots for replays in both]
    if slots[0] != slots[1]:
        return (
            f"They were trained by {slots[0]} and {slots[1]} processes, each with its own part of "
            "every batch, so they cannot be trained again in step: nothing more is known than what "
            "checkpoints tell."
        )
    for trial in trials:
        fork = reader.forks.fork(trial.id)
        if fork is not None and found.start < fork.at:
            changes = "".join(f", {k} {old} -> {new}" for k, (old, new) in fork.changed.items())
            return (
                f"Trial {trial.id} is a fork of trial {fork.parent_trial_id} at batch {fork.at}"
                f"{changes}. No checkpoint of both at that batch or later has files, so they "
                "cannot be trained again in step; checkpoint_storage.save_trial_latest keeps more."
            )
    return None


def _in_step(
    both: Sequence[Replays],
    points: Sequence[Sequence[Point]],
    found: ByHashes,
    last: int,
    folder: Path,
) -> dict[str, Any]:
    commands = []
    for number, replays in enumerate(both):
        place = folder / str(number)
        place.mkdir()
        start = next((p for p in points[number] if p.has_files and p.batch == found.start), None)
        interval = Interval(found.start + 1, last, start)
        ready, _ = replays.prepare(
            interval,
            place,
            socket=str(folder / "socket"),
            is_leader=number == 0,
            verdict=str(folder / "verdict.json"),
        )
        commands.append(ready.logged(place / "log"))
    codes = run_together(commands)
    verdict = read_verdict(folder / "verdict.json")
    if verdict is None:
        failed = next((c for c, code in zip(commands, codes, strict=True) if code > 0), commands[1])
        raise RefusedError(f"The trials could not be trained again.\n{failed.last_output()}")
    return verdict
