"""The event files of trials in one folder, as TensorBoard wants them: a folder per trial.

Files that a trial wrote are linked, so that new points of a running one appear. Where there are
none (they were deleted, or the script wrote none) they are created from the metrics in the store.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from determined.platform.homes.home import Home
from determined.store import Reader, Trial

_PATTERN = "*tfevents*"


def gather(home: Home, reader: Reader, trials: Sequence[Trial], folder: Path) -> None:
    """Fill a folder with the event files of trials."""
    for trial in trials:
        place = folder / f"experiment-{trial.experiment_id}" / f"trial-{trial.id}"
        place.parent.mkdir(parents=True, exist_ok=True)
        stored = home.tensorboard / str(trial.id)
        is_running = trial.ended is None
        if is_running or any(stored.rglob(_PATTERN)):
            stored.mkdir(parents=True, exist_ok=True)
            place.symlink_to(stored)
        else:
            write_events(reader, trial, place)


def write_events(reader: Reader, trial: Trial, folder: Path) -> None:
    """Write the metrics of a trial as event files, with the tags that a run uses."""
    import numpy as np

    from determined.tensorboard._records import scalar_records, version_record
    from determined.tensorboard._series import training_series, validation_series

    columns: dict[str, tuple[list[float], list[int], list[float]]] = {}
    for report in reader.metrics.reports(trial.id):
        if report.group == "training":
            series = training_series(report.steps_completed, report.metrics, report.batch_metrics)
        elif report.group == "validation":
            series = validation_series(report.steps_completed, report.metrics)
        else:
            continue
        for tag, values, steps in series:
            times, all_steps, all_values = columns.setdefault(tag, ([], [], []))
            times += [report.time] * len(steps)
            all_steps += map(int, steps)
            all_values += map(float, values)
    folder.mkdir(parents=True)
    with (folder / f"events.out.tfevents.{int(trial.created)}.records").open("wb") as file:
        file.write(version_record(trial.started or time.time()))
        for tag, (times, all_steps, all_values) in columns.items():
            points = (np.array(times), np.array(all_steps, np.int64), np.array(all_values))
            file.write(scalar_records(tag, *points))
