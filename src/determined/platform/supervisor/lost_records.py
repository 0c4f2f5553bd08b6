"""Whether the store is as new as the folders of the home.

A folder is created only after its record is committed. A folder without a record means that the
store was restored from a copy, or lost its newest part: going on would assign the same ids again.
"""

from __future__ import annotations

from pathlib import Path

from determined.errors import StoreError
from determined.platform.homes.home import Home
from determined.platform.runs.found_runs import newest_number
from determined.store import Transaction


def refuse_lost_records(home: Home, transaction: Transaction) -> None:
    """Raise StoreError if a folder is newer than the store."""
    experiments = home.path / "experiments"
    _compare(experiments, transaction.last_experiment_id)
    for record in transaction.unfinished_experiments():
        trials = transaction.trials(record.id)
        folder = home.experiment(record.id) / "trials"
        _compare(folder, max((trial.id for trial in trials), default=0))
        for trial in trials:
            _compare(folder / str(trial.id), trial.run_id)


def _compare(folder: Path, known: int) -> None:
    newest = newest_number(folder)
    if newest > known:
        raise StoreError(
            f"The records in store.db are older than the folder {folder / str(newest)}, which "
            "they do not mention. `det store rebuild` adds what is missing."
        )
