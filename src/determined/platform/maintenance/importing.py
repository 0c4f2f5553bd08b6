"""Bring experiments of another home into this one.

Files are copied first, beside their later places; then the records of each experiment are written
in one transaction; then the files are renamed. Whatever dies in between, a repetition completes it,
and brings only what is missing.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from determined._os.sync import sync
from determined.errors import DeterminedError, RefusedError, StoreError
from determined.platform.homes.home import Home
from determined.platform.maintenance.rebuild.rebuild import alone
from determined.storage import build
from determined.store import (
    CheckpointFilter,
    Imported,
    OtherStore,
    Reader,
    Relocation,
    Writer,
    is_made,
    is_storage_inside,
)

_STAGES = "imports"


@dataclass
class Result:
    """What became of each experiment."""

    imported: list[Imported] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def import_home(home: Home, source: Path, numbers: Iterable[int] = ()) -> Result:
    """Import the experiments with these ids, else all; those that have not ended are refused."""
    source = source.absolute()
    if not (source / "store.db").exists():
        raise RefusedError(f"{source} is no home: there is no store.db in it.")
    if home.path.exists() and os.path.samefile(home.path, source):  # noqa: PTH121
        raise RefusedError(f"{source} is this home itself.")
    home.make()
    other, result = OtherStore(source), Result()
    try:
        deleted = _deleted_here(home)
        wanted = list(numbers) or other.numbers()
        able = []
        for number in wanted:
            if obstacle := other.obstacle(number):
                result.refused.append(obstacle)
            else:
                _copy_files(home, other, number, deleted)
                able.append(number)
        with alone(home):
            writer = Writer(home.path)
            try:
                for number in able:
                    _import(home, writer, other, number, result)
            finally:
                writer.close()
    finally:
        other.close()
    return result


def _import(home: Home, writer: Writer, other: OtherStore, number: int, result: Result) -> None:
    try:
        with writer.transaction() as transaction:
            imported = transaction.import_experiment(other, number, home.path)
    except StoreError as error:
        message = str(error.__cause__ or error)
        if isinstance(error.__cause__, sqlite3.Error) and "disk" in message:
            raise
        result.refused.append(f"experiment {number} of {other.home} is not imported: {message}")
        shutil.rmtree(_stage(home, other, number), ignore_errors=True)
        return
    _put_in_place(home, _stage(home, other, number), imported)
    result.imported.append(imported)


def _deleted_here(home: Home) -> set[str]:
    """The checkpoints that were deleted since they were imported."""
    if not is_made(home.path):
        return set()
    reader = Reader(home.path)
    try:
        found = reader.checkpoints(CheckpointFilter()).rows
        return {checkpoint.uuid for checkpoint in found if checkpoint.state == "DELETED"}
    finally:
        reader.close()


def _stage(home: Home, other: OtherStore, number: int) -> Path:
    return home.path / _STAGES / f"{other.id}-{number}"


# Copying


def _copy_files(home: Home, other: OtherStore, number: int, deleted: set[str]) -> None:
    """Copy code, folders of runs, event files and checkpoints, as far as they are not here."""
    stage = _stage(home, other, number)
    for folder in (home.snapshots, stage / "trials", stage / "tensorboard"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (experiment,) = other.rows("experiment", "id=?", number)
    if (digest := experiment["snapshot_id"]) is not None:
        _copy_whole(other.home / "snapshots" / digest, home.snapshots / digest)
    there = other.home / "experiments" / str(number)
    _copy_whole(there, stage / "experiment", leave_out=("trials",))
    for trial in other.rows("trial", "experiment_id=?", number):
        name = str(trial["id"])
        for run in _folders(there / "trials" / name):
            (stage / "trials" / name).mkdir(mode=0o700, exist_ok=True)
            _copy_whole(run, stage / "trials" / name / run.name)
        _copy_whole(other.home / "tensorboard" / name, stage / "tensorboard" / name)
    for checkpoint in other.rows("checkpoint", "experiment_id=? AND state<>'DELETED'", number):
        if checkpoint["uuid"] in deleted:
            continue
        section = json.loads(checkpoint["storage"])
        section = section or json.loads(experiment["config"])["checkpoint_storage"]
        _copy_checkpoint(home, other, checkpoint["uuid"], section)


def _copy_checkpoint(home: Home, other: OtherStore, name: str, section: dict[str, Any]) -> None:
    """Copy a checkpoint that is inside the other home; others stay where both find them."""
    if not is_storage_inside(other.home, section):
        return
    base = build(section).base_path
    text = Relocation((str(other.home),), home.path).document(json.dumps(section))
    target = build(json.loads(text or "{}")).base_path
    if base is not None and target is not None:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        _copy_whole(base / name, target / name)


def _folders(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (entry for entry in path.iterdir() if entry.is_dir())


def _copy_whole(source: Path, target: Path, leave_out: tuple[str, ...] = ()) -> None:
    """Copy a folder so that it appears at once, and on disk; one that is here stays as it is."""
    if target.exists() or not source.is_dir():
        return
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")

    def unwanted(folder: str, names: list[str]) -> list[str]:
        special = [name for name in names if _is_special(Path(folder, name))]
        return special + [name for name in leave_out if Path(folder) == source]

    try:
        shutil.copytree(source, draft, symlinks=True, ignore=unwanted)
        for folder, _, files in os.walk(draft):
            for name in files:
                if not Path(folder, name).is_symlink():
                    sync(Path(folder, name))
            sync(Path(folder))
        draft.rename(target)
    except shutil.Error as error:
        raise DeterminedError(f"{source} cannot be copied: {error.args[0][0][2]}.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    sync(target.parent)


def _is_special(path: Path) -> bool:
    mode = path.lstat().st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


# Renaming


def _put_in_place(home: Home, stage: Path, imported: Imported) -> None:
    """Rename what was copied to where the records have it; may be repeated."""
    folder = home.experiment(imported.experiment_id)
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    _move(stage / "experiment", folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    for old, new in imported.trials.items():
        trial = folder / "trials" / str(new)
        trial.mkdir(mode=0o700, parents=True, exist_ok=True)
        for run in _folders(stage / "trials" / str(old)):
            _move(run, trial / run.name)
        _move(stage / "tensorboard" / str(old), home.tensorboard / str(new))
    shutil.rmtree(stage, ignore_errors=True)


def _move(source: Path, target: Path) -> None:
    if source.is_dir() and not target.exists():
        source.rename(target)
