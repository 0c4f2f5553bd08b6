"""Points into other trackers, from one run: `trackers.py trackio|mlflow POINTS`.

The time is from the first point to the moment when all of them can be read back.
"""

from __future__ import annotations

import json
import sys
import time


def with_trackio(points: int) -> float:
    import trackio

    trackio.init(project="bench", name="run")
    began = time.monotonic()
    for step in range(points):
        trackio.log({"loss": 1 / (step + 1)}, step=step)
    trackio.finish()
    return time.monotonic() - began


def with_mlflow(points: int) -> float:
    import mlflow
    from mlflow.entities import Metric

    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    client = mlflow.MlflowClient()
    run = client.create_run(client.create_experiment("bench")).info.run_id
    now, began = int(time.time() * 1000), time.monotonic()
    for first in range(0, points, 1000):  # the most that one call takes
        steps = range(first, min(first + 1000, points))
        client.log_batch(run, metrics=[Metric("loss", 1 / (s + 1), now, s) for s in steps])
    return time.monotonic() - began


def main(name: str, points: int) -> None:
    log = {"trackio": with_trackio, "mlflow": with_mlflow}[name]
    print(json.dumps({"seconds": log(points)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
