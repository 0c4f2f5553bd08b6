"""Records as small JSON: without what is empty, with six digits, and with bounded texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from determined._contracts.json_numbers import json_safe
from determined._os.printable import printable
from determined.config import masked_hparams
from determined.store import Checkpoint, Experiment, Trial

LONGEST_TEXT = 1000
_DIGITS = 6


def to_text(answer: Any) -> str:
    """An answer as one line of strict JSON."""
    return json.dumps(json_safe(_rounded(answer)), separators=(",", ":"), default=str)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {str(key): _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, (list, tuple)) else value


def filled(**values: Any) -> dict[str, Any]:
    """Only the values that say something."""
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}


def shortened(text: str, most: int = LONGEST_TEXT) -> str:
    """A text without control characters, cut in its middle if it is long."""
    text = printable(text, keep="\n\t")
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters ...] {text[-half:]}"


def moment(seconds: float | None) -> str | None:
    """A time as ISO 8601, in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def experiment_row(record: Experiment, *, is_running: bool) -> dict[str, Any]:
    """What a list shows of an experiment."""
    return filled(
        id=record.id,
        name=record.name,
        state=record.state,
        is_running=is_running or None,
        progress=record.progress,
        trials=record.num_trials,
        metric=record.searcher_metric,
        best=record.best_validation,
        best_trial_id=record.best_trial_id,
        reason=shortened(record.reason),
        labels=record.labels,
        created=moment(record.created),
        ended=moment(record.ended),
    )


def trial_row(trial: Trial, *, is_running: bool) -> dict[str, Any]:
    """What a list shows of a trial."""
    return filled(
        id=trial.id,
        state=trial.state,
        is_running=is_running or None,
        hparams=masked_hparams(trial.hparams),
        batches=trial.total_batches,
        best=trial.best_validation,
        best_at_batch=trial.best_validation_steps,
        latest=trial.latest_validation,
        restarts=trial.restarts or None,
        reason=shortened(trial.reason),
    )


def checkpoint_row(checkpoint: Checkpoint, value: float | None, path: object) -> dict[str, Any]:
    """What a list shows of a checkpoint; `value` is the searcher's metric at its batch."""
    return filled(
        uuid=checkpoint.uuid,
        trial_id=checkpoint.trial_id,
        batches=checkpoint.steps_completed,
        state=checkpoint.state,
        metric=value,
        bytes=checkpoint.size,
        path=None if path is None else str(path),
    )


def page(rows: Sequence[Any], limit: int, what: str) -> dict[str, Any]:
    """The first rows of a list, and whether there are more."""
    return filled(**{what: list(rows[:limit])}, more=len(rows) > limit or None)
