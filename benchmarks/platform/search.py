"""How long a search of tiny trials takes, and how soon a decision stands in the control file.

python -m benchmarks.platform.search [TRIALS]
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from determined.config import Completion, load
from determined.platform.home import Home
from determined.platform.service import Service
from determined.platform.supervisor import presence
from determined.store import TrialFilter

_SCRIPT = """
import time
import determined as det
from determined import core

with core.init() as ctx:
    quality = det.get_cluster_info().trial.hparams["quality"]
    for epoch in range(1, 21):
        time.sleep(0.05)
        ctx.train.report_validation_metrics(epoch, {"loss": 1 - quality, "epochs": epoch})
        if ctx.preempt.should_preempt():
            break
"""


def main(num_trials: int) -> None:
    os.environ["DET_SLOTS"] = "2"
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Home(Path(folder, "home")))
        try:
            _measure(service, Path(folder, "code"), num_trials)
        finally:
            presence.stop(service.home)
            service.close()


def _measure(service: Service, code: Path, num_trials: int) -> None:
    code.mkdir()
    (code / "script.py").write_text(_SCRIPT)
    config = {
        "name": "search",
        "entrypoint": "python3 script.py",
        "hyperparameters": {"quality": {"type": "double", "minval": 0, "maxval": 1}},
        "searcher": {
            "name": "adaptive_asha",
            "metric": "loss",
            "max_trials": num_trials,
            "max_time": 20,
            "time_metric": "epochs",
        },
    }
    storage = {"type": "shared_fs", "host_path": str(service.home.checkpoints)}
    loaded = load(config, completion=Completion(created=1, checkpoint_storage=storage))
    started = time.monotonic()
    experiment_id = service.create(loaded, service.take_snapshot(code), code)
    while (record := service.reader.experiment(experiment_id)) and record.ended is None:
        time.sleep(0.02)
    assert record is not None
    seconds = time.monotonic() - started
    print(f"{record.state}: {record.num_trials} trials on 2 slots in {seconds:.1f} s")
    found = sorted(_latencies(service, experiment_id))
    print(
        f"from report to request in the control file: median {statistics.median(found):.3f} s, "
        f"most {found[-1]:.3f} s, of {len(found)} stops"
    )


def _latencies(service: Service, experiment_id: int) -> list[float]:
    """Seconds from the report that led to a stop to the control file that asks for it."""
    found = []
    stops = {}
    for step in service.reader.search_steps(experiment_id):
        event = step.event["event"]
        for action in step.actions:
            if action["kind"] == "stop" and event["kind"] == "validation_completed":
                stops[action["request_id"]] = event["steps"]
    wanted = TrialFilter(experiment_id=experiment_id)
    for trial in service.reader.trials(wanted, limit=1000).rows:
        if trial.request_id not in stops:
            continue
        reports = service.reader.iter_metrics(trial.id, "validation")
        told = {report.steps_completed: report.time for report in reports}
        control = service.home.run(experiment_id, trial.id, 1) / "control"
        if json.loads(control.read_text())["preempt"]:  # else it was quicker
            found.append(control.stat().st_mtime - told[stops[trial.request_id]])
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 64)
