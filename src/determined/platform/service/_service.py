"""`Service`: one home, as every client sees it."""

from __future__ import annotations

import contextlib
import getpass
import shutil
import time
import uuid as uuids
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined.errors import DeterminedError, NotFoundError, RefusedError
from determined.platform.homes.home import Home
from determined.platform.rules.gc_policy import has_policy, no_policy, policy_of
from determined.platform.service import creation_checks
from determined.platform.service.supervised_home import SupervisedHome
from determined.store import (
    Checkpoint,
    Experiment,
    ExperimentFilter,
    RatedCheckpoint,
    Reader,
    Retention,
    Trial,
    TrialFilter,
)

if TYPE_CHECKING:  # most commands need none of them, and `det` must start fast
    from determined.config import Loaded
    from determined.platform.homes.snapshot import Snapshot
    from determined.platform.queries.verification import Verified

EVERYTHING = ("**/*",)
_SHORTEST_PREFIX = 4
_POLL_SECONDS = 0.02
_KEYS = uuids.UUID("5f0e6f5e-8d0b-4e0e-9f3c-6f3d1c0a7b52")  # of creations that have a key


class Service:
    """One home, as clients see it. May be shared by threads.

    Queries read the store. Verbs send a command and return when the supervisor has accepted it;
    those that delete return when it is done.
    """

    def __init__(self, home: Home) -> None:
        self.home = home
        self.supervised = SupervisedHome(home)

    @property
    def reader(self) -> Reader:
        """The store, for queries."""
        return self.supervised.reader

    @property
    def has_store(self) -> bool:
        """Whether anything was ever created here."""
        return self.supervised.has_store

    def ask(self, verb: str, arguments: dict[str, Any], uuid: str | None = None) -> dict[str, Any]:
        """Send a command and wait for its answer; start the supervisor if there is none."""
        return self.supervised.ask(verb, arguments, uuid)

    def wake_if_needed(self) -> None:
        """Start a supervisor if there is unfinished work and none is running."""
        self.supervised.wake_if_needed()

    def close(self) -> None:
        self.supervised.close()

    # Queries: what does not exist is an error.

    def experiment(self, experiment_id: int) -> Experiment:
        """An experiment."""
        found = self.reader.experiment(experiment_id) if self.has_store else None
        if found is None:
            raise NotFoundError(
                f"There is no experiment {experiment_id}. `det experiment list --all` shows all."
            )
        return found

    def trial(self, trial_id: int) -> Trial:
        """A trial."""
        found = self.reader.trial(trial_id) if self.has_store else None
        if found is None:
            raise NotFoundError(
                f"There is no trial {trial_id}. `det experiment list-trials ID` shows the trials "
                "of an experiment."
            )
        return found

    def checkpoint(self, uuid: str) -> Checkpoint:
        """A checkpoint, by its UUID or a beginning that no other has."""
        found = self.reader.checkpoint(uuid) if self.has_store else None
        if found is None and self.has_store and len(uuid) >= _SHORTEST_PREFIX:
            similar = self.reader.checkpoints_beginning_with(uuid, 3)
            if len(similar) > 1:
                raise NotFoundError(
                    f"{uuid} begins the UUIDs of several checkpoints, such as {similar[0].uuid} "
                    f"and {similar[1].uuid}: give more of it."
                )
            found = similar[0] if similar else None
        if found is None:
            raise NotFoundError(
                f"There is no checkpoint {uuid}. `det experiment list-checkpoints ID` shows those "
                "of an experiment."
            )
        return found

    def metrics_at(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """What the validation at the step of a checkpoint reported."""
        if checkpoint.trial_id is None:
            return {}
        reports = self.reader.metrics.reports(checkpoint.trial_id, "validation")
        return next(
            (r.metrics for r in reports if r.steps_completed == checkpoint.steps_completed), {}
        )

    def download(self, checkpoint: Checkpoint, target: Path) -> Path:
        """Copy a checkpoint into the folder `target`, whole or not at all."""
        from determined.platform.queries.downloads import download, storage_of

        if checkpoint.experiment_id is None:
            raise RefusedError(f"Checkpoint {checkpoint.uuid} belongs to no experiment.")
        experiment = self.experiment(checkpoint.experiment_id)
        return download(checkpoint, storage_of(checkpoint, experiment), target)

    def verify(self, checkpoint: Checkpoint) -> Verified:
        """Read every file of a checkpoint and compare it with what was saved."""
        from determined.platform.queries.verification import verify

        if checkpoint.experiment_id is None:
            raise RefusedError(f"Checkpoint {checkpoint.uuid} belongs to no experiment.")
        return verify(checkpoint, self.experiment(checkpoint.experiment_id))

    def running_experiments(self) -> set[int]:
        """The experiments that have a run at this moment."""
        trials = {run.trial_id for run in self.reader.unfinished_runs()}
        found = self.reader.trials(TrialFilter(ids=sorted(trials))).rows if trials else []
        return {trial.experiment_id for trial in found}

    def projects(self) -> dict[int, tuple[str, str]]:
        """The names of each project's workspace and of itself, by the project's id."""
        workspaces = {
            workspace.id: workspace.name for workspace in self.reader.registry.workspaces()
        }
        return {p.id: (workspaces[p.workspace_id], p.name) for p in self.reader.registry.projects()}

    def project_names(self, project_id: int) -> tuple[str, str]:
        """The workspace and the project of an id."""
        known = self.projects() if self.has_store else {}
        if project_id not in known:
            raise NotFoundError(f"There is no project {project_id}.")
        return known[project_id]

    def write_code(self, experiment_id: int, target: Path) -> None:
        """Write the code of an experiment to an archive; nothing half-written stays behind."""
        from determined.platform.homes.code_archive import write_archive
        from determined.platform.homes.snapshot import load_snapshot

        digest = self.experiment(experiment_id).snapshot_id
        if digest is None:
            raise RefusedError(f"Experiment {experiment_id} was created without code.")
        snapshot = load_snapshot(self.home.snapshots, digest)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{uuids.uuid4()}")
        try:
            with draft.open("xb") as file:
                write_archive(snapshot, file)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)

    # Verbs that create and continue

    def take_snapshot(self, model_dir: Path | None, includes: Iterable[Path] = ()) -> Snapshot:
        """Store the code of an experiment that is to be created."""
        from determined.platform.homes.snapshot import create_snapshot

        try:
            self.home.make()
            return create_snapshot(self.home.snapshots, model_dir, includes)
        except ValueError as error:
            raise RefusedError(str(error)) from error
        except OSError as error:
            if not _is_about(error, self.home.path):
                raise
            raise self._cannot_write(error) from error

    @staticmethod
    def host_changes(snapshot: Snapshot) -> str:
        """Say which lines of the code's startup hook would change this machine, if any."""
        return creation_checks.host_changes(snapshot)

    def create(
        self,
        loaded: Loaded,
        snapshot: Snapshot,
        model_dir: Path | None,
        *,
        paused: bool = False,
        original_config: str = "",
        parent_id: int | None = None,
        allow_host_changes: bool = False,
        key: str | None = None,
    ) -> int:
        """Create an experiment from a configuration and a code snapshot; return its id.

        Refused if its startup hook would change the machine, unless `allow_host_changes`. With a
        `key`, it is created once: whoever asks again with the same one gets the same id.
        """
        from determined.platform.homes.creation import Creation, save_creation
        from determined.platform.machines.machine import find_machine, threads_on
        from determined.platform.runs.environment import record_environment

        creation = str(uuids.uuid4() if key is None else uuids.uuid5(_KEYS, key))
        if key is not None and self._was_asked(creation):
            return int(self.ask("create", {}, uuid=creation)["experiment_id"])
        config = loaded.effective
        if not allow_host_changes and (sentence := self.host_changes(snapshot)):
            raise RefusedError(f"{sentence} Pass --allow-host-changes to run it nevertheless.")
        creation_checks.check_script(loaded.configuration.entrypoint, snapshot, model_dir)
        self.check_disk_limit()
        machine = find_machine(self.home)
        creation_checks.check_slots(loaded.configuration, machine)
        creation_checks.check_cluster(self.home)
        threads = threads_on(machine, loaded.configuration.resources.trials_per_slot)
        with self.prepared(creation) as folder:
            made_from = Creation(
                config=config,
                snapshot=snapshot.digest,
                creation=creation,
                owner=getpass.getuser(),
                original_config=original_config,
                parent_id=parent_id,
                created=time.time(),
            )
            save_creation(folder, made_from)
            record_environment(
                folder,
                model_dir,
                threads,
                interpreter=creation_checks.interpreter_of(loaded.configuration),
            )
            answer = self.ask("create", made_from._asdict() | {"paused": paused}, uuid=creation)
        return int(answer["experiment_id"])

    @contextlib.contextmanager
    def prepared(self, creation: str) -> Iterator[Path]:
        """A folder for what an experiment starts with; gone if the experiment is refused."""
        folder = self.home.creations / creation
        try:
            self.home.make()
            # It exists if whoever asked for the same key before was killed on the way.
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            yield folder
        except BaseException as error:
            if not self._was_asked(creation):
                shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError) and _is_about(error, self.home.path):
                raise self._cannot_write(error) from error
            raise

    def _was_asked(self, uuid: str) -> bool:
        """Whether the store has this command, and it was not refused."""
        with contextlib.suppress(DeterminedError):
            command = self.reader.command(uuid) if self.has_store else None
            return command is not None and command.is_ok is not False
        return False

    def _cannot_write(self, error: OSError) -> DeterminedError:
        return DeterminedError(
            f"Cannot write in the home {self.home.path}: {error.strerror}. Nothing was created. "
            "Free some space there, or set DET_HOME to another folder."
        )

    def continue_experiment(
        self,
        experiment_id: int,
        *,
        max_trials: int | None = None,
        max_time: int | None = None,
        max_length: int | None = None,
        rerun_failed: bool = True,
        overrides: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Continue an experiment that has ended, or that has paused itself.

        Args:
            experiment_id: which one.
            max_trials: try more values (random, async_halving, adaptive_asha, custom).
            max_time: train the best longer (async_halving, adaptive_asha, pbt, custom).
            max_length: train all that finished for longer (single, random, grid, custom).
            rerun_failed: run trials again that failed or were canceled.
            overrides: changes of a `single` experiment's configuration, as `key=value`.
            config: a configuration whose values go before those of a `single` experiment.
        """
        from determined.platform.rules.continuing import Limits, continued_config

        record = self.experiment(experiment_id)
        limits = Limits(max_trials, max_time, max_length, rerun_failed)
        new = continued_config(record.config, limits, overrides, config)
        arguments = {"experiment_id": experiment_id, "config": new, "limits": limits.to_json()}
        self.ask("continue", arguments)

    def check_disk_limit(self) -> None:
        """Refuse a creation if the home takes more than it may, even without what can go."""
        from determined.platform.homes.disk_limit import beyond_limit, find_limit, used_bytes

        limit = find_limit(self.home)
        if limit is None or used_bytes(self.home) < limit:
            return
        if self.has_store:
            self.collect_garbage_of_all()
        if (used := used_bytes(self.home)) >= limit:
            raise RefusedError(f"Nothing was created. {beyond_limit(self.home, used, limit)}")

    # Short verbs

    def pause(self, experiment_id: int) -> None:
        self.experiment(experiment_id)
        self.ask("pause", {"experiment_id": experiment_id})

    def activate(self, experiment_id: int) -> None:
        self.experiment(experiment_id)
        self.ask("activate", {"experiment_id": experiment_id})

    def cancel(self, experiment_id: int) -> None:
        self.experiment(experiment_id)
        self.ask("cancel", {"experiment_id": experiment_id})

    def kill(self, experiment_id: int) -> None:
        self.experiment(experiment_id)
        self.ask("kill", {"experiment_id": experiment_id})

    def kill_trial(self, trial_id: int) -> None:
        self.trial(trial_id)
        self.ask("kill_trial", {"trial_id": trial_id})

    def archive(self, experiment_id: int, archived: bool = True) -> None:
        self.experiment(experiment_id)
        self.ask("archive", {"experiment_id": experiment_id, "archived": archived})

    def change(self, experiment_id: int, **changes: Any) -> None:
        """Set the name, description, labels, notes, priority, max_slots or weight."""
        slots = self.experiment(experiment_id).configuration.resources.slots_per_trial
        limit = changes.get("max_slots")
        if limit is not None and limit < slots:
            raise RefusedError(
                f"max_slots: expected at least slots_per_trial ({slots}), got {limit}: no trial "
                "could ever start."
            )
        self.ask("set", {"experiment_id": experiment_id, "changes": changes})

    def move(self, experiment_id: int, workspace: str, project: str) -> None:
        """Put an experiment into another project."""
        self.experiment(experiment_id)
        arguments = {"experiment_id": experiment_id, "workspace": workspace, "project": project}
        self.ask("move", arguments)

    def label(self, experiment_id: int, label: str, *, remove: bool = False) -> None:
        """Give an experiment a label, or take it away; either may be so already."""
        self.experiment(experiment_id)
        arguments = {"experiment_id": experiment_id, "label": label, "remove": remove}
        self.ask("label", arguments)

    # Verbs that delete

    def delete_experiments(self, experiment_ids: Sequence[int]) -> None:
        """Delete experiments that have ended, with metrics, logs and checkpoints: all or none.

        Refused if a checkpoint is registered. What is interrupted continues in the background.
        """
        for number in experiment_ids:
            self.experiment(number)
        self.ask("delete", {"experiment_ids": list(experiment_ids)})
        self._wait(lambda: not self._with_state("DELETING", experiment_ids))
        for record in self._with_state("DELETE_FAILED", experiment_ids):
            raise RefusedError(
                f"Experiment {record.id} {record.reason.rstrip('.')}. "
                f"`det experiment delete {record.id}` tries again."
            )

    def delete_checkpoints(
        self, uuids: Sequence[str], globs: Collection[str] = EVERYTHING
    ) -> list[Checkpoint]:
        """Delete checkpoints, or what patterns match of them; return them as they are now.

        Refused if one is registered, or a trial needs it. Without patterns, nothing is deleted:
        their records are brought in line with the files they have.
        """
        uuids = list(dict.fromkeys(self.checkpoint(uuid).uuid for uuid in uuids))
        for pattern in globs:
            check_glob(pattern)
        self.ask("delete_checkpoints", {"uuids": list(uuids), "globs": list(globs)})
        self._wait(lambda: not any(self._is_deleting(uuid) for uuid in uuids))
        for uuid in uuids:
            deletion = self.reader.deletion(uuid)
            if deletion is not None:
                reason = f"could not be deleted: {deletion.failure.rstrip('.')}"
                raise RefusedError(f"Checkpoint {uuid} {reason}. The same command tries again.")
        return [self.checkpoint(uuid) for uuid in uuids]

    def garbage(self, experiment_id: int, policy: Retention | None = None) -> list[RatedCheckpoint]:
        """The checkpoints that a policy, by default the experiment's, would not keep."""
        record = self.experiment(experiment_id)
        if not has_policy(record):
            raise RefusedError(no_policy(record))
        return self.reader.garbage(experiment_id, policy or policy_of(record))

    def set_gc_policy(self, experiment_id: int, policy: Retention) -> None:
        """Change how many checkpoints an experiment keeps, and delete the others now."""
        self.experiment(experiment_id)
        counts = {
            "experiment_best": policy.experiment_best,
            "trial_best": policy.trial_best,
            "trial_latest": policy.trial_latest,
        }
        self.ask("set_gc_policy", {"experiment_id": experiment_id, "policy": counts})
        self._wait_for_collection([experiment_id])

    def collect_garbage(self, experiment_ids: Sequence[int]) -> None:
        """Delete now what the policies of experiments do not keep."""
        for number in experiment_ids:
            self.experiment(number)
        self.ask("collect", {"experiment_ids": list(experiment_ids)})
        self._wait_for_collection(experiment_ids)

    def collect_garbage_of_all(self) -> None:
        """Delete now what the policies of all experiments do not keep."""
        found = self.reader.experiments().rows
        numbers = [
            record.id
            for record in found
            if has_policy(record) and record.checkpoint_count and "DELET" not in record.state
        ]
        if numbers:
            self.collect_garbage(numbers)

    def delete_tensorboard_files(self, experiment_id: int) -> int:
        """Delete the event files of an experiment's trials; returns the bytes that are free."""
        from determined.platform.homes.disk_usage import Waste, remove, size_of

        record = self.experiment(experiment_id)
        if record.id in self.running_experiments():
            raise RefusedError(f"Experiment {record.id} is running: its event files are in use.")
        trials = self.reader.trials(TrialFilter(experiment_id=experiment_id)).rows
        folders: list[Path] = [self.home.tensorboard / str(trial.id) for trial in trials]
        waste = [Waste(path, "", size_of(path)) for path in folders if path.exists()]
        return remove([item for item in waste if self.supervised.may_delete(item.path)])

    def _wait_for_collection(self, experiment_ids: Sequence[int]) -> None:
        """Wait until the checkpoints that are to go are gone, or could not be deleted."""
        self._wait(lambda: not any(self.experiment(n).gc_is_due for n in experiment_ids))
        self._wait(lambda: not any(self.reader.is_deleting(number) for number in experiment_ids))

    def _with_state(self, state: str, experiment_ids: Sequence[int]) -> list[Experiment]:
        wanted = ExperimentFilter(ids=list(experiment_ids), states=[state])
        return list(self.reader.experiments(wanted).rows)

    def _is_deleting(self, uuid: str) -> bool:
        deletion = self.reader.deletion(uuid)
        return deletion is not None and not deletion.failure

    def _wait(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self.wake_if_needed()
            time.sleep(_POLL_SECONDS)


def _is_about(error: OSError, home: Path) -> bool:
    """Whether the home is to blame; a missing path without a name is the working directory."""
    if error.filename is None:
        return not isinstance(error, FileNotFoundError)
    return str(error.filename).startswith(str(home))


def check_glob(pattern: str) -> None:
    """Raise unless a pattern stays within a checkpoint."""
    if not pattern.strip():
        raise RefusedError("A pattern must not be empty: `*.pt`, for example, or `optimizer/**`.")
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise RefusedError(f"The pattern {pattern!r} points outside the checkpoint.")
