"""Plots of experiments with plotly, which is imported only here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from determined.experimental._client.frames import flat

if TYPE_CHECKING:
    from determined.store import Experiment, Reader, Trial

_HINT = "plot() needs plotly: pip install 'determined-pytorch[notebook]'."
_KINDS = ("curves", "parallel")
_MOST_POINTS = 2000
_ROW_HEIGHT = 380


def experiment_figure(
    reader: Reader,
    experiment: Experiment,
    trials: Sequence[Trial],
    metric: str | None,
    group: str,
    kind: str | None,
) -> Any:
    """Plot an experiment: the learning curves of its trials, and their hyperparameters."""
    if kind is not None and kind not in _KINDS:
        raise ValueError(f"`kind` must be one of {', '.join(_KINDS)}, got {kind!r}.")
    objects, make_subplots = _plotly()
    name = metric or experiment.searcher_metric or ""
    curves = _curves(reader, trials, group, name)
    if not curves and kind != "parallel":
        raise ValueError(_nothing_to_draw(reader, experiment, group, name))
    kinds = [kind] if kind else _fitting_kinds(metric, trials)
    figure = make_subplots(
        rows=len(kinds),
        cols=1,
        specs=[[{"type": "domain" if kind == "parallel" else "xy"}] for kind in kinds],
    )
    for row, part in enumerate(kinds, 1):
        if part == "curves":
            for curve in curves:
                figure.add_trace(_line(objects, curve), row=row, col=1)
            figure.update_xaxes(title_text="batches", row=row, col=1)
            figure.update_yaxes(title_text=name, row=row, col=1)
        else:
            figure.add_trace(_parallel(objects, experiment, trials), row=row, col=1)
    title = f"Experiment {experiment.id}: {_plain(experiment.name)}"
    figure.update_layout(title=title, height=_ROW_HEIGHT * len(kinds) + 60)
    return figure


def _fitting_kinds(metric: str | None, trials: Sequence[Trial]) -> list[str]:
    """Compare trials only where they have values, and only by the searcher's metric."""
    num_rated = sum(trial.best_validation is not None for trial in trials)
    return list(_KINDS) if metric is None and num_rated > 1 else ["curves"]


def _curves(reader: Reader, trials: Sequence[Trial], group: str, metric: str) -> list[Any]:
    from determined.store.series.curves import CurveKey

    keys = [CurveKey(trial.id, group, metric) for trial in trials]
    found = reader.metrics.curves(keys, pixels=_MOST_POINTS)
    return [curve for curve in found if curve.num_points]


def _line(objects: Any, curve: Any) -> Any:
    is_short = curve.num_points < 50
    return objects.Scatter(
        x=curve.x.tolist(),
        y=curve.means.tolist(),
        name=f"trial {curve.key.trial_id}",
        mode="lines+markers" if is_short else "lines",
    )


def _parallel(objects: Any, experiment: Experiment, trials: Sequence[Trial]) -> Any:
    """Hyperparameters that differ, and the best value of each trial."""
    rated = [trial for trial in trials if trial.best_validation is not None]
    if not rated:
        raise ValueError(f"Experiment {experiment.id} has no trial with a validation yet.")
    values = [flat(trial.hparams) for trial in rated]
    names = sorted({name for one in values for name in one})
    dimensions = [
        _dimension(name, [one.get(name) for one in values])
        for name in names
        if len({repr(one.get(name)) for one in values}) > 1
    ]
    best = [trial.best_validation for trial in rated]
    dimensions.append({"label": _plain(experiment.searcher_metric or "best"), "values": best})
    line = {"color": best, "colorscale": "Viridis", "showscale": True}
    line["reversescale"] = experiment.smaller_is_better
    return objects.Parcoords(dimensions=dimensions, line=line)


def _dimension(name: str, values: list[Any]) -> dict[str, Any]:
    """An axis: linear or logarithmic for numbers, categorical for the rest."""
    numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if len(numbers) < len(values):
        words = sorted({repr(value) for value in values})
        indices = [words.index(repr(value)) for value in values]
        return {
            "label": _plain(name),
            "values": indices,
            "tickvals": list(range(len(words))),
            "ticktext": [_plain(word) for word in words],
        }
    if min(numbers) > 0 and max(numbers) / min(numbers) > 30:
        return {"label": f"log10 {_plain(name)}", "values": [math.log10(v) for v in numbers]}
    return {"label": _plain(name), "values": numbers}


def _nothing_to_draw(reader: Reader, experiment: Experiment, group: str, metric: str) -> str:
    known = [f"{g}: {name}" for g, name in reader.metrics.names(experiment.id)]
    hint = f"It has {', '.join(known[:10])}." if known else "It has no metrics yet."
    return f"Experiment {experiment.id} has no metric {metric!r} of the group {group!r}. {hint}"


def _plain(text: str) -> str:
    """Escape text, as plotly interprets some tags."""
    return text.replace("<", "‹").replace(">", "›")


def _plotly() -> tuple[Any, Any]:
    try:
        import plotly.graph_objects
        from plotly.subplots import make_subplots
    except ImportError as error:
        raise ImportError(_HINT) from error
    return plotly.graph_objects, make_subplots
