"""optuna-dashboard: `python -m benchmarks.dashboard.peers.optuna_dashboard FOLDER` uses SQLite."""

from __future__ import annotations

import sys
from pathlib import Path

import optuna
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.trial import create_trial

from benchmarks.dashboard.peers.data import curve, trials

_SPACE = {"lr": FloatDistribution(1e-4, 1e-1, log=True), "units": IntDistribution(16, 256)}


def main(folder: Path) -> None:
    study = optuna.create_study(study_name="search", storage=f"sqlite:///{folder}/optuna.db")
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
