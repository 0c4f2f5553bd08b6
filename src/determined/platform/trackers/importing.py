"""Write runs of other trackers into a home: each is an experiment with one trial, or nothing.

Event files are copied first, beside their later place; then all that is recorded of a run is
written in one transaction; then the files are renamed. Whatever dies in between, a repetition
completes it, and a run that is here already changes only if it has changed there.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import shlex
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from determined._os.regular_file import open_regular
from determined._os.sync import sync
from determined.errors import ConfigurationError, DeterminedError
from determined.platform.homes.home import Home
from determined.platform.maintenance.rebuild.rebuild import alone
from determined.platform.rules.unmanaged import METRIC, completed_config, project_of
from determined.platform.trackers.foreign_run import ForeignRun, Rows, each_once, rows_of
from determined.store import (
    Experiment,
    NewExperiment,
    NewTrial,
    Reader,
    Transaction,
    Writer,
    is_made,
)

_STAGES = "imports"
_NOWHERE = {"type": "directory", "container_path": "/nonexistent"}
_MOST_NAME = 120


@dataclass(frozen=True)
class Wishes:
    """What the owner says about all runs of an import."""

    project: str | None = None
    metric: str | None = None
    smaller_is_better: bool = True


@dataclass(frozen=True)
class ImportedRun:
    """What became of a run: `is_new`, `has_grown`, or neither if it was here as it is."""

    origin: str
    name: str
    experiment_id: int
    is_new: bool
    has_grown: bool
    num_left_out: int


def import_runs(
    home: Home,
    runs: Iterable[ForeignRun],
    wishes: Wishes = Wishes(),  # noqa: B008  # frozen
) -> Iterator[ImportedRun]:
    """Import runs one by one, each whole."""
    home.make()
    for run in each_once(runs):
        known = _find(home, run.origin)
        wanted = _with_known(wishes, known)
        rows = rows_of(run, wanted.metric)
        signature = rows.signature(run)
        stage = _stage(home, run)
        is_same = (
            known is not None
            and _signature_of(known[0]) == signature
            and _with_known(Wishes(), known) == replace(wanted, project=None)
        )
        in_place = known is not None and _is_in_place(run, home.tensorboard / str(known[1]))
        if not in_place:
            _copy_files(run, stage)
        if is_same:
            assert known is not None
            experiment_id, trial_id = known[0].id, known[1]
        else:
            with alone(home):
                writer = Writer(home.path)
                try:
                    with writer.transaction() as transaction:
                        written = _Written(home, transaction, run, rows, wanted)
                        experiment_id, trial_id = written.write(signature)
                finally:
                    writer.close()
        if not in_place:
            _put_in_place(stage, home.tensorboard / str(trial_id))
        yield ImportedRun(
            run.origin,
            run.name,
            experiment_id,
            is_new=known is None,
            has_grown=known is not None and not is_same,
            num_left_out=rows.num_left_out,
        )


def _with_known(wishes: Wishes, known: tuple[Experiment, int] | None) -> Wishes:
    """The metric that decides is the one of the import before, unless another is named."""
    if known is None or wishes.metric is not None:
        return wishes
    experiment = known[0]
    return replace(
        wishes,
        metric=experiment.searcher_metric,
        smaller_is_better=experiment.smaller_is_better,
    )


def _find(home: Home, origin: str) -> tuple[Experiment, int] | None:
    """The experiment of a run that is here already, and its trial."""
    from determined.store import TrialFilter

    if not is_made(home.path):
        return None
    reader = Reader(home.path)
    try:
        found = reader.imported(origin)
        if found is None:
            return None
        (trial,) = reader.trials(TrialFilter(experiment_id=found.id)).rows
        return found, trial.id
    finally:
        reader.close()


def _signature_of(experiment: Experiment) -> str | None:
    about = experiment.environment.get("imported")
    return about.get("signature") if isinstance(about, dict) else None


# Records


class _Written:
    """What one transaction writes of a run."""

    def __init__(
        self, home: Home, transaction: Transaction, run: ForeignRun, rows: Rows, wishes: Wishes
    ) -> None:
        self._home = home
        self._transaction = transaction
        self._run = run
        self._rows = rows
        self._wishes = wishes
        self._owner = run.owner or _user()
        now = time.time()
        self._started = run.started or rows.first or now
        self._ended = max(run.ended or rows.last or self._started, self._started)

    def write(self, signature: str) -> tuple[int, int]:
        transaction, run = self._transaction, self._run
        experiment = transaction.find_imported(run.origin)
        if experiment is None:
            experiment_id, trial_id = self._create()
        else:
            experiment_id = experiment.id
            (trial,) = transaction.trials(experiment_id)
            trial_id = trial.id
            transaction.update_experiment(
                experiment_id,
                searcher_metric=self._wishes.metric,
                smaller_is_better=self._wishes.smaller_is_better,
            )
        self._write_run(experiment_id, trial_id)
        over = {"state": run.state, "reason": run.reason, "ended": self._ended}
        began = {"created": self._started, "started": self._started, "progress": 1.0}
        told = {"hparams": run.hparams, "metadata": run.metadata}
        transaction.update_trial(trial_id, **over, **began, **told)
        about = {"imported": {"origin": run.origin, "signature": signature}}
        transaction.update_experiment(
            experiment_id, **over, **began, origin=run.origin, environment=about
        )
        return experiment_id, trial_id

    def _create(self) -> tuple[int, int]:
        run, wishes = self._run, self._wishes
        experiment = self._transaction.create_experiment(
            NewExperiment(
                config=self._config(),
                owner=self._owner,
                name=run.name[:_MOST_NAME],
                description=run.description,
                labels=list(run.labels),
                project_id=self._transaction.registry.ensure_project(
                    *self._project, self._owner
                ).id,
                searcher_metric=wishes.metric,
                smaller_is_better=wishes.smaller_is_better,
                unmanaged=True,
            )
        )
        request_id = str(uuid.uuid5(uuid.NAMESPACE_URL, run.origin))
        trial = self._transaction.create_trial(NewTrial(experiment.id, request_id, 0, run.hparams))
        return experiment.id, trial.id

    @property
    def _project(self) -> tuple[str, str]:
        return project_of(self._wishes.project or self._run.project)

    def _config(self) -> dict[str, Any]:
        run, wishes = self._run, self._wishes
        workspace, project = self._project
        metric = wishes.metric or METRIC
        values: dict[str, Any] = {
            "name": run.name[:_MOST_NAME] or "imported",
            "entrypoint": shlex.join(["det", "import", run.origin]),
            "searcher": {
                "name": "single",
                "metric": metric,
                "smaller_is_better": wishes.smaller_is_better,
            },
        }
        filed = {"workspace": workspace, "project": project, "labels": list(run.labels)}
        try:
            return completed_config(values | filed, _NOWHERE, run.hparams, 0)
        except ConfigurationError:  # labels or names that no configuration may have
            return completed_config(values, _NOWHERE, run.hparams, 0)

    def _write_run(self, experiment_id: int, trial_id: int) -> None:
        """Add a run with all rows; rows of a run that was imported before are hidden."""
        transaction = self._transaction
        number = transaction.trial(trial_id).run_id + 1
        folder = self._home.run(experiment_id, trial_id, number)
        run = transaction.create_run(trial_id, folder=str(folder), slots=[], steps_completed=-1)
        transaction.read_journal(
            str(folder / "journal"), trial_id, run.run_id, self._rows.records, 0
        )
        transaction.end_run(trial_id, run.run_id, None, self._run.reason)
        transaction.update_run(
            trial_id,
            run.run_id,
            steps_completed=0,
            created=self._started,
            started=self._started,
            ended=self._ended,
        )


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


# Files


def _stage(home: Home, run: ForeignRun) -> Path:
    return home.path / _STAGES / hashlib.sha256(run.origin.encode()).hexdigest()[:32]


def _is_in_place(run: ForeignRun, folder: Path) -> bool:
    return all(_size(folder / name) == _size(path) for path, name in run.files)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _copy_files(run: ForeignRun, stage: Path) -> None:
    shutil.rmtree(stage, ignore_errors=True)  # what a killed import left
    stage.mkdir(mode=0o700, parents=True)
    for path, name in run.files:
        target = stage / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with open_regular(path) as source, target.open("xb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
        except OSError as error:
            raise DeterminedError(f"{path} cannot be copied: {error.strerror}.") from error
        sync(target)
    sync(stage)


def _put_in_place(stage: Path, target: Path) -> None:
    """Rename the copies to where the trial's event files belong."""
    if target.exists():
        aside = stage.with_name(f"{stage.name}.old")
        shutil.rmtree(aside, ignore_errors=True)
        target.rename(aside)
        stage.rename(target)
        shutil.rmtree(aside, ignore_errors=True)
    elif any(stage.iterdir()):
        stage.rename(target)
    else:
        stage.rmdir()
