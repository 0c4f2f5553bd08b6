"""Where the large things of a made home are: found by their names, as people do."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from determined.store import Reader, Slice, TableFilter


@dataclass(frozen=True)
class LargeThings:
    """Ids of what `make_store --full` makes."""

    search: int  # the experiment with 10,000 trials
    curves: int  # the one with the long curves
    curve_trials: list[int]
    metrics_trial: int
    log_experiment: int
    log_trial: int
    num_experiments: int


def find_large_things(home: Path) -> LargeThings:
    """Look into a home."""
    with contextlib.closing(Reader(home)) as reader:
        total, rows = reader.tables.experiments(TableFilter(), Slice(limit=100_000))
        by_name = {row.name: row.id for row, _ in rows}

        def trials(name: str) -> list[int]:
            return [t.id for t in reader.tables.trials(by_name[name], None, Slice(limit=50))[1]]

        return LargeThings(
            search=by_name["ten-thousand"],
            curves=by_name["long-curves"],
            curve_trials=trials("long-curves"),
            metrics_trial=trials("hundred-metrics")[0],
            log_experiment=by_name["long-log"],
            log_trial=trials("long-log")[0],
            num_experiments=total,
        )
