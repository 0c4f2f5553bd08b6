"""The whole rebuild, in an order that can be interrupted anywhere and started again."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from determined._os.sync import sync
from determined.errors import CheckpointNotFound, DeterminedError
from determined.journal import InboxItem, item_names
from determined.platform.homes.home import Home
from determined.platform.maintenance.rebuild.records import Records
from determined.platform.maintenance.rebuild.reports import read_again
from determined.platform.runs.found_runs import (
    FoundExperiment,
    FoundTrial,
    find_experiments,
    recorded_root,
)
from determined.platform.runs.launchers.local import LocalLauncher
from determined.platform.search.events import ValidationCompleted
from determined.platform.supervisor import presence
from determined.storage import build
from determined.store import READ_FROM_JOURNALS, Transaction, Writer, refuse_newer, set_aside

_DRAFT = ".rebuild"
_LOCAL = ("shared_fs", "directory")


@dataclass
class Rebuilt:
    """The result of a rebuild."""

    old: Path | None = None
    """Where the old one is; None if there was none."""
    damage: dict[str, str] = field(default_factory=dict)
    """What went wrong while reading it, by table."""
    restored: list[str] = field(default_factory=list)
    """What was restored from folders."""
    reread: int = 0
    """The trials whose journals were read again."""
    lost: list[str] = field(default_factory=list)
    """What is lost, in sentences."""
    experiments: int = 0


def rebuild(home: Home) -> Rebuilt:
    """Move the store aside and create a new one from it and from the folders; runs continue."""
    refuse_newer(home.path)
    with alone(home):
        result = Rebuilt(set_aside(home.path))
        draft = home.path / _DRAFT
        shutil.rmtree(draft, ignore_errors=True)  # of an attempt that was interrupted
        writer = Writer(draft, is_draft=True)
        try:
            _fill(home, writer, result)
        finally:
            writer.close()
        (draft / "store.db").replace(home.path / "store.db")
        sync(home.path)
        shutil.rmtree(draft, ignore_errors=True)
    return result


@contextlib.contextmanager
def alone(home: Home) -> Iterator[None]:
    """Keep supervisors away."""
    presence.stop(home)
    claimed = presence.Presence.claim(home)
    if claimed is None:
        raise DeterminedError(
            f"A supervisor is running for {home.path} and did not exit: run `det supervisor stop` "
            "first."
        )
    try:
        yield
    finally:
        claimed.release()


def _fill(home: Home, writer: Writer, result: Rebuilt) -> None:
    found = list(find_experiments(home))
    with writer.transaction() as transaction:
        restoration = transaction.restoration
        if result.old is not None:
            result.damage = restoration.salvage(result.old, home.path)
        if (root := recorded_root(found)) is not None:
            restoration.remember_home(root)
        records = Records(transaction)
        for experiment in found:
            records.complete(experiment)
        restoration.drop_orphans()
        result.restored, result.lost = records.restored, records.lost
    for run in records.strangers:
        asyncio.run(LocalLauncher().kill(run.folder))
    is_hurt = bool(READ_FROM_JOURNALS & result.damage.keys())
    for experiment in found:
        for trial in experiment.trials:
            if is_hurt or trial.id in records.changed:
                with writer.transaction() as transaction:
                    result.reread += _read_again(transaction, experiment, trial)
    with writer.transaction() as transaction:
        newest_trial = max((experiment.newest_trial for experiment in found), default=0)
        newest = max((experiment.id for experiment in found), default=0)
        transaction.restoration.finish(newest, newest_trial)
        result.experiments = len(transaction.restoration.experiments())
        _forget_adoptions(home, transaction)


def _read_again(transaction: Transaction, experiment: FoundExperiment, trial: FoundTrial) -> bool:
    """Read the journals of a trial, unless some are gone: then the rows that are there count."""
    restoration = transaction.restoration
    by_number = {run.run_id: run for run in trial.runs}
    runs = restoration.runs(trial.id)
    if not runs or not all(run.run_id in by_number for run in runs):
        return False
    known_steps = _validations_known_to_search(transaction, experiment.id, trial.last.request_id)
    read_again(restoration, trial.id, [(run, by_number[run.run_id]) for run in runs], known_steps)
    _look_for_files(transaction, trial.id)
    return True


def _validations_known_to_search(
    transaction: Transaction, experiment_id: int, request_id: str
) -> Collection[int]:
    """The steps of the validations of a trial that its search has processed."""
    events = (step.event["event"] for step in transaction.restoration.steps(experiment_id))
    return {
        event["steps"]
        for event in events
        if event["kind"] == ValidationCompleted.kind and event["request_id"] == request_id
    }


def _look_for_files(transaction: Transaction, trial_id: int) -> None:
    """Record which checkpoints no longer exist; object stores are left alone."""
    for record in transaction.restoration.checkpoints(trial_id):
        if record.state == "DELETED" or record.storage.get("type") not in _LOCAL:
            continue
        try:
            build(record.storage).resources(record.uuid)
        except CheckpointNotFound:
            transaction.set_checkpoint_files(record.uuid, "DELETED", {})
        except (DeterminedError, OSError):
            continue  # its disk may not be mounted: that proves nothing


def _forget_adoptions(home: Home, transaction: Transaction) -> None:
    """Let items in the inbox be recorded again, where the store does not know them."""
    for name in item_names(home.path):
        item = InboxItem(home.inbox / name)
        if transaction.journal(str(item.journal)) is None:
            item.forget_adoption()
