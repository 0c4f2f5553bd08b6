"""Ray Tune, function trainables on two CPUs: `ray_tune.py net|reports TRIALS`.

Only `fit` is timed, so the start of Ray itself (seconds) is not held against it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


def train_net(config: dict[str, float]) -> None:
    from ray import tune

    from benchmarks.platform.peers.plain_net import train

    tune.report({"loss": train(config["lr"])})


def only_report(config: dict[str, float]) -> None:
    from ray import tune

    for step in range(1, 11):
        tune.report({"loss": 1 / step})


def main(kind: str, trials: int) -> None:
    import ray
    from ray import tune

    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    tuner = tune.Tuner(
        tune.with_resources(train_net if kind == "net" else only_report, {"cpu": 1}),
        param_space={"lr": tune.uniform(0.01, 0.1)},
        tune_config=tune.TuneConfig(num_samples=trials, metric="loss", mode="min"),
        run_config=tune.RunConfig(storage_path=str(Path("results").resolve()), verbose=0),
    )
    began = time.monotonic()
    results = tuner.fit()
    seconds = time.monotonic() - began
    assert len(results) == trials
    assert not results.errors
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
