"""Wait for experiments, and show their progress."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from determined.experimental._client.progress import progress_display

if TYPE_CHECKING:
    from determined.platform.service import Service
    from determined.store import Experiment, Trial

_POLL_SECONDS = 0.2
_WAKE_SECONDS = 2.0
_OVER = ("COMPLETED", "CANCELED", "ERROR", "DELETED", "DELETE_FAILED")


def wait_for_end(
    service: Service,
    experiment_id: int,
    interval: float,
    timeout: float | None,
    raise_on_pause: bool,
    progress: bool | None,
) -> None:
    """Return when an experiment ends; a dead supervisor is restarted."""
    if not interval > 0:
        raise ValueError(f"`interval` must be a positive number of seconds, got {interval!r}.")
    started = time.monotonic()
    next_wake = next_show = started
    with progress_display(progress) as display:
        while True:
            record, now = service.experiment(experiment_id), time.monotonic()
            is_over = record.state in _OVER
            if is_over or now >= next_show:
                next_show = now + min(interval, 1.0)
                display.show(record)
            if is_over:
                return
            if record.state == "PAUSED" and raise_on_pause:
                reason = f" ({record.reason})" if record.reason else ""
                raise ValueError(
                    f"Experiment {experiment_id} is paused{reason}. Make sure the experiment is "
                    "active: `activate()` resumes it, and `wait(raise_on_pause=False)` keeps "
                    "waiting."
                )
            if timeout is not None and now - started >= timeout:
                raise TimeoutError(_too_long(record, timeout))
            if now >= next_wake:
                next_wake = now + _WAKE_SECONDS
                service.wake_if_needed()
            time.sleep(_pause(interval, timeout, now - started))


def wait_for_trial(service: Service, experiment_id: int, interval: float) -> Trial:
    """Return the first trial of an experiment as soon as it has one."""
    from determined.store import TrialFilter

    while True:
        record = service.experiment(experiment_id)
        found = service.reader.trials(TrialFilter(experiment_id=experiment_id), limit=1).rows
        if found:
            return found[0]
        if record.state in _OVER:
            raise RuntimeError(f"Experiment {experiment_id} is {record.state} and has no trials.")
        service.wake_if_needed()
        time.sleep(interval)


def _pause(interval: float, timeout: float | None, waited: float) -> float:
    pause = min(interval, _POLL_SECONDS)
    return pause if timeout is None else max(0.001, min(pause, timeout - waited))


def _too_long(record: Experiment, timeout: float) -> str:
    return (
        f"Experiment {record.id} is still {record.state} after {timeout:g} s "
        f"({100 * record.progress:.1f}% done). It keeps running; call wait() again."
    )
