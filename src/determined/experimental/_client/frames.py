"""Trials and metrics as pandas tables; pandas is imported only here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from determined.experimental._client.metrics import TrialMetrics
from determined.experimental._client.stored import as_datetime

if TYPE_CHECKING:
    import pandas as pd

    from determined.store import Experiment, Trial

_HINT = "to_dataframe() needs pandas: pip install 'determined-pytorch[notebook]'."


def trials_frame(experiment: Experiment, trials: Sequence[Trial]) -> pd.DataFrame:
    """One row per trial."""
    pandas = _pandas()
    rows = [
        {
            "trial_id": trial.id,
            "state": trial.state,
            "steps_completed": trial.total_batches,
            "best": trial.best_validation,
            "best_steps": trial.best_validation_steps,
            "latest": trial.latest_validation,
            **{f"hparams.{name}": value for name, value in flat(trial.hparams).items()},
            "restarts": trial.restarts,
            "start_time": as_datetime(trial.started),
            "end_time": as_datetime(trial.ended),
            "seconds": trial.ended - trial.started if trial.ended and trial.started else None,
        }
        for trial in trials
    ]
    columns = None if rows else ["trial_id", "state", "steps_completed", "best", "latest"]
    frame = pandas.DataFrame(rows, columns=columns).set_index("trial_id")
    frame.attrs = {"experiment_id": experiment.id, "metric": experiment.searcher_metric}
    return frame


def reports_frame(reports: Iterable[TrialMetrics], group: str | None) -> pd.DataFrame:
    """One row per report."""
    pandas = _pandas()
    rows = []
    for report in reports:
        about: dict[str, Any] = {"steps_completed": report.steps_completed}
        if group is None:
            about["group"] = report.group
        about |= {"trial_run_id": report.trial_run_id, "end_time": report.end_time}
        rows.append(about | {k: v for k, v in flat(report.metrics).items() if k not in about})
    columns = None if rows else ["steps_completed", "trial_run_id", "end_time"]
    return pandas.DataFrame(rows, columns=columns).set_index("steps_completed")


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by their path: `{"a": {"b": 1}}` becomes `{"a.b": 1}`."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError(_HINT) from error
    return pandas
