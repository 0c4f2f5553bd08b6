"""The results of an experiment: its best trial and checkpoint, and why trials failed."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path

from determined.platform.runs.folder import RunFolder
from determined.store import (
    Checkpoint,
    CheckpointFilter,
    Experiment,
    RatedCheckpoint,
    Reader,
    Trial,
)

_LOADABLE = "load_data.json"  # a trial of ours: it can be built from its checkpoint


@dataclass(frozen=True)
class Outcome:
    """The best of an experiment; each part is None if there is none."""

    experiment: Experiment
    best_trial: Trial | None
    checkpoint: Checkpoint | None
    path: Path | None
    """Where the checkpoint is, if that is a local folder."""

    @property
    def python(self) -> tuple[str, ...]:
        """Lines of Python that load the checkpoint; none if it holds no PyTorch trial."""
        if self.checkpoint is None:
            return ()
        return tuple(load_lines(self.checkpoint, self.path).splitlines())


def outcome(reader: Reader, experiment: Experiment) -> Outcome:
    """Find the best trial, and the best checkpoint that still exists."""
    best = None if experiment.best_trial_id is None else reader.trial(experiment.best_trial_id)
    only = CheckpointFilter(experiment.id, states=["COMPLETED"])
    ranked = best_first(reader.rated_checkpoints(only), experiment.smaller_is_better)
    if not ranked:
        return Outcome(experiment, best, None, None)
    checkpoint = ranked[0].checkpoint
    return Outcome(experiment, best, checkpoint, folder_of(checkpoint, experiment))


def best_first(rated: list[RatedCheckpoint], smaller_is_better: bool) -> list[RatedCheckpoint]:
    """Order checkpoints by their metric; ties and those without one: the most trained first."""

    def place(item: RatedCheckpoint) -> tuple[int, float, int]:
        steps = -item.checkpoint.steps_completed
        if item.value is None:
            return 2, 0.0, steps
        if math.isnan(item.value):
            return 1, 0.0, steps
        return 0, item.value if smaller_is_better else -item.value, steps

    return sorted(rated, key=place)


def folder_of(checkpoint: Checkpoint, experiment: Experiment) -> Path | None:
    """The folder of a checkpoint, None if it is in a storage elsewhere."""
    from determined.storage import build

    section = checkpoint.storage or experiment.checkpoint_storage
    with contextlib.suppress(Exception):  # a storage that cannot be reached has no folder here
        base = build(section).base_path
        return None if base is None else base / checkpoint.uuid
    return None


def load_lines(checkpoint: Checkpoint, folder: Path | None) -> str:
    """The Python that loads the trial of a checkpoint, with the weights that were measured.

    Empty if the checkpoint holds no PyTorch trial.
    """
    if folder is None or _LOADABLE not in checkpoint.resources:
        return ""
    ema = ", ema=True" if checkpoint.metadata.get("measured") == "averaged weights" else ""
    load = f"trial = pytorch.load_trial_from_checkpoint_path({str(folder)!r}{ema})"
    return f"from determined import pytorch\n{load}"


def last_log_lines(reader: Reader, trial: Trial, lines: int = 12) -> list[str]:
    """The end of the traceback of a trial's last failed run, else of what it printed."""
    for run in reversed(reader.runs(trial.id)):
        with contextlib.suppress(OSError, ValueError, KeyError):
            end = RunFolder(run.folder).exit
            if end is None or end.exit_code == 0:
                continue
            if end.traceback is not None:
                return end.traceback.text.rstrip().splitlines()[-lines:]
            return list(end.last_lines)[-lines:] or [end.message or run.reason]
    return []
