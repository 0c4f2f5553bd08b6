"""Replays of trials from Python."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from determined.platform.debugging.replay import Replayed
    from determined.platform.service import Service


def replay_trial(
    service: Service,
    trial_id: int,
    batches: tuple[int, int],
    callbacks: Sequence[type | str],
    *,
    report: bool,
    processes: int,
) -> Replayed:
    """Train batches of a trial again."""
    from determined.platform.debugging.replay import Replays

    record = service.trial(trial_id)
    experiment = service.experiment(record.experiment_id)
    replays = Replays(service.reader, service.home, record, experiment)
    intervals = replays.plan(*batches, processes)
    named = [_named(callback) for callback in callbacks]
    with tempfile.TemporaryDirectory(prefix="det-replay-") as folder:
        replayed = replays.run(
            intervals,
            Path(folder),
            callbacks=[name for name, _ in named],
            paths=[path for _, path in named],
            processes=processes,
        )
    if report:
        replays.publish(replayed, intervals)
    return replayed


def kept_replays(service: Service, trial_id: int) -> list[dict[str, Any]]:
    """Return the replays of a trial that were kept."""
    from determined.platform.debugging.replay import published

    experiment = service.experiment(service.trial(trial_id).experiment_id)
    return list(published(service.home, experiment, trial_id))


def _named(callback: type | str) -> tuple[str, str]:
    """Return how another process can import a callback, and from which folder."""
    if isinstance(callback, str):
        return callback, str(Path.cwd())
    try:
        file = Path(inspect.getfile(callback)).resolve()
    except (OSError, TypeError) as error:
        raise ValueError(
            f"`callbacks`: expected classes that another process can import from a file, got "
            f"{callback!r}."
        ) from error
    module = file.stem if callback.__module__ == "__main__" else callback.__module__
    folder = file.parents[module.count(".")]
    return f"{module}:{callback.__qualname__}", str(folder)
