"""trackio: `python -m benchmarks.dashboard.peers.trackio FOLDER` stores the data in its SQLite."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.dashboard.peers.data import curve, trials

_BATCH = 10_000


def main(folder: Path) -> None:
    os.environ["TRACKIO_DIR"] = str(folder)
    from trackio.sqlite_storage import SQLiteStorage  # what its own importers write with

    for number, trial in enumerate(trials()):
        config = {"lr": trial.lr, "units": trial.units}
        SQLiteStorage.bulk_log("search", f"trial-{number}", [{"loss": trial.loss}], config=config)
    values = curve()
    for first in range(0, len(values), _BATCH):
        part = values[first : first + _BATCH]
        steps = list(range(first, first + len(part)))
        SQLiteStorage.bulk_log("curve", "long", [{"loss": value} for value in part], steps)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
