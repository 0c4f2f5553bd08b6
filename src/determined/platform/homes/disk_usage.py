"""The disk usage of a home, and what of it is no longer needed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from determined.platform.homes.home import Home
from determined.store import CheckpointFilter, ExperimentFilter, Reader, Run, TrialFilter

# A creation or a snapshot that is younger may belong to an experiment that is being created.
_GRACE_SECONDS = 86400.0


@dataclass(frozen=True)
class Usage:
    """A part of the home: a description and its size."""

    what: str
    num_bytes: int
    path: Path


@dataclass(frozen=True)
class Waste:
    """Something to remove, and why it is not needed."""

    path: Path
    reason: str
    num_bytes: int


def usage(home: Home) -> list[Usage]:
    """The parts of a home and their sizes."""
    store = sum(size_of(path) for path in home.path.glob("store.db*"))
    return [
        Usage("records", store, home.path / "store.db"),
        Usage("code", size_of(home.snapshots), home.snapshots),
        Usage("runs and logs", size_of(home.path / "experiments"), home.path / "experiments"),
        Usage("checkpoints", size_of(home.checkpoints), home.checkpoints),
        Usage("tensorboard", size_of(home.tensorboard), home.tensorboard),
        Usage("inbox", size_of(home.inbox), home.inbox),
        Usage("unused creations", size_of(home.creations), home.creations),
    ]


@dataclass(frozen=True)
class Share:
    """What an experiment takes: checkpoints wherever they are, and files in the home."""

    experiment_id: int
    name: str
    checkpoints: int
    files: int

    @property
    def total(self) -> int:
        return self.checkpoints + self.files


def shares(home: Home, reader: Reader) -> list[Share]:
    """What experiments take, those that take most first."""
    trials: dict[int, list[int]] = {}
    for trial in reader.trials(TrialFilter()).rows:
        trials.setdefault(trial.experiment_id, []).append(trial.id)
    checkpoints = _checkpoint_bytes(home, reader)
    found = [
        Share(
            record.id,
            record.name,
            checkpoints.get(record.id, 0),
            size_of(home.experiment(record.id))
            + sum(size_of(home.tensorboard / str(number)) for number in trials.get(record.id, ())),
        )
        for record in reader.experiments(ExperimentFilter()).rows
    ]
    return sorted(found, key=lambda share: (-share.total, share.experiment_id))


def _checkpoint_bytes(home: Home, reader: Reader) -> dict[int, int]:
    """What the checkpoints of each experiment take; files that several of them share count once."""
    found: dict[int, int] = {}
    seen: dict[int, set[tuple[int, int]]] = {}
    for checkpoint in reader.checkpoints(CheckpointFilter()).rows:
        number, folder = checkpoint.experiment_id or 0, home.checkpoints / checkpoint.uuid
        is_here = checkpoint.size > 0 and folder.is_dir()
        size = size_of(folder, seen.setdefault(number, set())) if is_here else checkpoint.size
        found[number] = found.get(number, 0) + size
    return found


def find_waste(home: Home, reader: Reader, *, workdirs: bool = False) -> list[Waste]:
    """Removable: code and creations without experiments, optionally copies of ended runs."""
    experiments = reader.experiments(ExperimentFilter()).rows
    snapshots = {experiment.snapshot_id for experiment in experiments}
    creations = {experiment.environment.get("creation") for experiment in experiments}
    found = [
        *_unknown(home.snapshots, snapshots, "code that no experiment uses"),
        *_unknown(home.creations, creations, "prepared for an experiment that was never created"),
    ]
    if workdirs:
        found += [
            Waste(path, "working copy of a run that has ended", size_of(path))
            for run in _ended_runs(reader)
            if (path := Path(run.folder, "workdir")).is_dir()
        ]
    return found


def find_kept(home: Home, reader: Reader, *, workdirs: bool = False) -> list[Waste]:
    """What no experiment needs and `find_waste` keeps nevertheless, and why."""
    experiments = reader.experiments(ExperimentFilter()).rows
    snapshots = {experiment.snapshot_id for experiment in experiments}
    creations = {experiment.environment.get("creation") for experiment in experiments}
    hours = f"{_GRACE_SECONDS / 3600:g} h"
    young = f"newer than {hours}: a command may be about to use it"
    found = [
        *_unknown(home.snapshots, snapshots, young, is_old=False),
        *_unknown(home.creations, creations, young, is_old=False),
    ]
    if not workdirs:
        paths = [Path(run.folder, "workdir") for run in _ended_runs(reader)]
        size = sum(size_of(path) for path in paths if path.is_dir())
        if size:
            what = home.path / "experiments"
            found.append(
                Waste(what, "working folders of ended runs: --workdirs removes them", size)
            )
    return found


def remove(waste: list[Waste]) -> int:
    """Remove it; returns the bytes that are free again."""
    freed = 0
    for item in waste:
        shutil.rmtree(item.path, ignore_errors=True)
        freed += item.num_bytes if not item.path.exists() else 0
    return freed


def _unknown(
    folder: Path, known: set[str | None], reason: str, *, is_old: bool = True
) -> Iterator[Waste]:
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        age = time.time() - path.lstat().st_mtime
        is_wanted = (age > _GRACE_SECONDS) == is_old
        if path.name not in known and not path.name.startswith(".") and is_wanted:
            yield Waste(path, reason, size_of(path))


def _ended_runs(reader: Reader) -> Iterator[Run]:
    for trial in reader.trials(TrialFilter()).rows:
        yield from (run for run in reader.runs(trial.id) if run.ended is not None)


def size_of(path: Path, seen: set[tuple[int, int]] | None = None) -> int:
    """The bytes of a file, or of all files below a folder; 0 if there is none.

    A file with several names there counts once; `seen` are such files that count no more.
    """
    try:
        status = path.lstat()
    except OSError:
        return 0
    if not path.is_dir() or path.is_symlink():
        return status.st_size
    total, seen = 0, set[tuple[int, int]]() if seen is None else seen
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                status = os.lstat(os.path.join(folder, name))  # noqa: PTH118  # quick
            except OSError:
                continue  # deleted meanwhile
            file = (status.st_dev, status.st_ino)
            if status.st_nlink > 1 and file in seen:
                continue
            if status.st_nlink > 1:
                seen.add(file)
            total += status.st_size
    return total
