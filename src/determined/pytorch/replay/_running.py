"""Replays of a folder's run: each interval in a process of its own, several at a time."""

from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile
from collections.abc import Callable, Sequence

from determined._contracts.replay_check import Checked, check_replay
from determined._contracts.replay_span import read_record
from determined._os.together import Command, run_together
from determined.pytorch.replay._folder import open_run, prepare, span_of

Launch = Callable[[Sequence[Command]], None]


def launch(commands: Sequence[Command]) -> None:
    """Run processes that need each other; their output is shown if one fails."""
    for command, code in zip(commands, run_together(commands), strict=True):
        if code > 0:
            raise RuntimeError(f"A replay failed (status {code}):\n{command.last_output()}")


def replay(
    path: str | os.PathLike[str],
    batches: tuple[int, int],
    callbacks: Sequence[str] = (),
    *,
    pdb: bool = False,
) -> Checked:
    """Train some batches of a run again, and compare them with its checkpoints.

    The script runs from its copy in the newest checkpoint, with the arguments, threads and working
    directory that it had, from the newest checkpoint before the first batch.

    Args:
        path: A checkpoint, or a folder with the checkpoints of one run.
        batches: The first and the last batch, counted from 1.
        callbacks: Classes of callbacks that see the batches, as `module:Class`.
        pdb: Stop in the debugger before the first batch.
    """
    run = open_run(path)
    with tempfile.TemporaryDirectory(prefix="determined-replay-") as name:
        folder = pathlib.Path(name)
        span, start = span_of(run, batches, folder, callbacks, pdb=pdb)
        command = prepare(run, span, folder)
        # In this terminal: callbacks print, and the debugger asks.
        code = subprocess.run(command.argv, cwd=command.folder, env=command.environment).returncode
        if code:
            raise RuntimeError(f"The replay of {run.run_id} failed (status {code}).")
        hashes = {point.batch: point.hashes for point in run.points if point.hashes is not None}
        entries = read_record(pathlib.Path(span.record))
        return check_replay(start, span.last, entries, {}, hashes)
