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
import time
import uuid as uuids
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from determined.config import Loaded
from determined.errors import DeterminedError, StoreVersionError
from determined.platform.environment import record_environment
from determined.platform.home import Home
from determined.platform.slots import Machine, count_cores, find_slots, threads_per_process
from determined.platform.snapshot import Snapshot, create_snapshot
from determined.platform.supervisor import presence
from determined.store import Reader, send_command

_POLL_SECONDS = 0.005
_LONGEST_POLL_SECONDS = 0.1
_MOST_FAILURES = 3


class RefusedError(DeterminedError):
    """The platform will not do this; the message says why."""


class NotFoundError(DeterminedError):
    """There is no such experiment, trial or checkpoint."""


class Service:
    """One home, as doors see it. May be shared by threads."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._reader: Reader | None = None
        self._started: subprocess.Popen[bytes] | None = None

    @property
    def reader(self) -> Reader:
        """The store, for questions."""
        if self._reader is None:
            self._reader = Reader(self.home.path)
        return self._reader

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    # Experiments

    def take_snapshot(self, model_dir: Path | None, includes: Iterable[Path] = ()) -> Snapshot:
        """Store the code of an experiment that is to be created."""
        try:
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
        config = loaded.effective
        machine = find_slots()
        _check_slots(config, machine)
        creation = str(uuids.uuid4())
        threads = threads_per_process(
            count_cores(), len(machine.slots), config["resources"]["trials_per_slot"]
        )
        with self._prepared(creation) as folder:
            record_environment(folder, model_dir, threads, interpreter=_interpreter(config))
            answer = self.ask(
                "create",
                {
                    "config": config,
                    "snapshot": snapshot.digest,
                    "creation": creation,
                    "owner": getpass.getuser(),
                    "paused": paused,
                    "original_config": original_config,
                    "parent_id": parent_id,
                },
                uuid=creation,
            )
        return int(answer["experiment_id"])

    @contextlib.contextmanager
    def _prepared(self, creation: str) -> Iterator[Path]:
        """A folder for what an experiment starts with; gone if the experiment is refused."""
        folder = self.home.creations / creation
        try:
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
            "Make room there, or set DET_HOME to another folder of yours."
        )

    def pause(self, experiment_id: int) -> None:
        self.ask("pause", {"experiment_id": experiment_id})

    def activate(self, experiment_id: int) -> None:
        self.ask("activate", {"experiment_id": experiment_id})

    def cancel(self, experiment_id: int) -> None:
        self.ask("cancel", {"experiment_id": experiment_id})

    def kill(self, experiment_id: int) -> None:
        self.ask("kill", {"experiment_id": experiment_id})

    def kill_trial(self, trial_id: int) -> None:
        self.ask("kill_trial", {"trial_id": trial_id})

    def archive(self, experiment_id: int, archived: bool = True) -> None:
        self.ask("archive", {"experiment_id": experiment_id, "archived": archived})

    def change(self, experiment_id: int, **changes: Any) -> None:
        """Set the name, description, labels, notes, priority, max_slots or weight."""
        self.ask("set", {"experiment_id": experiment_id, "changes": changes})

    # The supervisor

    def ask(self, verb: str, arguments: dict[str, Any], uuid: str | None = None) -> dict[str, Any]:
        """Leave a command and wait for its answer; the supervisor is started if need be."""
        presence.end_older(self.home)
        identifier = self._send(verb, arguments, uuid or str(uuids.uuid4()))
        pause, failures = _POLL_SECONDS, 0
        while True:
            failures += self._ensure_supervisor()
            if failures == _MOST_FAILURES:
                raise DeterminedError(
                    f"The supervisor does not start: see {self.home.supervisor_log}."
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
        """Start a supervisor if there is unfinished work and nobody at it."""
        if self._has_work():
            self._ensure_supervisor()

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

    def _has_work(self) -> bool:
        if not (self.home.path / "store.db").exists():
            return False
        unfinished = ["ACTIVE", "STOPPING_COMPLETED", "STOPPING_CANCELED"]
        unfinished += ["STOPPING_KILLED", "STOPPING_ERROR", "DELETING"]
        reader = self.reader
        return (
            reader.has_unanswered()
            or reader.count_experiments(unfinished) > 0
            or reader.has_chores()
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
    if wanted > there:
        kind = "GPUs" if machine.has_gpus else "CPU slots"
        raise RefusedError(
            f"resources.slots_per_trial is {wanted}, but this machine has {there} {kind}. Use "
            f"`--config resources.slots_per_trial={there}`"
            + ("." if machine.has_gpus else f", or DET_SLOTS={wanted} to share the CPU further.")
        )


def _interpreter(config: dict[str, Any]) -> str | None:
    environment = config["environment"]
    if environment["python"]:
        return str(environment["python"])
    if environment["virtualenv"]:
        return str(Path(environment["virtualenv"]).expanduser() / "bin" / "python")
    return None
