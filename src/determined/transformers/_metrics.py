"""Which group the logs of a trainer belong to, and which of them are reported."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

TRAINING = "training"
VALIDATION = "validation"
TEST = "test"

_ALWAYS = ("batches", "epochs")
_SPEEDS = ("_runtime", "_per_second", "_compilation_time")


def group_of(logs: Mapping[str, Any]) -> str:
    """Say by the prefixes of the keys what was measured."""
    if any(name.startswith("eval_") for name in logs):
        return VALIDATION
    if any(name.startswith("test_") for name in logs):
        return TEST
    return TRAINING


def metrics_of(
    logs: Mapping[str, Any],
    steps: int,
    epochs: float | None,
    words: Sequence[str] | None,
    needed: Collection[str],
) -> dict[str, Any]:
    """Return what of the logs to report.

    Args:
        logs: what the trainer logged.
        steps: added as `batches`, if no metric has that name.
        epochs: likewise.
        words: keep only metrics whose names have one of them; None keeps all.
        needed: metrics that the search needs, which are kept in any case.
    """
    kept = {
        name: value
        for name, value in logs.items()
        if name != "epoch"
        and not name.endswith(_SPEEDS)
        and (words is None or name in needed or any(word in name for word in words))
    }
    added = {"batches": steps, "epochs": epochs or 0.0}
    return {**{name: logs.get(name, added[name]) for name in _ALWAYS}, **kept}


def check_needed(metrics: Mapping[str, Any], needed: Collection[str]) -> None:
    """Raise if a validation lacks a metric without which the search cannot go on."""
    missing = [f"`{name}`" for name in needed if name not in metrics]
    if missing:
        raise ValueError(
            f"The validation has no {' and no '.join(missing)}, which the experiment's searcher "
            f"needs (`searcher.metric`, `searcher.time_metric`). It has: "
            f"{', '.join(f'`{name}`' for name in metrics)}. Metrics of `compute_metrics` get the "
            "prefix `eval_`."
        )
