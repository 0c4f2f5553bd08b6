"""The verbs and the questions: what every door (command line, client, dashboard) is made of.

A verb is a row in the store's commands and a ring at the supervisor, which is started if there is
none. A question reads the store, and waits for nobody.
"""

from __future__ import annotations

import getpass
import time
import uuid as uuids
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from determined.config import Loaded
from determined.errors import DeterminedError, StoreVersionError
from determined.platform.continuing import Limits, continued_config
from determined.platform.environment import record_environment
from determined.platform.home import Home
from determined.platform.slots import Machine, count_cores, find_slots, threads_per_process
from determined.platform.snapshot import Snapshot, create_snapshot
from determined.platform.states import Refused
from determined.platform.supervisor import presence
from determined.store import Reader, send_command

_POLL_SECONDS = 0.005
_LONGEST_POLL_SECONDS = 0.1
_START_SECONDS = 10.0
_WAKE_SECONDS = 2.0
_MOST_STARTS = 3


class RefusedError(DeterminedError):
    """The platform will not do this; the message says why."""


class NotFoundError(DeterminedError):
    """There is no such experiment, trial or checkpoint."""


class Service:
    """One home, as doors see it. May be shared by threads."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._reader: Reader | None = None
        self._last_start = -_WAKE_SECONDS

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
        folder = self.home.creations / creation
        folder.mkdir(mode=0o700, parents=True)
        threads = threads_per_process(
            count_cores(), len(machine.slots), config["resources"]["trials_per_slot"]
        )
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
        record = self.reader.experiment(experiment_id)
        if record is None:
            raise NotFoundError(f"There is no experiment {experiment_id}.")
        limits = Limits(max_trials, max_time, max_length, rerun_failed)
        try:
            new = continued_config(record.config, limits, overrides, config)
        except Refused as error:
            raise RefusedError(str(error)) from None
        arguments = {"experiment_id": experiment_id, "config": new, "limits": limits.to_json()}
        self.ask("continue", arguments)

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
        identifier = self._send(verb, arguments, uuid or str(uuids.uuid4()))
        pause, starts, started = _POLL_SECONDS, 0, 0.0
        while True:
            if not presence.ring(self.home) and time.monotonic() - started > _START_SECONDS:
                if starts == _MOST_STARTS:
                    raise DeterminedError(
                        f"The supervisor does not start: see {self.home.supervisor_log}."
                    )
                presence.start(self.home)
                starts, started, pause = starts + 1, time.monotonic(), _POLL_SECONDS
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
        if not self._has_work() or presence.ring(self.home):
            return
        if time.monotonic() - self._last_start > _WAKE_SECONDS:  # else one is about to listen
            self._last_start = time.monotonic()
            presence.start(self.home)

    def _has_work(self) -> bool:
        if not (self.home.path / "store.db").exists():
            return False
        unfinished = ["ACTIVE", "STOPPING_COMPLETED", "STOPPING_CANCELED"]
        unfinished += ["STOPPING_KILLED", "STOPPING_ERROR", "DELETING"]
        return self.reader.has_unanswered() or self.reader.count_experiments(unfinished) > 0

    def _send(self, verb: str, arguments: dict[str, Any], uuid: str) -> str:
        for _ in range(_MOST_STARTS):
            try:
                return send_command(self.home.path, verb, arguments, uuid=uuid)
            except StoreVersionError:
                presence.start(self.home)
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
