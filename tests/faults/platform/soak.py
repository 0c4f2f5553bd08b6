"""One search of 50 trials, killed again and again: `python -m tests.faults.platform.soak`.

`--kills N` processes are killed: supervisor, keepers, trials; one, two or all at once. The search
must end as its own record says, and each trial with the values of an undisturbed one.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.faults.platform.random_kills import RandomKills
from tests.faults.platform.steady import check_only_the_supervisor_lives
from tests.support.lab import Lab
from tests.support.searches import check_replay

_AHEAD = 20  # kills before the search has got anywhere
TRIALS, EPOCHS = 50, 81

# The loss of an epoch depends on all epochs before it.
SCRIPT = """
import time
import determined as det
from determined import core

def main(ctx):
    info = det.get_cluster_info()
    epoch, state = 0, info.trial.hparams["quality"]
    if info.latest_checkpoint:
        with ctx.checkpoint.restore_path(info.latest_checkpoint) as path:
            epoch, state = eval((path / "state").read_text())
    while epoch < %(epochs)d:
        time.sleep(%(seconds)s)
        epoch, state = epoch + 1, state * 0.9 + 0.01
        ctx.train.report_validation_metrics(epoch, {"loss": state, "epochs": epoch})
        with ctx.checkpoint.store_path({"steps_completed": epoch}) as (path, _):
            (path / "state").write_text(repr((epoch, state)))
        if ctx.preempt.should_preempt():
            return

with core.init() as ctx:
    main(ctx)
"""


def settings(trials: int = TRIALS, epochs: int = EPOCHS, seconds: float = 0.0) -> dict[str, Any]:
    """The arguments of `Lab.create` for such a search."""
    return {
        "script": SCRIPT % {"epochs": epochs, "seconds": seconds},
        "hyperparameters": {"quality": {"type": "double", "minval": 0.0, "maxval": 1.0}},
        "searcher": {
            "name": "adaptive_asha",
            "metric": "loss",
            "max_trials": trials,
            "max_time": epochs,
            "time_metric": "epochs",
            "divisor": 3,
            "max_concurrent_trials": 4,
        },
        "max_restarts": 1000,
    }


def check_table(lab: Lab, experiment_id: int) -> None:
    """The table is that of the replayed events, and each value in it is right."""
    ended = lab.wait(experiment_id)
    assert ended.state == "COMPLETED", lab.account()
    replayed = check_replay(lab, experiment_id)
    trials = lab.trials(experiment_id)
    by_request = {trial.request_id: trial for trial in trials}
    assert sorted(by_request) == sorted(trial.request_id for trial in replayed.state.trials)
    for known in replayed.state.trials:
        trial = by_request[known.request_id]
        assert trial.state == "COMPLETED", trial.reason
        rows = list(lab.service.reader.metrics.reports(trial.id, "validation"))
        epochs = [row.steps_completed for row in rows]
        assert epochs == list(range(1, len(rows) + 1)), f"trial {trial.id}: {epochs}"
        state, losses = trial.hparams["quality"], []
        for row in rows:
            state = state * 0.9 + 0.01
            losses.append(state)
            assert row.metrics["loss"] == state
        assert trial.best_validation == min(losses)
        assert known.best in losses  # what comes after the decision on a trial changes nothing
    assert ended.best_validation == min(trial.best_validation or 9.0 for trial in trials)


def kill_at_random(
    lab: Lab, experiment_id: int, killer: RandomKills, kills: int, pauses: tuple[float, float]
) -> None:
    """Kill until it has been done so often, in step with the search, or that is over."""
    generator, told = random.Random(killer.count), time.monotonic()
    while killer.count < kills and (now := lab.experiment(experiment_id)).state == "ACTIVE":
        lab.service.wake_if_needed()
        time.sleep(generator.uniform(*pauses))
        if killer.count < kills * now.progress + _AHEAD:
            killer.kill_some()
        if time.monotonic() - told > 30:
            told = time.monotonic()
            over = sum(trial.state == "COMPLETED" for trial in lab.trials(experiment_id))
            say(f"{killer.count} kills, {over} trials are over")


def soak(folder: Path, kills: int, seed: int) -> None:
    lab, began = Lab(folder), time.monotonic()
    killer = RandomKills(lab, random.Random(seed))
    try:
        experiment_id = lab.create(**settings(seconds=0.3))
        kill_at_random(lab, experiment_id, killer, kills, (0.05, 0.5))
        while lab.experiment(experiment_id).state == "ACTIVE":
            lab.service.wake_if_needed()
            time.sleep(0.2)
        check_table(lab, experiment_id)
        check_only_the_supervisor_lives(lab)
        runs = len(lab.runs(experiment_id))
    finally:
        lab.close()
    by_kind = ", ".join(f"{number} of a {kind}" for kind, number in sorted(killer.killed.items()))
    say(
        f"{killer.count} kills ({by_kind}) in {time.monotonic() - began:.0f} s: {TRIALS} trials in "
        f"{runs} runs; the table is that of the replay"
    )


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    arguments = parser.parse_args()
    os.environ |= {"DET_SLOTS": "4", "DET_SUPERVISOR_IDLE_SECONDS": "60"}
    say(f"seed {arguments.seed}")
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soak(Path(folder), arguments.kills, arguments.seed)


if __name__ == "__main__":
    main()
