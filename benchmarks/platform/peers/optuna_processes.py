"""Optuna with a process per trial, two at a time: `optuna_processes.py TRIALS`."""

from __future__ import annotations

import json
import subprocess
import sys
import time


def main(trials: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def objective(trial: optuna.Trial) -> float:
        lr = trial.suggest_float("lr", 0.01, 0.1)
        command = [sys.executable, "-m", "benchmarks.platform.peers.plain_net", str(lr)]
        return float(subprocess.run(command, check=True, capture_output=True).stdout)

    study = optuna.create_study(
        storage="sqlite:///optuna.db", sampler=optuna.samplers.RandomSampler(0)
    )
    began = time.monotonic()
    study.optimize(objective, n_trials=trials, n_jobs=2)
    print(json.dumps({"seconds": time.monotonic() - began}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
