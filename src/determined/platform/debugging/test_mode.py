"""One batch of an experiment, through the real platform, in a temporary home.

A trial class and `Trainer.fit` stop after one batch by themselves (`DET_TEST_MODE`), the operation
of a Core API script is one batch long, and a script that still trains after its first reports is
asked to stop, as by a pause.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from determined._info import TEST_MODE_VARIABLE
from determined.config import Completion, Loaded, load
from determined.errors import DeterminedError
from determined.platform.homes.home import Home
from determined.platform.rules.states import State
from determined.platform.runs.folder import RunExit, RunFolder
from determined.platform.service import Service
from determined.platform.supervisor import presence
from determined.store import CheckpointFilter, Experiment, Trial, TrialFilter

STAGES = ("scheduling", "training", "validation", "checkpointing")

_KEPT = ("save_experiment_best", "save_trial_best", "save_trial_latest")
_PAUSE_SECONDS = 0.1
_AFTER_VALIDATION_SECONDS = 5.0
_AFTER_METRICS_SECONDS = 15.0
_STOP_SECONDS = 60
_TIDY_SECONDS = 60.0
_LAST_LINES = 60


def shortened(config: Mapping[str, Any]) -> Loaded:
    """Return the configuration of the test of an experiment."""
    searcher, storage = config["searcher"], config["checkpoint_storage"]
    variables = config["environment"]["environment_variables"]
    switch = f"{TEST_MODE_VARIABLE}=1"
    short = {
        **config,
        "description": f"[test-mode] {config['description'] or ''}".strip(),
        "searcher": {
            "name": "single",
            "metric": searcher["metric"],
            "smaller_is_better": searcher["smaller_is_better"],
            "max_length": {"batches": 1},
        },
        "repeat": 1,
        "checkpoint_storage": {**storage, **dict.fromkeys(_KEPT, 0)},
        "environment": {
            **config["environment"],
            "environment_variables": {
                device: [*given, switch] for device, given in variables.items()
            },
        },
        "scheduling_unit": 1,
        "min_validation_period": {"batches": 1},
        "max_restarts": 0,
        "preemption_timeout": min(config["preemption_timeout"], _STOP_SECONDS),
        "integrations": {},
    }
    return load(short, completion=Completion())


@contextlib.contextmanager
def temporary_home() -> Iterator[Home]:
    """Yield a home; at the end all its processes are ended, and it is removed."""
    with tempfile.TemporaryDirectory(prefix="determined-test-") as folder:
        home = Home(Path(folder) / "home")
        try:
            yield home
        finally:
            _end_everything(Service(home))


def _end_everything(service: Service) -> None:
    if not service.has_store:
        return
    # A store that cannot be read (a full disk, say) has no runs; and the first error counts.
    with contextlib.closing(service), contextlib.suppress(DeterminedError):
        live = [row for row in service.reader.experiments().rows if not _is_over(row)]
        for experiment in live:
            service.kill(experiment.id)
        deadline = time.monotonic() + _TIDY_SECONDS
        while time.monotonic() < deadline and (
            service.reader.has_chores()  # checkpoints that are still to be deleted
            or not all(_is_over(row) for row in service.reader.experiments().rows)
        ):
            service.wake_if_needed()
            time.sleep(_PAUSE_SECONDS)
    presence.stop(service.home)


def _is_over(record: Experiment | Trial) -> bool:
    return State(record.state).is_terminal


@dataclass(frozen=True)
class Verdict:
    """How a test ended: why it failed (empty if it passed), what it reached, what is odd."""

    failure: str
    reached: tuple[str, ...]
    batches: int
    notes: tuple[str, ...]
    last_lines: tuple[str, ...]


class OneBatchRun:
    """The one trial of a test, watched until its end."""

    def __init__(self, service: Service, experiment_id: int) -> None:
        self._service = service
        self._id = experiment_id
        self._seen: dict[str, float] = {}
        self._was_asked = False

    def stages(self) -> Iterator[str]:
        """Yield each stage as it is reached; ends with the trial."""
        is_over = False
        while True:
            is_last = is_over
            for stage in STAGES:
                if stage not in self._seen and self._has_reached(stage):
                    self._seen[stage] = time.monotonic()
                    yield stage
            if is_last:
                return
            is_over = _is_over(self._service.experiment(self._id))
            if not is_over:
                self._ask_to_stop_if_done()
                self._service.wake_if_needed()
                time.sleep(_PAUSE_SECONDS)

    def verdict(self) -> Verdict:
        """How it went, once `stages` has ended."""
        trial = self._trial
        assert trial is not None
        end = self._end(trial)
        return Verdict(
            failure=self._failure(trial, end),
            reached=tuple(stage for stage in STAGES if stage in self._seen),
            batches=trial.total_batches,
            notes=tuple(self._notes(trial, end)),
            last_lines=self._last_lines(trial),
        )

    @property
    def _trial(self) -> Trial | None:
        found = self._service.reader.trials(TrialFilter(experiment_id=self._id), limit=1).rows
        return found[0] if found else None

    def _has_reached(self, stage: str) -> bool:
        reader, trial = self._service.reader, self._trial
        if trial is None:
            return False
        if stage == "scheduling":
            return any(RunFolder(run.folder).was_started for run in reader.runs(trial.id))
        if stage == "checkpointing":
            return bool(reader.checkpoints(CheckpointFilter(self._id), limit=1).rows)
        return next(iter(reader.metrics.reports(trial.id, stage)), None) is not None

    def _ask_to_stop_if_done(self) -> None:
        now = time.monotonic()
        validated, trained = self._seen.get("validation", now), self._seen.get("training", now)
        is_done = (
            now - validated > _AFTER_VALIDATION_SECONDS or now - trained > _AFTER_METRICS_SECONDS
        )
        if is_done and not self._was_asked:
            self._was_asked = True
            self._service.cancel(self._id)

    def _end(self, trial: Trial) -> RunExit | None:
        runs = self._service.reader.runs(trial.id)
        return RunFolder(runs[-1].folder).exit if runs else None

    def _failure(self, trial: Trial, end: RunExit | None) -> str:
        if "invalid" in trial.reason.lower():
            return (
                f"it rejected its hyperparameters {trial.hparams}; run the test again to draw "
                "others"
            )
        if trial.state == State.COMPLETED.value or (self._was_asked and _was_stopped(end)):
            return ""
        return trial.reason or f"it is {trial.state}"

    def _notes(self, trial: Trial, end: RunExit | None) -> Iterator[str]:
        for stage in ("training", "validation"):
            if stage not in self._seen:
                yield f"no {stage} metrics were reported"
        summaries = self._service.reader.metrics.summaries(trial.id)
        names = sorted(summaries.get("validation_metrics", {}))
        metric = self._service.experiment(self._id).searcher_metric
        if names and metric not in names:
            given = "`, `".join(names)
            yield f"the validation metrics are `{given}`; searcher.metric is `{metric}`"
        if "checkpointing" not in self._seen:
            yield "no checkpoint was saved"
        if self._was_asked and end is not None and end.stopped_by is not None:
            yield (
                f"it did not stop within {_STOP_SECONDS} s of being asked to: call "
                "`preempt.should_preempt()` regularly"
            )

    def _last_lines(self, trial: Trial) -> tuple[str, ...]:
        lines: list[str] = []
        for run in self._service.reader.runs(trial.id):
            with contextlib.suppress(OSError):
                log = RunFolder(run.folder).log.read_text(errors="replace")
                lines += log.splitlines()
        return tuple(lines[-_LAST_LINES:])


def _was_stopped(end: RunExit | None) -> bool:
    return end is not None and (end.exit_code == 0 or end.stopped_by is not None)
