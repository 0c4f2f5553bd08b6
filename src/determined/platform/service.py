"""The verbs and the questions: what every door (command line, client, dashboard) is made of.

A verb is a row in the store's commands and a ring at the supervisor, which is started if there is
none. A question reads the store, and waits for nobody.
"""

from __future__ import annotations

import contextlib
import getpass
import shutil
import signal
import subprocess
import threading
import time
import uuid as uuids
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined.errors import DeterminedError, NotFoundError, RefusedError, StoreVersionError
from determined.platform.deleting import DeletingVerbs
from determined.platform.home import Home
from determined.platform.supervisor import presence
from determined.platform.unread import Unread
from determined.store import (
    Checkpoint,
    Experiment,
    Reader,
    Trial,
    TrialFilter,
    is_made,
    send_command,
)

if TYPE_CHECKING:  # most questions need none of them, and `det` is to answer at once
    from determined.config import Loaded
    from determined.platform.slots import Machine
    from determined.platform.snapshot import Snapshot
    from determined.platform.verification import Verified

__all__ = ["NotFoundError", "RefusedError", "Service"]

_POLL_SECONDS = 0.005
_LONGEST_POLL_SECONDS = 0.1
_MOST_FAILURES = 3
_LONGEST_CATCH_UP_SECONDS = 30.0
_STOPPED_AFTER_SECONDS = 5.0


class Service(DeletingVerbs):
    """One home, as doors see it. May be shared by threads."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._reader: Reader | None = None
        self._opening = threading.Lock()
        self._started: subprocess.Popen[bytes] | None = None

    @property
    def reader(self) -> Reader:
        """The store, for questions."""
        with self._opening:
            if self._reader is None:
                try:
                    self._reader = Reader(self.home.path)
                except StoreVersionError:  # a supervisor of this version brings it up to date
                    presence.start(self.home)
                    time.sleep(1.0)
                    self._reader = Reader(self.home.path)
            return self._reader

    @property
    def has_store(self) -> bool:
        """Whether anything was ever created here."""
        return self._reader is not None or is_made(self.home.path)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    # Questions about one thing: what there is not is an error

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
        """A checkpoint."""
        found = self.reader.checkpoint(uuid) if self.has_store else None
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
        reports = self.reader.iter_metrics(checkpoint.trial_id, "validation")
        return next(
            (r.metrics for r in reports if r.steps_completed == checkpoint.steps_completed), {}
        )

    def download(self, checkpoint: Checkpoint, target: Path) -> Path:
        """Copy a checkpoint into the folder `target`, whole or not at all."""
        from determined.platform.downloads import download, storage_of

        if checkpoint.experiment_id is None:
            raise RefusedError(f"Checkpoint {checkpoint.uuid} belongs to no experiment.")
        experiment = self.experiment(checkpoint.experiment_id)
        return download(checkpoint, storage_of(checkpoint, experiment), target)

    def verify(self, checkpoint: Checkpoint) -> Verified:
        """Read every file of a checkpoint and compare it with what was saved."""
        from determined.platform.verification import verify

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
        workspaces = {workspace.id: workspace.name for workspace in self.reader.workspaces()}
        return {p.id: (workspaces[p.workspace_id], p.name) for p in self.reader.projects()}

    def project_names(self, project_id: int) -> tuple[str, str]:
        """The workspace and the project of an id."""
        known = self.projects() if self.has_store else {}
        if project_id not in known:
            raise NotFoundError(f"There is no project {project_id}.")
        return known[project_id]

    # Verbs

    def take_snapshot(self, model_dir: Path | None, includes: Iterable[Path] = ()) -> Snapshot:
        """Store the code of an experiment that is to be created."""
        from determined.platform.snapshot import create_snapshot

        try:
            self.home.make()
            return create_snapshot(self.home.snapshots, model_dir, includes)
        except ValueError as error:
            raise RefusedError(str(error)) from error
        except OSError as error:
            if not str(error.filename or self.home.path).startswith(str(self.home.path)):
                raise
            raise self._cannot_write(error) from error

    def create(
        self,
        loaded: Loaded,
        snapshot: Snapshot,
        model_dir: Path | None,
        *,
        paused: bool = False,
        original_config: str = "",
        parent_id: int | None = None,
    ) -> int:
        """Create an experiment from a configuration and a code snapshot; return its id."""
        from determined.platform.creation import Creation, save_creation
        from determined.platform.environment import record_environment
        from determined.platform.machine import find_machine, threads_on

        config = loaded.effective
        machine = find_machine(self.home)
        _check_slots(config, machine)
        self._check_cluster()
        creation = str(uuids.uuid4())
        threads = threads_on(machine, config["resources"]["trials_per_slot"])
        with self._prepared(creation) as folder:
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
            record_environment(folder, model_dir, threads, interpreter=_interpreter(config))
            answer = self.ask("create", made_from._asdict() | {"paused": paused}, uuid=creation)
        return int(answer["experiment_id"])

    def _check_cluster(self) -> None:
        """Refuse what a supervisor at work would start elsewhere than asked."""
        from determined.platform.cluster import CLUSTER_VARIABLE, find_cluster

        facts, settings = presence.find(self.home), find_cluster(self.home)
        wanted = "" if settings is None else settings.address
        if facts is not None and facts.cluster != wanted:
            raise RefusedError(
                f"The running supervisor (process {facts.pid}) starts runs on "
                f"{_place_name(facts.cluster)}, but {CLUSTER_VARIABLE} and platform.yaml now say "
                f"{_place_name(wanted)}. Stop it with `det supervisor stop`; its runs continue, "
                "and the next command starts a new one."
            )

    @contextlib.contextmanager
    def _prepared(self, creation: str) -> Iterator[Path]:
        """A folder for what an experiment starts with; gone if the experiment is refused."""
        folder = self.home.creations / creation
        try:
            self.home.make()
            folder.mkdir(mode=0o700, parents=True)
            yield folder
        except BaseException as error:
            if not self._was_asked(creation):
                shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise self._cannot_write(error) from error
            raise

    def _was_asked(self, uuid: str) -> bool:
        """Whether a command stands in the store that was not refused."""
        with contextlib.suppress(DeterminedError):
            command = self.reader.command(uuid)
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
        rerun_failed: bool = False,
        overrides: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Let a finished experiment go on.

        Args:
            experiment_id: which one.
            max_trials: try more values (random, async_halving, adaptive_asha, custom).
            max_time: train the best longer (async_halving, adaptive_asha, custom).
            max_length: train all who finished longer (single, random, grid, custom).
            rerun_failed: run trials again that failed or were canceled.
            overrides: changes of a `single` experiment's configuration, as `key=value`.
            config: a configuration whose values go before those of a `single` experiment.
        """
        from determined.platform.continuing import Limits, continued_config
        from determined.platform.states import Refused

        record = self.experiment(experiment_id)
        limits = Limits(max_trials, max_time, max_length, rerun_failed)
        try:
            new = continued_config(record.config, limits, overrides, config)
        except Refused as error:
            raise RefusedError(str(error)) from None
        arguments = {"experiment_id": experiment_id, "config": new, "limits": limits.to_json()}
        self.ask("continue", arguments)

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
        slots = self.experiment(experiment_id).config["resources"]["slots_per_trial"]
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

    def write_code(self, experiment_id: int, target: Path) -> None:
        """Write the code of an experiment to an archive; nothing half-written stays behind."""
        from determined.platform.code_archive import write_archive
        from determined.platform.snapshot import load_snapshot

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

    # The supervisor

    def ask(self, verb: str, arguments: dict[str, Any], uuid: str | None = None) -> dict[str, Any]:
        """Leave a command and wait for its answer; the supervisor is started if need be."""
        presence.end_older(self.home)
        identifier = self._send(verb, arguments, uuid or str(uuids.uuid4()))
        pause, failures = _POLL_SECONDS, 0
        patience = time.monotonic() + _STOPPED_AFTER_SECONDS
        while True:
            if time.monotonic() > patience:
                presence.refuse_stopped(self.home)
            failures += self._ensure_supervisor()
            if failures == _MOST_FAILURES:
                raise DeterminedError(
                    f"The supervisor did not start. {self._last_words()}See "
                    f"{self.home.supervisor_log}."
                )
            time.sleep(pause)
            pause = min(pause * 1.3, _LONGEST_POLL_SECONDS)
            command = self.reader.command(identifier)
            if command is not None and command.answered is not None:
                answer = command.answer or {}
                if not command.is_ok:
                    raise RefusedError(str(answer.get("error")))
                return answer

    def wake_if_needed(self) -> None:
        """Start a supervisor if there is unfinished work and nobody at it.

        What scripts left in the inbox is worth a moment: who looks wants to see it.
        """
        unread = Unread(self.home)
        is_news = unread.is_any(self._known_offset)
        if is_news or unread.has_left or self._has_work():
            self._ensure_supervisor()
        deadline = time.monotonic() + _LONGEST_CATCH_UP_SECONDS
        while is_news and not self._start_failed and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            is_news = unread.is_any(self._known_offset)

    @property
    def _start_failed(self) -> bool:
        return self._started is not None and self._started.poll() not in (None, 0)

    def _known_offset(self, path: str) -> int | None:
        return self.reader.journal_offset(path) if self.has_store else None

    def _ensure_supervisor(self) -> bool:
        """Wake the supervisor, or start one; whether the one that we started last has failed."""
        if presence.ring(self.home):
            return False
        last = self._started
        if last is not None and last.poll() is None:
            return False  # it is about to listen
        try:
            self._started = presence.start(self.home)
        except OSError as error:
            raise DeterminedError(
                f"The supervisor cannot be started: {error.filename}: {error.strerror}."
            ) from error
        return last is not None and last.returncode not in (0, -signal.SIGTERM, -signal.SIGKILL)

    def _last_words(self) -> str:
        """What a supervisor that gave up said, if it knew why."""
        from determined.platform.keeper._last_words import read_end

        _, said, words = read_end(self.home.supervisor_log).rpartition(" ERROR root: ")
        return f"{words.strip()} " if said else ""

    def _has_work(self) -> bool:
        if not self.has_store:
            return False
        unfinished = ["ACTIVE", "STOPPING_COMPLETED", "STOPPING_CANCELED"]
        unfinished += ["STOPPING_KILLED", "STOPPING_ERROR", "DELETING"]
        reader = self.reader
        return (
            reader.has_unanswered()
            or reader.count_experiments(unfinished) > 0
            or reader.has_chores()
            or reader.has_kept_runs()  # of a paused experiment, say, that is to stop
        )

    def _send(self, verb: str, arguments: dict[str, Any], uuid: str) -> str:
        for _ in range(_MOST_FAILURES):
            try:
                return send_command(self.home.path, verb, arguments, uuid=uuid)
            except StoreVersionError:
                self._ensure_supervisor()
                time.sleep(1.0)
        return send_command(self.home.path, verb, arguments, uuid=uuid)


def _check_slots(config: dict[str, Any], machine: Machine) -> None:
    wanted, there = config["resources"]["slots_per_trial"], len(machine.slots)
    if wanted > there and not machine.is_cluster:  # which may grow: the queue says what is missing
        kind = "GPUs" if machine.has_gpus else "CPU slots"
        raise RefusedError(
            f"resources.slots_per_trial is {wanted}, but this machine has {there} {kind}. Use "
            f"`--config resources.slots_per_trial={there}`"
            + ("." if machine.has_gpus else f", or DET_SLOTS={wanted} to share the CPU further.")
        )


def _place_name(address: str) -> str:
    return f"the cluster {address}" if address else "this machine"


def _interpreter(config: dict[str, Any]) -> str | None:
    environment = config["environment"]
    if environment["python"]:
        return str(environment["python"])
    if environment["virtualenv"]:
        return str(Path(environment["virtualenv"]).expanduser() / "bin" / "python")
    return None
