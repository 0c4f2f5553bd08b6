"""What journals of the inbox change, within one transaction: new runs, their reports, their ends.

Its only state is the store and the item, so any of this may be repeated: the position in a journal
and what was read up to there are committed together.
"""

from __future__ import annotations

import time
import uuid as uuids
from pathlib import Path
from typing import Any

from determined.errors import JournalError
from determined.journal import (
    Damage,
    Ended,
    InboxItem,
    Introduction,
    JournalReader,
    Progress,
    boot_id,
)
from determined.platform.homes.home import Home
from determined.platform.rules.states import State
from determined.platform.rules.unmanaged import config_of, project_of, state_of
from determined.platform.supervisor.checkpoints import find_local_unrecorded
from determined.store import Experiment, Fork, NewExperiment, NewTrial, Run, Transaction, Trial

_MOST_BYTES_AT_ONCE = 8 << 20
_MOST_BYTES_OF_ALL = 64 << 20
_GONE_SECONDS = 7 * 86400.0
_KILLED = "its process ended without a report: it was killed or crashed"
_LOST = "it has not reported for some minutes"
_MISSING = "its folder in the inbox was deleted"
_FOLLOWED = "it was continued by another process"


class UnmanagedRuns:
    """The runs of one transaction."""

    def __init__(self, home: Home, transaction: Transaction) -> None:
        self._home = home
        self._transaction = transaction
        self.finished: list[tuple[InboxItem, Path]] = []
        """Items that are no longer needed in the inbox, and where they belong."""
        self.orphans: list[InboxItem] = []
        """Items without a run: their experiments were deleted, or they never began."""
        self.adopted: list[InboxItem] = []
        """Items that have a run."""
        self.backlog: set[str] = set()
        """Names of items of which there is more to read."""
        self._budget = _MOST_BYTES_OF_ALL

    def take(self, item: InboxItem, *, is_held: bool, is_silent: bool, at_last: bool) -> bool:
        """Record what is new of an item; False if others should come first.

        `at_last` says that no other item can report the checkpoint that it continues.
        """
        if self._budget <= 0:
            self.backlog.add(item.path.name)
            return True
        run = self._run_of(item)
        if run is None:
            introduction = introduction_of(item)
            if item.is_adopted or introduction is None:
                if item.is_adopted or (is_silent and not is_held):
                    _refuse_corrupt(item)
                    self.orphans.append(item)
                return True
            wanted = introduction.continues
            if wanted and not at_last and self._transaction.checkpoint(wanted) is None:
                return False
            run = self._adopt(item, introduction)
        self.adopted.append(item)
        if self._is_put_away(run):
            self.finished.append((item, Path(run.folder)))
            return True
        has_news, ended = self._read(item, run, _MOST_BYTES_AT_ONCE)
        is_dead = not is_held and _is_ours(item)
        if ended is not None:
            self._finish(item, run, State(ended.state), ended.reason, ended.time)
        elif self._has_more(item):
            self.backlog.add(item.path.name)
        elif is_dead and not self._skip_damage(item, run):
            self._finish(item, run, State.ERROR, _KILLED, _last_sign(item))
        elif is_silent and not is_held:
            self._lose(item, run)
        elif has_news and run.ended is not None:
            self._reopen(run)
        return True

    def begin(self, trial: Trial, item: InboxItem, steps_completed: int, **about: Any) -> Run:
        """Add the next run of a trial, with the journal of an item."""
        transaction = self._transaction
        run = transaction.create_run(
            trial.id, folder=str(item.path), slots=[], steps_completed=steps_completed, **about
        )
        transaction.read_journal(str(item.journal), trial.id, run.run_id, [], 0)
        changes = {"state": State.ACTIVE.value, "reason": "", "early_exit": None}
        transaction.update_trial(trial.id, **changes)
        self._settle(trial.experiment_id)
        return run

    def free(self, trial: Trial) -> bool:
        """Ensure that the last run of a trial is over and read; False if its process is alive."""
        if trial.run_id == 0:
            return True
        run = self._transaction.run(trial.id, trial.run_id)
        if self._is_put_away(run):
            return True
        item = InboxItem(run.folder)
        if item.is_held:
            return False
        _, ended = self._read(item, run, None)
        if ended is not None:
            self._finish(item, run, State(ended.state), ended.reason, ended.time)
        else:
            reason = _KILLED if _is_ours(item) else _FOLLOWED
            self._finish(item, run, State.ERROR, reason, _last_sign(item))
        return True

    def close_missing(self) -> None:
        """End the runs whose folders were deleted: no more reports can come."""
        for run in self._transaction.unfinished_runs():
            path = Path(run.folder)
            if path.is_relative_to(self._home.inbox) and not path.exists():
                self._finish(InboxItem(path), run, State.ERROR, _MISSING, time.time())

    # Beginnings

    def _adopt(self, item: InboxItem, introduction: Introduction) -> Run:
        parent, trial = self._continued(introduction)
        if trial is None:
            trial = self._create(introduction, parent)
            self._link(trial, introduction)
        run = self.begin(
            trial,
            item,
            introduction.steps_completed,
            from_checkpoint=introduction.continues,
            host=introduction.host,
        )
        moment = {"created": introduction.time, "started": introduction.time}
        self._transaction.update_run(trial.id, run.run_id, **moment)
        if run.run_id == 1:
            self._transaction.update_trial(trial.id, **moment)
            self._transaction.update_experiment(trial.experiment_id, **moment)
        return run

    def _continued(self, introduction: Introduction) -> tuple[int | None, Trial | None]:
        """The experiment whose checkpoint a run continues, and the trial if it is the same run."""
        if introduction.continues is None:
            return None, None
        checkpoint = self._transaction.checkpoint(introduction.continues)
        if checkpoint is not None and checkpoint.trial_id is not None:
            found: Trial | None = self._transaction.trial(checkpoint.trial_id)
        else:  # published, but its process was killed before it could report it
            found = self._transaction.find_tracked_trial(introduction.run_id)
        if found is None:
            return None, None
        trial = found
        experiment = self._transaction.experiment(trial.experiment_id)
        is_same = experiment.unmanaged and trial.external_id == introduction.run_id
        return experiment.id, trial if is_same and self.free(trial) else None

    def _link(self, trial: Trial, introduction: Introduction) -> None:
        """Record that a new run branches off from the run of a known checkpoint."""
        at, continues = introduction.forked_at, introduction.continues
        found = self._transaction.checkpoint(continues) if at and continues else None
        if found is None or found.trial_id is None:
            return
        old, new = self._transaction.trial(found.trial_id).hparams, introduction.hparams
        changed = {
            name: [old.get(name), new.get(name)]
            for name in sorted({*old, *new})
            if old.get(name) != new.get(name)
        }
        fork = Fork(trial.id, found.trial_id, at, found.uuid, changed, None, is_checked=True)
        self._transaction.forks.add(fork)

    def _create(self, introduction: Introduction, parent: int | None) -> Trial:
        config = config_of(introduction)
        experiment = self._transaction.create_experiment(
            NewExperiment(
                config=config,
                owner=introduction.owner,
                name=introduction.name,
                description=introduction.description,
                labels=list(config["labels"]),
                project_id=self._project_of(introduction),
                parent_id=parent,
                searcher_metric=introduction.metric,
                smaller_is_better=introduction.smaller_is_better,
                environment={
                    "folder": introduction.folder,
                    "pid": introduction.pid,
                    "tensorboard": introduction.tensorboard,
                },
                unmanaged=True,
            )
        )
        return self._transaction.create_trial(
            NewTrial(
                experiment.id,
                str(uuids.uuid4()),
                introduction.seed,
                introduction.hparams,
                external_id=introduction.run_id,
            )
        )

    def _project_of(self, introduction: Introduction) -> int:
        """The project that a script names, made if it does not exist; else the first one."""
        if not introduction.project:
            return 1
        names = project_of(introduction.project)
        return self._transaction.registry.ensure_project(*names, introduction.owner).id

    # Reading

    def _run_of(self, item: InboxItem) -> Run | None:
        position = self._transaction.journal(str(item.journal))
        if position is None:
            return None
        return self._transaction.run(position.trial_id, position.run_id)

    def _offset(self, item: InboxItem) -> int:
        position = self._transaction.journal(str(item.journal))
        return 0 if position is None else position.offset

    def _read(self, item: InboxItem, run: Run, limit: int | None) -> tuple[bool, Ended | None]:
        """Record what is next in a journal; return whether any, and the end if reported."""
        start = self._offset(item)
        reader = JournalReader(item.journal, start)
        records = list(reader.records(limit))
        if records:
            self._budget -= reader.offset - start
            path = str(item.journal)
            self._transaction.read_journal(path, run.trial_id, run.run_id, records, reader.offset)
        if any(isinstance(record, Progress) for record in records):
            self._settle(self._experiment_of(run).id)
        ended = next((record for record in records if isinstance(record, Ended)), None)
        return bool(records), ended

    def _has_more(self, item: InboxItem) -> bool:
        reader = JournalReader(item.journal, self._offset(item))
        return next(reader.records(), None) is not None

    def _skip_damage(self, item: InboxItem, run: Run) -> bool:
        """Skip bytes that cannot be read; False if no complete record follows them.

        A process that was killed may leave a torn record at the end.
        """
        reader, path = JournalReader(item.journal, self._offset(item)), str(item.journal)
        damage = reader.diagnose()
        if damage is not Damage.NONE:
            self._transaction.set_damage(path, damage.value)
        if damage is not Damage.CORRUPT:
            return False
        self._transaction.note(
            "damaged_journal",
            f"{path} is corrupt at byte {reader.offset}: some of the run's reports are lost",
            level="error",
            experiment_id=self._experiment_of(run).id,
            trial_id=run.trial_id,
            run_id=run.run_id,
        )
        if not reader.skip_damage():
            return False
        self._transaction.read_journal(path, run.trial_id, run.run_id, [], reader.offset)
        self.backlog.add(item.path.name)
        return True

    # Ends

    def _finish(self, item: InboxItem, run: Run, state: State, reason: str, moment: float) -> None:
        """Close a run that will report nothing more."""
        section = self._experiment_of(run).checkpoint_storage
        for record in find_local_unrecorded(item.journal, section):
            self._transaction.adopt_checkpoint(run.trial_id, run.run_id, record)
        self._close(run, state, reason, moment)
        trial = self._transaction.trial(run.trial_id)
        folder = self._home.run(trial.experiment_id, trial.id, run.run_id)
        self._transaction.update_run(run.trial_id, run.run_id, folder=str(folder))
        self.finished.append((item, folder))

    def _close(self, run: Run, state: State, reason: str, moment: float) -> None:
        transaction = self._transaction
        transaction.end_run(run.trial_id, run.run_id, None, reason)
        transaction.update_run(run.trial_id, run.run_id, ended=moment)
        trial = transaction.trial(run.trial_id)
        if trial.run_id == run.run_id:
            transaction.update_trial(trial.id, state=state.value, reason=reason, ended=moment)
            self._settle(trial.experiment_id)

    def _lose(self, item: InboxItem, run: Run) -> None:
        """A process on another machine is silent: it may be gone, or temporarily cut off."""
        last = _last_sign(item)
        if run.ended is None:
            self._close(run, State.ERROR, _LOST, last)
        elif time.time() - last > _GONE_SECONDS:
            self._finish(item, run, State.ERROR, _LOST, last)

    def _reopen(self, run: Run) -> None:
        """It is alive after all: a laptop slept, or a network was down."""
        trial = self._transaction.trial(run.trial_id)
        if trial.run_id == run.run_id:
            self._transaction.update_run(trial.id, run.run_id, ended=None, reason="")
            self._transaction.update_trial(trial.id, state=State.ACTIVE.value, reason="")
            self._settle(trial.experiment_id)

    def _settle(self, experiment_id: int) -> None:
        """Derive the state of an experiment from those of its trials."""
        trials = self._transaction.trials(experiment_id)
        state = state_of(trial.state for trial in trials)
        changes: dict[str, Any] = {"state": state.value, "reason": ""}
        changes["progress"] = sum(trial.progress for trial in trials) / max(len(trials), 1)
        if state is State.COMPLETED:
            changes["progress"] = 1.0
        if state.is_terminal:
            decisive = next(trial for trial in trials if trial.state == state.value)
            changes["ended"] = max(trial.ended or 0.0 for trial in trials)
            changes["reason"] = decisive.reason
        self._transaction.update_experiment(experiment_id, **changes)

    def _experiment_of(self, run: Run) -> Experiment:
        return self._transaction.experiment(self._transaction.trial(run.trial_id).experiment_id)

    def _is_put_away(self, run: Run) -> bool:
        return not Path(run.folder).is_relative_to(self._home.inbox)


def introduction_of(item: InboxItem) -> Introduction | None:
    """Which run an item belongs to; None if it does not say (yet)."""
    first = next(JournalReader(item.journal).records(), None)
    return first if isinstance(first, Introduction) else None


def _refuse_corrupt(item: InboxItem) -> None:
    """Raise JournalError if something else wrote there: it is not ours to delete."""
    if not item.is_adopted and JournalReader(item.journal).diagnose() is Damage.CORRUPT:
        raise JournalError(f"{item.journal} is corrupt at its beginning")


def _is_ours(item: InboxItem) -> bool:
    """Whether its lock tells if an item's process is alive: it runs on this machine."""
    introduction = introduction_of(item)
    return introduction is None or introduction.boot_id == boot_id() != ""


def _last_sign(item: InboxItem) -> float:
    """When a process last wrote, by the clock of the file system."""
    try:
        return item.journal.stat().st_mtime
    except OSError:
        return time.time()
