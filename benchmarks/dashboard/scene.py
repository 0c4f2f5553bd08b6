"""Write a home as a supervisor would, without training: the clock is ours, the records are real."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from determined import journal
from determined._contracts.log_index import Stamper, pack
from determined.config import Completion, load
from determined.platform.homes.home import Home
from determined.platform.homes.snapshot import create_snapshot
from determined.platform.runs.folder import EXITED, RunExit, RunFolder, Traceback
from determined.platform.search.events import (
    Create,
    FailTrial,
    InitialTrials,
    Stop,
    TrialCreated,
    TrialExited,
    TrialExitedEarly,
    ValidationCompleted,
    to_json,
)
from determined.platform.search.searcher import Searcher, Step
from determined.store import Experiment, NewExperiment, NewTrial, Run, Transaction, Trial, Writer

CODE = {
    "train.py": "import determined as det\nfrom model import Net\n\n\ndef main() -> None:\n"
    "    hparams = det.get_cluster_info().trial.hparams\n    print(Net(hparams))\n",
    "model.py": "class Net:\n    def __init__(self, hparams):\n        self.hparams = hparams\n",
    "data/classes.txt": "zero\none\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n",
    "weights/tiny.bin": "\x00\x01\x02\x03",
}
TRACEBACK = """Traceback (most recent call last):
  File "/run/train.py", line 41, in <module>
    main()
  File "/run/train.py", line 33, in main
    loss = model(batch)
RuntimeError: CUDA error: out of memory while trying to allocate 2.00 GiB <script>alert(1)</script>
"""


class Clock:
    """What `time.time` says while a scene is made."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@dataclass
class Curve:
    """How the metrics of a trial go: towards a floor, with noise, maybe to NaN."""

    rate: float
    floor: float
    nan_from: float = math.inf

    def loss(self, steps: int, noise: float) -> float:
        if steps >= self.nan_from:
            return math.nan
        return self.floor + 2.3 * math.exp(-self.rate * steps / 1000) + 0.03 * noise

    @classmethod
    def of(cls, hparams: dict[str, Any]) -> Curve:
        """Better for a learning rate near 0.01 and more units; hopeless for a large one."""
        distance = abs(math.log10(float(hparams.get("lr", 0.01))) + 2)
        units = float(hparams.get("net", {}).get("units", 64))
        nan_from = 300 if float(hparams.get("lr", 0.01)) > 0.5 else math.inf
        return cls(3.0 / (1 + distance), 0.08 + 0.1 * distance + 4 / units, nan_from)


class Scene:
    """A home that is being written."""

    def __init__(self, path: Path, clock: Clock, seed: int = 0) -> None:
        self.home = Home(path)
        self.clock = clock
        self.random = random.Random(seed)
        self.writer = Writer(path)
        self._offsets: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._snapshot = self._make_code()

    def _make_code(self) -> str:
        source = self.home.path / "made-code"
        for name, text in CODE.items():
            file = source / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return create_snapshot(self.home.snapshots, source).digest

    def experiment(self, **values: Any) -> Experiment:
        """Add an experiment; what is not part of a configuration goes into its record."""
        known = ("state", "owner", "notes", "unmanaged", "external_id", "project_id", "parent_id")
        record = {name: values.pop(name) for name in known if name in values}
        config = {
            "entrypoint": "python3 train.py",
            "searcher": {"name": "single", "metric": "validation_loss"},
            **values,
        }
        storage = {"type": "shared_fs", "host_path": str(self.home.checkpoints)}
        completion = Completion(created=self.random.randrange(2**31), checkpoint_storage=storage)
        effective = load(config, completion=completion).effective
        new = NewExperiment(
            config=effective,
            owner=record.pop("owner", "ada"),
            name=effective["name"],
            description=effective.get("description") or "",
            labels=list(effective.get("labels") or []),
            original_config="",
            snapshot_id=self._snapshot,
            environment={"python": "3.11.7", "packages": ["torch==2.9.0", "numpy==2.1.0"]},
            searcher_metric=effective["searcher"]["metric"],
            smaller_is_better=effective["searcher"]["smaller_is_better"],
            **record,
        )
        with self.writer.transaction() as tx:
            return tx.create_experiment(new)

    def trial(self, experiment: Experiment, hparams: dict[str, Any], **values: Any) -> Trial:
        """Add a trial that no search asked for."""
        new = NewTrial(experiment.id, f"made-{next(self._numbers)}", 1, hparams, **values)
        with self.writer.transaction() as tx:
            return tx.create_trial(new)

    def run(self, trial: Trial, steps: int = 0, slots: Sequence[int] = (0,)) -> Run:
        """Add a run with its folder."""
        folder = self.home.run(trial.experiment_id, trial.id, trial.run_id + 1)
        folder.mkdir(parents=True, exist_ok=True)
        with self.writer.transaction() as tx:
            run = tx.create_run(
                trial.id, folder=str(folder), slots=list(slots), steps_completed=steps, host="here"
            )
        self.say(run, journal.RunStarted(run.run_id, steps, time=self.clock()))
        return run

    def say(self, run: Run, *records: journal.Record) -> None:
        """Read records as if they stood in the journal of the run."""
        path = f"{run.folder}/journal-1"
        self._offsets[path] = self._offsets.get(path, 0) + len(records)
        with self.writer.transaction() as tx:
            tx.read_journal(path, run.trial_id, run.run_id, records, self._offsets[path])

    def train(
        self, run: Run, curve: Curve, first: int, last: int, every: int = 100
    ) -> dict[str, Any]:
        """Report training and validations from a step on, a batch taking 20 ms."""
        begin, noise = self.clock.now, self.random.gauss
        metrics: dict[str, Any] = {}
        records: list[journal.Record] = []
        for steps in range(first + every, last + 1, every):
            moment = begin + (steps - first) * 0.02
            batches = [
                {"loss": curve.loss(steps - every + i + 1, 3 * noise(0, 1)), "lr": 0.01}
                for i in range(every)
            ]
            mean = curve.loss(steps, noise(0, 1))
            training = {"loss": mean, "lr": 0.01, "epochs": steps / 200}
            records.append(
                journal.Metrics(
                    "training", steps, training, journal.BatchColumns.of(batches), time=moment
                )
            )
            loss = curve.loss(steps, noise(0, 1)) * 1.1
            metrics = {
                "validation_loss": loss,
                "accuracy": math.nan if math.isnan(loss) else max(0.0, 1 - loss / 2.5),
                "epochs": steps / 200,
                "batches": steps,
            }
            records.append(journal.Metrics("validation", steps, metrics, time=moment + 1))
            records.append(journal.Progress(min(1.0, steps / 1600), time=moment))
        self.clock.now = begin + (last - first) * 0.02
        self.say(run, *records)
        return metrics

    def samples(self, run: Run, begin: float, seconds: int) -> None:
        """What the profiler saw."""
        records: list[journal.Record] = []
        for second in range(0, seconds, 5):
            moment, load = begin + second, 60 + 30 * math.sin(second / 17)
            host = {"cpu_util_simple": load + self.random.random()}
            values: dict[str, dict[str, Any]] = {
                "cpu": {"here": host},
                "memory": {"here": {"memory_free": 9e9 - 1e6 * second}},
                "network": {"here": {"net_throughput_sent": 1e4, "net_throughput_recv": 3e5}},
                "disk": {"here": {"disk_iops": 20.0, "/": {"disk_util": 41.0}}},
                "gpu": {"here": {"GPU-1": {"gpu_util": 90.0, "gpu_free_memory": 2e9}}},
            }
            for group, content in values.items():
                records.append(journal.SystemSamples(group, content, time=moment))
        self.say(run, *records)

    def checkpoint(self, run: Run, steps: int) -> str:
        """Publish a checkpoint with real, small files."""
        name = str(uuid.UUID(int=self.random.getrandbits(128), version=4))
        files = {"state_dict.pth": b"w" * 4000, "load_data.json": b"{}", "metadata.json": b"{}"}
        folder = self.home.checkpoints / name
        folder.mkdir(parents=True)
        for file, content in files.items():
            (folder / file).write_bytes(content)
        sizes = {file: len(content) for file, content in files.items()}
        self.say(
            run,
            journal.Checkpoint(name, steps, sizes, {"steps_completed": steps}, time=self.clock()),
        )
        return name

    def log(self, run: Run, lines: int, begin: float, failed: bool = False) -> None:
        """Write the log of a run with its index."""
        stamper, moment = Stamper(), begin
        levels = ("INFO", "INFO", "INFO", "DEBUG", "WARNING")
        folder = RunFolder(run.folder)
        with folder.log.open("ab") as log, folder.log_times.open("ab") as times:
            for start in range(0, lines, 50):
                moment += 1.0
                text = "".join(
                    f"[rank={n % 2}] {levels[n % 5]}: batch {n}: loss {2 / (1 + n / 100):.4f}\n"
                    for n in range(start, min(start + 50, lines))
                )
                piece = (text + (TRACEBACK if failed and start + 50 >= lines else "")).encode()
                log.write(piece)
                stamp = stamper.stamp(piece, int(moment * 1e6))
                if stamp is not None:
                    times.write(pack(stamp))

    def end(self, run: Run, exit_code: int = 0, reason: str = "finished") -> None:
        """Record how a run ended."""
        traceback = Traceback(0, TRACEBACK) if exit_code else None
        RunFolder(run.folder).save_exit(
            RunExit(exit_code, EXITED, traceback=traceback, ended_at=self.clock())
        )
        with self.writer.transaction() as tx:
            tx.end_run(run.trial_id, run.run_id, exit_code, reason)

    def set_trial(self, trial_id: int, **changes: Any) -> None:
        with self.writer.transaction() as tx:
            tx.update_trial(trial_id, **changes)

    def set_experiment(self, experiment_id: int, **changes: Any) -> None:
        with self.writer.transaction() as tx:
            tx.update_experiment(experiment_id, **changes)

    def close(self) -> None:
        self.writer.close()


class Search:
    """A search that really decides, over trials that only pretend to train."""

    def __init__(self, scene: Scene, record: Experiment) -> None:
        self.scene = scene
        self.record = record
        seed = record.config["reproducibility"]["experiment_seed"]
        self.searcher = Searcher(record.config["searcher"], record.config["hyperparameters"], seed)
        self.trials: dict[str, Trial] = {}
        self.stopped: set[str] = set()

    def begin(self) -> None:
        self.hear(InitialTrials())

    def hear(self, event: Any) -> None:
        """Let the search decide about an event, and do what it says."""
        created: list[str] = []
        with self.scene.writer.transaction() as tx:
            step = self.searcher.handle(event)
            self._keep(tx, step)
            for action in step.actions:
                if isinstance(action, Create):
                    new = NewTrial(
                        self.record.id, action.request_id, action.trial_seed, action.hparams
                    )
                    self.trials[action.request_id] = tx.create_trial(new)
                    created.append(action.request_id)
                elif isinstance(action, (Stop, FailTrial)):
                    self.stopped.add(action.request_id)
                    trial_id = self.trials[action.request_id].id
                    tx.update_trial(trial_id, reason=action.reason)
        for request_id in created:
            self.hear(TrialCreated(request_id))

    def _keep(self, tx: Transaction, step: Step) -> None:
        reasons = [getattr(action, "reason", "") for action in step.actions]
        tx.record_search(
            self.record.id,
            self.searcher.snapshot() if self.searcher.snapshot_is_due else None,
            step.record,
            [to_json(action) for action in step.actions],
            " ".join(reason for reason in reasons if reason),
        )

    def play(self, request_id: str, last: int, every: int, *, fails: bool = False) -> None:
        """Train a trial until the search, its end or a failure stops it."""
        scene, trial = self.scene, self.trials[request_id]
        begin = scene.clock.now
        run = scene.run(trial, slots=[trial.id % 2])
        steps, curve = 0, Curve.of(trial.hparams)
        while steps < last and request_id not in self.stopped:
            metrics = scene.train(run, curve, steps, steps + every, every)
            steps += every
            if fails and steps >= last // 4:
                break
            self.hear(ValidationCompleted(request_id, metrics, steps))
            if steps % (4 * every) == 0:
                scene.checkpoint(run, steps)
        scene.log(run, steps, begin, failed=fails)
        scene.samples(run, begin, max(10, int(scene.clock.now - begin)))
        if fails:
            scene.end(run, 1, "failed with status 1: RuntimeError: out of memory")
            scene.set_trial(trial.id, state="ERROR", restarts=1, reason="failed with status 1")
            self.hear(TrialExitedEarly(request_id, "errored", "digest"))
        else:
            if steps % (4 * every):
                scene.checkpoint(run, steps)
            scene.end(run)
            scene.set_trial(trial.id, state="COMPLETED", progress=steps / last)
        self.hear(TrialExited(request_id))


@contextlib.contextmanager
def a_scene(path: Path, begin: float, seed: int = 0) -> Iterator[Scene]:
    """A home to be written at another time; `time.time` tells that time meanwhile."""
    clock = Clock(begin)
    with mock.patch("time.time", clock):
        scene = Scene(path, clock, seed)
        try:
            yield scene
        finally:
            scene.close()
