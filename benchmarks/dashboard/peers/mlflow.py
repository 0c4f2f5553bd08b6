"""MLflow: `python -m benchmarks.dashboard.peers.mlflow FOLDER` stores the data in SQLite."""

from __future__ import annotations

import sys
from pathlib import Path

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from benchmarks.dashboard.peers.data import curve, trials

_BATCH = 1000


def main(folder: Path) -> None:
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.create_experiment("search", artifact_location=str(folder / "artifacts"))
    for number, trial in enumerate(trials()):
        run = client.create_run(experiment, run_name=f"trial-{number}").info.run_id
        params = [Param("lr", str(trial.lr)), Param("units", str(trial.units))]
        client.log_batch(run, [Metric("final_loss", trial.loss, 0, 0)], params)
        client.set_terminated(run)
    run = client.create_run(experiment, run_name="long-curve").info.run_id
    points = [Metric("loss", value, step, step) for step, value in enumerate(curve())]
    for first in range(0, len(points), _BATCH):
        client.log_batch(run, points[first : first + _BATCH])
    client.set_terminated(run)
    (folder / "long").write_text(f"{experiment}/runs/{run}/model-metrics")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
