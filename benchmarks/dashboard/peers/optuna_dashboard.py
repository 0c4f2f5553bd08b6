"""optuna-dashboard: `python -m benchmarks.dashboard.peers.optuna_dashboard FOLDER` stores the data.

In a journal: its storage in SQLite takes a quarter of an hour for 200,000 intermediate values. The
dashboard holds all trials in memory, whichever it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

import optuna
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import create_trial

from benchmarks.dashboard.peers.data import curve, trials

_SPACE = {"lr": FloatDistribution(1e-4, 1e-1, log=True), "units": IntDistribution(16, 256)}


def main(folder: Path) -> None:
    storage = JournalStorage(JournalFileBackend(str(folder / "journal.log")))
    study = optuna.create_study(study_name="search", storage=storage)
    found = [
        create_trial(
            params={"lr": trial.lr, "units": trial.units}, distributions=_SPACE, value=trial.loss
        )
        for trial in trials()
    ]
    found[0].intermediate_values = dict(enumerate(curve()))
    study.add_trials(found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
