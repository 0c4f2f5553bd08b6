"""A home on a disk that fills up while a trial runs: `python -m tests.support.full_home FOLDER`.

Run in a mount namespace of its own, on a small file system; prints what happened as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from determined.platform.supervisor import presence
from tests.support.lab import Lab

STEPS = """
import time
import determined as det
with det.core.init() as ctx:
    steps, latest = 0, det.get_cluster_info().latest_checkpoint
    if latest:
        with ctx.checkpoint.restore_path(latest) as path:
            steps = int((path / "steps").read_text())
    for step in range(steps + 1, 121):
        ctx.train.report_training_metrics(step, {"loss": 1 / step})
        time.sleep(0.02)
        if step % 20 == 0:
            with ctx.checkpoint.store_path({"steps_completed": step}) as (path, _):
                (path / "steps").write_text(str(step))
"""


def main(folder: Path) -> dict[str, Any]:
    lab = Lab(folder)
    blocker = folder / "blocker"
    experiment_id = lab.create(STEPS, max_restarts=3)
    lab.until(lambda: len(lab.checkpoints(experiment_id)) >= 2)
    _fill(blocker)
    run = Path(lab.runs(experiment_id)[0].folder)
    lab.until(lambda: "No space left" in (run / "log").read_text() or (run / "exit.json").exists())
    told: dict[str, Any] = {
        "create": _det("e", "create", "-", stdin=_CONFIG),
        "label": _det("e", "label", "add", "1", "x"),
        "list": _det("e", "list"),
    }
    before = sorted(path.name for path in lab.home.path.iterdir())
    blocker.unlink()
    told["state"] = lab.wait(experiment_id).state
    (trial,) = lab.trials(experiment_id)
    reports = lab.service.reader.metrics.reports(trial.id, "training")
    told["steps"] = [report.steps_completed for report in reports]
    told["experiments"] = len(lab.service.reader.experiments().rows)
    told["creations"] = [path.name for path in lab.home.creations.iterdir()]
    told["names"] = before
    presence.stop(lab.home)
    lab.close()
    return told


_CONFIG = "name: x\nentrypoint: python3 -m x\nsearcher: {name: single, metric: loss}\n"


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 12))


def _det(*words: str, stdin: str = "") -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "determined.cli", *words],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return done.returncode, done.stderr


if __name__ == "__main__":
    os.environ["DET_HOME"] = str(Path(sys.argv[1]) / "home")
    print(json.dumps(main(Path(sys.argv[1]))))  # noqa: T201
