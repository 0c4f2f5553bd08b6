"""Make a home to look at, without training anything.

    python -m benchmarks.dashboard.make_store HOME [--small | --full]

Small: a search with rungs, a running one, failures, NaN curves, long names, several projects, a
model and an unmanaged run, within seconds. Full: that, and what is much: 1,000 experiments, 10,000
trials in one more, 50 trials with a million points each, a trial with 100 metrics, a log of 200 MB.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.dashboard.scene import Curve, Scene, Search, a_scene
from determined import journal
from determined.store import Trial

SPACE: dict[str, Any] = {
    "lr": {"type": "log", "minval": -4, "maxval": -1},
    "net": {
        "units": {"type": "int", "minval": 16, "maxval": 256},
        "activation": {"type": "categorical", "vals": ["relu", "gelu", "tanh"]},
    },
    "dropout": {"type": "double", "minval": 0.0, "maxval": 0.5},
    "global_batch_size": 64,
}
LONG_NAME = (
    "a-very-long-name-of-an-experiment-that-somebody-made-from-all-of-its-hyperparameters-"
    "lr=0.001-units=256-dropout=0.5-<b>bold</b>"
)


def make_small(home: Path, *, now: float | None = None) -> None:
    """A bit of everything."""
    begin = (time.time() if now is None else now) - 6 * 3600
    with a_scene(home, begin) as scene:
        with scene.writer.transaction() as tx:
            vision = tx.registry.create_workspace("vision", "ada")
            digits = tx.registry.create_project(vision.id, "digits", "ada", "Handwritten digits")
            speech = tx.registry.create_project(vision.id, "speech & <sounds>", "grace")
        adaptive(scene, digits.id)
        grid(scene, digits.id)
        singles(scene, speech.id)
        unmanaged(scene)
        running(scene, digits.id)


def adaptive(scene: Scene, project_id: int) -> None:
    """A finished adaptive search with 16 trials, one failed, one with NaN."""
    record = scene.experiment(
        name="digits-adaptive",
        description="Which learning rate, how many units?",
        labels=["search", "digits"],
        hyperparameters=SPACE | {"lr": {"type": "log", "minval": -4, "maxval": 0}},
        searcher={
            "name": "adaptive_asha",
            "metric": "validation_loss",
            "time_metric": "batches",
            "max_time": 1600,
            "max_trials": 16,
            "max_concurrent_trials": 4,
        },
        notes="# Digits\n\nThe **best** run so far; see https://example.org\n",
        project_id=project_id,
        reproducibility={"experiment_seed": 7},
    )
    search = Search(scene, record)
    search.begin()
    done: set[str] = set()
    while left := [request for request in search.trials if request not in done]:
        done.add(left[0])
        search.play(left[0], 1600, 100, fails=len(done) == 5)
    scene.set_experiment(record.id, state="COMPLETED", progress=1.0, reason="the search is over")
    with scene.writer.transaction() as tx:
        tx.note("ended", "COMPLETED: the search is over", experiment_id=record.id)
        best = tx.experiment(record.id).best_trial_id
        model = tx.registry.create_model("digits-net", "ada", description="Our net for digits")
        for trial_id in (best, best and best + 1):
            found = tx.latest_checkpoint(trial_id) if trial_id else None
            if found is not None:
                version = tx.registry.register_version(model.id, found.uuid)
                tx.registry.update_version(version.id, comment="from the adaptive search")


def grid(scene: Scene, project_id: int) -> None:
    """A finished grid; with the largest learning rate the loss becomes NaN."""
    record = scene.experiment(
        name="digits-grid",
        labels=["digits"],
        hyperparameters={
            "lr": {"type": "categorical", "vals": [0.001, 0.01, 0.9]},
            "net": {"units": {"type": "categorical", "vals": [32, 128]}},
        },
        searcher={"name": "grid", "metric": "accuracy", "smaller_is_better": False},
        project_id=project_id,
    )
    search = Search(scene, record)
    search.begin()
    for request in list(search.trials):
        search.play(request, 800, 100)
    scene.set_experiment(record.id, state="COMPLETED", progress=1.0)


def singles(scene: Scene, project_id: int) -> None:
    """Experiments of one trial in many states."""
    rows: list[tuple[str, str, dict[str, Any]]] = [
        (LONG_NAME, "COMPLETED", {"labels": ["baseline", "label with spaces", "<i>x</i>"]}),
        ("speech-tiny", "PAUSED", {"labels": ["speech"]}),
        ("speech-broken", "ERROR", {}),
        ("speech-canceled", "CANCELED", {}),
        ("speech-old", "COMPLETED", {}),
    ]
    for name, state, values in rows:
        lr = 0.9 if state == "ERROR" else 0.02
        record = scene.experiment(
            name=name, hyperparameters={"lr": lr, "depth": 3}, project_id=project_id, **values
        )
        trial = scene.trial(record, {"lr": lr, "depth": 3})
        begin = scene.clock.now
        run = scene.run(trial)
        scene.train(run, Curve.of(trial.hparams), 0, 1200)
        scene.checkpoint(run, 1200)
        scene.log(run, 1200, begin, failed=state == "ERROR")
        scene.end(run, int(state == "ERROR"), "failed with status 1" if state == "ERROR" else "")
        if name == LONG_NAME:
            scene.clock.now += 60
            again = scene.run(scene_trial(scene, trial.id), 800)
            scene.train(again, Curve.of(trial.hparams), 800, 1600)
            scene.log(again, 800, begin + 60)
            scene.end(again)
        reason = "finished" if state == "COMPLETED" else f"made {state.lower()}"
        scene.set_trial(trial.id, state=state, progress=0.75, reason=reason)
        scene.set_experiment(record.id, state=state, progress=0.75, reason=f"made {state.lower()}")
        if name == "speech-old":
            scene.set_experiment(record.id, archived=True)
        scene.clock.now += 300


def scene_trial(scene: Scene, trial_id: int) -> Trial:
    with scene.writer.transaction() as tx:
        return tx.trial(trial_id)


def unmanaged(scene: Scene) -> None:
    """A script that nobody launched."""
    record = scene.experiment(
        name="python train.py", unmanaged=True, external_id="notebook-1", owner="grace"
    )
    trial = scene.trial(record, {"lr": 0.05}, external_id="notebook-1")
    run = scene.run(trial, slots=[])
    scene.train(run, Curve.of(trial.hparams), 0, 600)
    scene.end(run)
    scene.set_trial(trial.id, state="COMPLETED", progress=1.0)
    scene.set_experiment(record.id, state="COMPLETED", progress=1.0)


def running(scene: Scene, project_id: int) -> None:
    """A random search of which two trials look as if they ran, and others wait."""
    record = scene.experiment(
        name="digits-random-running",
        labels=["search"],
        hyperparameters=SPACE,
        searcher={
            "name": "random",
            "metric": "validation_loss",
            "max_trials": 8,
            "max_concurrent_trials": 8,
        },
        project_id=project_id,
    )
    search = Search(scene, record)
    search.begin()
    requests = list(search.trials)
    search.play(requests[0], 800, 100)
    scene.clock.now = max(scene.clock.now, time.time() - 120)
    for slot, request in enumerate(requests[1:3]):
        trial, begin = search.trials[request], scene.clock.now
        run = scene.run(trial, slots=[slot])
        scene.train(run, Curve.of(trial.hparams), 0, 500)
        scene.log(run, 500, begin)
        scene.samples(run, begin, 60)
    scene.set_experiment(record.id, progress=0.2)


def make_full(
    home: Path,
    *,
    experiments: int = 1000,
    trials: int = 10_000,
    curves: int = 50,
    points: int = 1_000_000,
    metrics: int = 100,
    log_bytes: int = 200_000_000,
) -> dict[str, int]:
    """Much of everything; returns the ids of what is large."""
    make_small(home)
    found: dict[str, int] = {}
    with a_scene(home, time.time() - 3000.0, seed=1) as scene:
        found["search"] = many_trials(scene, trials)
        found["curves"] = long_curves(scene, curves, points)
        found["metrics_trial"] = many_metrics(scene, metrics)
        found["log_trial"] = long_log(scene, log_bytes)
        many_experiments(scene, experiments)
    return found


def many_trials(scene: Scene, count: int) -> int:
    """One search with very many short trials."""
    record = scene.experiment(
        name="ten-thousand",
        hyperparameters=SPACE,
        searcher={
            "name": "async_halving",
            "metric": "validation_loss",
            "time_metric": "batches",
            "max_time": 64,
            "num_rungs": 4,
            "max_trials": count,
            "max_concurrent_trials": 16,
        },
    )
    search = Search(scene, record)
    search.begin()
    done: set[str] = set()
    from determined.platform.search.events import TrialExited, ValidationCompleted

    queue = list(search.trials)
    while queue:
        request = queue.pop(0)
        done.add(request)
        trial, steps = search.trials[request], 1
        run = scene.run(trial, slots=[trial.id % 8])
        curve, records = Curve.of(trial.hparams), []
        while request not in search.stopped and steps <= 64:
            loss = curve.loss(steps * 20, scene.random.gauss(0, 1))
            metrics = {"validation_loss": loss, "accuracy": 1 - loss / 3}
            records.append(journal.Metrics("validation", steps, metrics, time=scene.clock()))
            search.hear(ValidationCompleted(request, metrics, steps))
            steps *= 4
        scene.say(run, *records)
        with scene.writer.transaction() as tx:
            tx.end_run(run.trial_id, run.run_id, 0)
            tx.update_trial(trial.id, state="COMPLETED", progress=1.0)
        search.hear(TrialExited(request))
        queue += [r for r in search.trials if r not in done and r not in queue]
        if len(done) % 1000 == 0:
            say(f"{len(done):,} trials")
    scene.set_experiment(record.id, state="COMPLETED", progress=1.0)
    return record.id


def long_curves(scene: Scene, count: int, points: int) -> int:
    """One search whose trials reported a million points each."""
    from array import array

    import numpy as np

    record = scene.experiment(
        name="long-curves",
        hyperparameters={"lr": {"type": "log", "minval": -4, "maxval": -1}},
        searcher={"name": "random", "metric": "loss", "max_trials": count},
    )
    generator, block = np.random.default_rng(0), 10_000
    for number in range(count):
        trial = scene.trial(record, {"lr": 10 ** -(1 + 3 * number / max(1, count))})
        run, begin = scene.run(trial), scene.clock.now
        for first in range(0, points, block):
            steps = np.arange(first, first + block)
            values = (0.1 + number / count) + 2 * np.exp(-steps / (points / 5))
            values += generator.normal(0, 0.05, block)
            if first == points // 2:
                values[17] = 50.0  # a spike that no chart may lose
            column = journal.Column(array("d", values.tobytes()))
            batches = journal.BatchColumns(block, {"loss": column})
            last = first + block
            mean = {"loss": float(values.mean())}
            moment = begin + last * 1e-3
            scene.say(run, journal.Metrics("training", last, mean, batches, time=moment))
            if last % (10 * block) == 0 or last == points:
                scene.say(run, journal.Metrics("validation", last, mean, time=moment))
        scene.end(run)
        scene.set_trial(trial.id, state="COMPLETED", progress=1.0)
        if number % 10 == 9:
            say(f"{number + 1} curves of {points:,} points")
    scene.set_experiment(record.id, state="COMPLETED", progress=1.0)
    return record.id


def many_metrics(scene: Scene, count: int) -> int:
    """A trial with very many metrics."""
    record = scene.experiment(name="hundred-metrics", hyperparameters={"lr": 0.1})
    trial = scene.trial(record, {"lr": 0.1})
    run = scene.run(trial)
    for steps in range(10, 2001, 10):
        values = {f"metric_{n:03}": scene.random.random() for n in range(count)}
        values["validation_loss"] = 1 / steps
        scene.say(run, journal.Metrics("validation", steps, values, time=scene.clock()))
    scene.end(run)
    scene.set_trial(trial.id, state="COMPLETED", progress=1.0)
    scene.set_experiment(record.id, state="COMPLETED", progress=1.0)
    return trial.id


def long_log(scene: Scene, size: int) -> int:
    """A trial with a very long log."""
    record = scene.experiment(name="long-log", hyperparameters={"lr": 0.1})
    trial = scene.trial(record, {"lr": 0.1})
    run = scene.run(trial)
    scene.log(run, size // 42, scene.clock.now, failed=True)
    scene.end(run, 1, "failed with status 1")
    scene.set_trial(trial.id, state="ERROR", reason="failed with status 1")
    scene.set_experiment(record.id, state="ERROR")
    say("a long log")
    return trial.id


def many_experiments(scene: Scene, count: int) -> None:
    """Experiments of one trial each."""
    states = ("COMPLETED", "COMPLETED", "COMPLETED", "CANCELED", "ERROR")
    for number in range(count):
        lr = random.Random(number).choice([0.001, 0.01, 0.1])
        hparams = {"lr": lr, "seed": number, "model": {"name": "resnet", "depth": 18}}
        record = scene.experiment(
            name=f"sweep-{number:04}",
            labels=[f"batch-{number % 7}"],
            hyperparameters=hparams,
        )
        trial = scene.trial(record, hparams)
        run = scene.run(trial)
        values = {"validation_loss": scene.random.random(), "accuracy": scene.random.random()}
        scene.say(
            run,
            *(journal.Metrics("validation", n, values, time=scene.clock()) for n in (100, 200)),
        )
        state = states[number % 5]
        with scene.writer.transaction() as tx:
            tx.end_run(run.trial_id, run.run_id, 0)
            tx.update_trial(trial.id, state=state, progress=1.0)
            tx.update_experiment(record.id, state=state, progress=1.0)
    say(f"{count:,} experiments")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("home", type=Path, metavar="HOME")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--small", action="store_true", help="seconds (the default)")
    size.add_argument("--full", action="store_true", help="some minutes, 1.5 GB")
    options = parser.parse_args()
    if options.full:
        print(make_full(options.home))
    else:
        make_small(options.home)


if __name__ == "__main__":
    main()
