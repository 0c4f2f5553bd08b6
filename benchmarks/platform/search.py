"""How long a search of tiny trials takes, and how soon a decision reaches the trial.

python -m benchmarks.platform.search
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from determined.config import Completion, load
from determined.platform.home import Home
from determined.platform.service import Service
from determined.platform.supervisor import presence

# Waits at its end for a request to stop, as a trial that trains on would notice it.
_SCRIPT = """
import time
import determined as det
from determined import core

with core.init() as ctx:
    quality = det.get_cluster_info().trial.hparams["quality"]
    for epoch in range(1, 21):
        time.sleep(0.02)
        told = time.time()
        ctx.train.report_validation_metrics(epoch, {"loss": 1 - quality, "epochs": epoch})
        if epoch in (1, 5, 20):
            while time.time() < told + 0.25:
                time.sleep(0.001)
                if ctx.preempt.should_preempt(auto_ack=False):
                    print("LATENCY", time.time() - told, flush=True)
                    break
        if ctx.preempt.should_preempt():
            break
"""


def main() -> None:
    os.environ["DET_SLOTS"] = "2"
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder, "code")
        code.mkdir()
        (code / "script.py").write_text(_SCRIPT)
        home = Home(Path(folder, "home"))
        service = Service(home)
        config = {
            "name": "search",
            "entrypoint": "python3 script.py",
            "hyperparameters": {"quality": {"type": "double", "minval": 0, "maxval": 1}},
            "searcher": {
                "name": "adaptive_asha",
                "metric": "loss",
                "max_trials": 64,
                "max_time": 20,
                "time_metric": "epochs",
            },
        }
        storage = {"type": "shared_fs", "host_path": str(home.checkpoints)}
        loaded = load(config, completion=Completion(created=1, checkpoint_storage=storage))
        started = time.monotonic()
        experiment_id = service.create(loaded, service.take_snapshot(code), code)
        while True:
            record = service.reader.experiment(experiment_id)
            assert record is not None
            if record.ended is not None:
                break
            time.sleep(0.05)
        print(f"{record.state}: {record.num_trials} trials in {time.monotonic() - started:.1f} s")
        logs = Path(home.experiment(experiment_id)).rglob("log")
        words = [line.split() for log in logs for line in log.read_text().splitlines()]
        found = sorted(float(word[-1]) for word in words if "LATENCY" in word)
        if found:
            print(
                f"report to request, seen by the trial: median {statistics.median(found):.3f} s, "
                f"most {found[-1]:.3f} s, of {len(found)} stops"
            )
        presence.stop(home)
        service.close()


if __name__ == "__main__":
    main()
