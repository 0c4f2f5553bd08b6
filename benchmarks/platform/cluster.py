"""What a cluster costs: turnover of tiny trials, and how soon a report is in the store.

    python -m benchmarks.platform.cluster [--trials 40] [--reports 50] [--json FILE]

The same function on this machine, on a Ray cluster of two simulated nodes with one slot each, and
under Ray Tune on that cluster, with new actors for each trial (its default) and with the same ones
again: two trials at a time everywhere. Starting the cluster, supervisor and its agents is not
counted: one trial runs before the clock does. Ray Tune needs `ray[tune]`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from determined.config import Completion, load
from determined.platform.homes.home import Home
from determined.platform.service import Service
from determined.platform.supervisor import presence
from determined.store import TrialFilter

_SLOTS = 2
_MEMORY = 80 << 20
_TINY = """
from determined import core
with core.init() as ctx:
    ctx.train.report_validation_metrics(1, {"loss": 1.0})
"""
_STAMPS = """
import time
from determined import core
with core.init() as ctx:
    for step in range(1, %d):
        time.sleep(0.1)
        ctx.train.report_validation_metrics(step, {"loss": 1.0, "sent": time.time()})
"""


def main() -> None:
    """Measure everything, print a table, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--reports", type=int, default=50)
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", DET_SLOTS=str(_SLOTS), DET_TRACKING="off")
    os.environ.update(DET_WARM_IDLE_SECONDS="60", DET_SUPERVISOR_IDLE_SECONDS="60")
    given = (arguments.trials, arguments.reports)
    results = {"this machine": platform(*given)}
    with tempfile.TemporaryDirectory(prefix="det-bench-") as disks:
        os.environ["DET_NODE_DIR"] = str(Path(disks) / "disks")
        cluster = _start_cluster()
        try:
            os.environ.update(DET_CLUSTER=cluster.address, DET_CLUSTER_INSECURE="1")
            results["Ray cluster"] = platform(*given)
            try:
                results["Ray Tune"] = tune(cluster.address, *given)
                results["reuse_actors"] = tune(cluster.address, *given, reuses_actors=True)
            except ImportError as error:
                print(f"Ray Tune is left out: {error}")
        finally:
            cluster.shutdown()
    load_now = os.getloadavg()[0]
    print(f"{arguments.trials} tiny trials, {_SLOTS} at a time; load {load_now:.1f}")
    for name, (seconds, delays) in results.items():
        middle, worst = statistics.median(delays) * 1e3, max(delays) * 1e3
        each = seconds / arguments.trials
        print(
            f"{name:14} {seconds:6.1f} s, {each:5.2f} s a trial; "
            f"report to store {middle:5.0f} ms, at most {worst:5.0f} ms"
        )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"load": load_now, "results": results}))


def platform(trials: int, reports: int) -> tuple[float, list[float]]:
    """Turnover and delays on whatever DET_CLUSTER names."""
    with tempfile.TemporaryDirectory(prefix="det-bench-") as name:
        lab = Bench(Path(name))
        try:
            lab.run(_TINY, 1)
            begin = time.monotonic()
            lab.run(_TINY, trials)
            seconds = time.monotonic() - begin
            return seconds, lab.delays(_STAMPS % (reports + 1))
        finally:
            lab.close()


class Bench:
    """A home of its own in a folder, and searches of a script."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder / "home")
        self.service = Service(self.home)
        self._folder = folder

    def close(self) -> None:
        presence.stop(self.home)
        self.service.close()

    def create(self, script: str, trials: int, at_once: int = 16) -> int:
        code = Path(tempfile.mkdtemp(dir=self._folder))
        (code / "script.py").write_text(script)
        config = {
            "name": "bench",
            "entrypoint": ["python3", "script.py"],
            "searcher": {
                **{"name": "random", "metric": "loss", "max_trials": trials},
                "max_concurrent_trials": at_once,
            },
            "hyperparameters": {"x": {"type": "double", "minval": 0, "maxval": 1}},
        }
        storage = {"type": "shared_fs", "host_path": str(self.home.checkpoints)}
        loaded = load(config, completion=Completion(created=1, checkpoint_storage=storage))
        return self.service.create(loaded, self.service.take_snapshot(code), code)

    def run(self, script: str, trials: int) -> None:
        experiment_id = self.create(script, trials)
        self._until(experiment_id, lambda: None)

    def delays(self, script: str) -> list[float]:
        """How long each report of a trial took until a reader of the store saw it."""
        experiment_id = self.create(script, 1)
        found: dict[int, float] = {}

        def look() -> None:
            for trial in self.service.reader.trials(TrialFilter(experiment_id=experiment_id)).rows:
                now = time.time()
                for row in self.service.reader.metrics.reports(trial.id, "validation"):
                    found.setdefault(row.steps_completed, now - row.metrics["sent"])

        self._until(experiment_id, look)
        return list(found.values())

    def _until(self, experiment_id: int, look: Callable[[], None]) -> None:
        while True:
            look()
            experiment = self.service.reader.experiment(experiment_id)
            assert experiment is not None
            if experiment.state in ("COMPLETED", "ERROR"):
                assert experiment.state == "COMPLETED", experiment.reason
                return
            self.service.wake_if_needed()
            time.sleep(0.005)


def tune(
    address: str, trials: int, reports: int, reuses_actors: bool = False
) -> tuple[float, list[float]]:
    """The same under Ray Tune; a report counts as stored when its callbacks are told."""
    import ray
    from ray import tune as ray_tune

    delays: list[float] = []

    class Watch(ray_tune.Callback):  # type: ignore[misc]  # Ray is not typed
        def on_trial_result(self, *args: Any, **given: Any) -> None:
            sent = given["result"].get("sent")
            if sent is not None:
                delays.append(time.time() - sent)

    def tiny(config: dict[str, Any]) -> None:
        ray_tune.report({"loss": 1.0})

    def stamps(config: dict[str, Any]) -> None:
        for _ in range(reports):
            time.sleep(0.1)
            ray_tune.report({"loss": 1.0, "sent": time.time()})

    def fit(function: Callable[[dict[str, Any]], None], count: int) -> None:
        ray_tune.Tuner(
            ray_tune.with_resources(function, {"cpu": 1}),
            param_space={"x": ray_tune.uniform(0, 1)},
            tune_config=ray_tune.TuneConfig(num_samples=count, reuse_actors=reuses_actors),
            run_config=ray_tune.RunConfig(verbose=0, callbacks=[Watch()], storage_path=folder),
        ).fit()

    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    try:
        with tempfile.TemporaryDirectory(prefix="det-bench-") as folder:
            fit(tiny, 1)
            begin = time.monotonic()
            fit(tiny, trials)
            seconds = time.monotonic() - begin
            fit(stamps, 1)
    finally:
        ray.shutdown()
    return seconds, delays


def _start_cluster() -> Any:
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": _MEMORY}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(_SLOTS):
        cluster.add_node(num_cpus=1, object_store_memory=_MEMORY)
    return cluster


if __name__ == "__main__":
    main()
