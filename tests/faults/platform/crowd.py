"""One of a crowd: `python -m tests.faults.platform.crowd FOLDER create N` or `... read`.

A creator makes experiments and pauses some of them; a reader asks until the file `enough` appears.
Both print what they did as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from determined.platform.service import RefusedError
from determined.store import TrialFilter
from tests.support.lab import Lab

REPORTS = 200

SCRIPT = f"""
import determined as det
from determined import core
with core.init() as ctx:
    latest = det.get_cluster_info().latest_checkpoint
    done = 0
    if latest:
        with ctx.checkpoint.restore_path(latest) as path:
            done = int((path / "done").read_text())
    while done < {REPORTS}:
        done += 1
        ctx.train.report_training_metrics(done, {{"loss": 1 / done}})
        if done % 50 == 0 and ctx.preempt.should_preempt():
            break
    with ctx.checkpoint.store_path({{"steps_completed": done}}) as (path, _):
        (path / "done").write_text(str(done))
"""


def create(lab: Lab, count: int) -> list[int]:
    made = []
    for number in range(count):
        made.append(lab.create(SCRIPT, max_restarts=3))
        if number % 3 == 0:
            try:
                lab.service.pause(made[-1])
                lab.service.activate(made[-1])
            except RefusedError:  # it was quicker
                assert lab.experiment(made[-1]).state == "COMPLETED"
    return made


def read(lab: Lab, enough: Path) -> int:
    answers = 0
    while not enough.exists():
        for experiment in lab.service.reader.experiments(limit=20).rows:
            for trial in lab.service.reader.trials(TrialFilter(experiment_id=experiment.id)).rows:
                steps = [r.steps_completed for r in lab.service.reader.metrics.reports(trial.id)]
                assert steps == list(range(1, len(steps) + 1)), steps
                answers += 1
    return answers


def main(folder: Path, home: Path, verb: str, *rest: str) -> Any:
    folder.mkdir()
    lab = Lab(folder)
    lab.home = type(lab.home)(home)
    lab.service = type(lab.service)(lab.home)
    return create(lab, int(rest[0])) if verb == "create" else read(lab, home.parent / "enough")


if __name__ == "__main__":
    done = main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
    sys.stdout.write(json.dumps(done))
