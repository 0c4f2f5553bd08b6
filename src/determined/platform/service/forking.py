"""Forks of trials: where one would start, and creating it."""

from __future__ import annotations

import getpass
import shlex
import shutil
import tempfile
import time
import uuid as uuids
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from determined._contracts.checkpoint_layout import CODE, LOAD_DATA
from determined.config import stored
from determined.errors import RefusedError
from determined.platform.service import creation_checks
from determined.platform.service._service import Service
from determined.store import Checkpoint, Experiment

if TYPE_CHECKING:  # most commands need none of them, and `det` must start fast
    from determined.platform.homes.snapshot import Snapshot


@dataclass(frozen=True)
class ForkStart:
    """Where a fork would start: `checkpoint` is None for the beginning."""

    trial_id: int
    at: int
    checkpoint: Checkpoint | None

    @property
    def steps(self) -> int:
        """How many batches need not be trained again."""
        return 0 if self.checkpoint is None else self.checkpoint.steps_completed

    @property
    def batches_again(self) -> int:
        """How many batches are trained again, as the parent did."""
        return self.at - self.steps

    def __str__(self) -> str:
        if self.checkpoint is None:
            start = "from the beginning, as no checkpoint of before has files"
        else:
            start = f"from checkpoint {self.checkpoint.uuid} at batch {self.steps}"
        again = self.batches_again
        what = "1 batch is" if again == 1 else f"{again} batches are"
        rest = f": {what} trained again" if again else ""
        return f"A fork of trial {self.trial_id} at batch {self.at} starts {start}{rest}."


class Forks:
    """Forks the trials of a home."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def plan(self, trial_id: int, at: int) -> ForkStart:
        """Return where a fork of a trial at a batch would start; nothing is created."""
        from determined.platform.rules.forking import check_place

        trial = self._service.trial(trial_id)
        newest = self._service.reader.forks.base(trial_id, 1 << 62)
        trained = max(trial.total_batches, 0 if newest is None else newest.steps_completed)
        check_place(trial, at, trained, self._service.reader.forks.fork(trial_id))
        base = self._service.reader.forks.base(trial_id, at)
        self._refuse_other_training(trial_id, newest)
        if base is None and self._service.experiment(trial.experiment_id).unmanaged:
            raise RefusedError(
                f"Trial {trial_id} is a script that was started by hand, and has no checkpoint at "
                f"or before batch {at}: the platform cannot train it from its beginning."
            )
        return ForkStart(trial_id, at, base)

    def _refuse_other_training(self, trial_id: int, newest: Checkpoint | None) -> None:
        """Refuse trials that no PyTorchTrial trains: nobody would apply changes, or stop at `at`.

        The trainer records its environment when it starts, and a description of the trial with
        each checkpoint, which releases without such records wrote as well.
        """
        reader = self._service.reader
        is_trained = next(iter(reader.environments(trial_id)), None) is not None
        if not is_trained and (newest is None or LOAD_DATA not in newest.resources):
            raise RefusedError(
                f"Trial {trial_id} cannot be forked: its code does not train with "
                "pytorch.Trainer, so nothing is known of its state between batches. To start "
                "from one of its checkpoints: `det experiment create` with "
                "`searcher.source_checkpoint_uuid`."
            )

    def create(
        self,
        trial_id: int,
        at: int,
        hparams: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        max_length: int | None = None,
        seed: int | None = None,
    ) -> int:
        """Create an experiment with one trial, whose first `at` batches are those of another.

        Args:
            trial_id: the parent.
            at: the number of batches that both share.
            hparams: hyperparameters that change at that batch; nested ones by names with dots.
            name: the experiment's name.
            max_length: how long it trains, in the unit of the configuration; by default as long as
                the parent.
            seed: random numbers and the order of data from that batch on; by default the parent's.
        """
        from determined.platform.homes.creation import Creation, save_creation
        from determined.platform.machines.machine import find_machine
        from determined.platform.rules.forking import changed_hparams, fork_config

        start, trial = self.plan(trial_id, at), self._service.trial(trial_id)
        experiment = self._service.experiment(trial.experiment_id)
        new, changed = changed_hparams(trial.hparams, hparams or {})
        title = name or f"{experiment.name}, fork of trial {trial_id} at batch {at}"
        config = dict(experiment.config)
        snapshot = experiment.snapshot_id
        if experiment.unmanaged:
            code, entrypoint = self._code_of_script(experiment, start)
            snapshot = code.digest
            config |= {"entrypoint": entrypoint, "checkpoint_storage": _managed_storage(config)}
        config = fork_config(config, new, title, max_length)
        self._service.check_disk_limit()
        creation_checks.check_slots(stored(config), find_machine(self._service.home))
        creation_checks.check_cluster(self._service.home)
        creation = str(uuids.uuid4())
        with self._service.prepared(creation) as folder:
            made_from = Creation(
                config=config,
                snapshot=snapshot,
                creation=creation,
                owner=getpass.getuser(),
                original_config="",
                parent_id=experiment.id,
                created=time.time(),
                fork={
                    "parent_trial_id": trial_id,
                    "at": at,
                    "checkpoint_uuid": None if start.checkpoint is None else start.checkpoint.uuid,
                    "changed": changed,
                    "hparams": new,
                    "seed": seed,
                },
            )
            save_creation(folder, made_from)
            self._copy_environment(experiment, folder, config)
            answer = self._service.ask("create", made_from._asdict(), uuid=creation)
        return int(answer["experiment_id"])

    def _copy_environment(
        self, experiment: Experiment, folder: Path, config: dict[str, Any]
    ) -> None:
        """Give a fork the environment of its parent; a script's is not known, so it gets ours."""
        from determined.platform.machines.machine import find_machine, threads_on
        from determined.platform.runs.environment import record_environment

        home = self._service.home.experiment(experiment.id)
        waiting = self._service.home.creations / str(experiment.environment.get("creation"))
        recorded = next((f for f in (home, waiting) if (f / "environment.json").exists()), None)
        if recorded is None:
            machine = find_machine(self._service.home)
            threads = threads_on(machine, stored(config).resources.trials_per_slot)
            record_environment(folder, None, threads)
            return
        for file in ("environment.json", "git.diff"):
            if (recorded / file).exists():
                shutil.copy(recorded / file, folder / file)

    def _code_of_script(self, experiment: Experiment, start: ForkStart) -> tuple[Snapshot, str]:
        """Return the code that a script's checkpoint has, and the command that runs it there."""
        from determined.platform.queries.downloads import storage_of
        from determined.platform.runs.entrypoint import script_of

        checkpoint, folder = start.checkpoint, experiment.environment.get("folder", "")
        assert checkpoint is not None
        command = shlex.split(experiment.config["entrypoint"])
        script = script_of(command) or next((w for w in command if w.endswith(".py")), None)
        with tempfile.TemporaryDirectory() as temporary:
            storage, stage = storage_of(checkpoint, experiment), Path(temporary, "checkpoint")
            storage.download(checkpoint.uuid, stage, lambda name: name.startswith(f"{CODE}/"))
            code = stage / CODE
            inside = None if script is None else _inside(code, script, folder)
            if script is None or inside is None:
                raise RefusedError(
                    f"Trial {start.trial_id} is a script that was started by hand as "
                    f"`{experiment.config['entrypoint']}`, and its checkpoint {checkpoint.uuid} "
                    "does not have that script's file: fork it with fit(fork_from=...) instead."
                )
            command[command.index(script)] = inside
            return self._service.take_snapshot(code), shlex.join(command)


def _inside(code: Path, script: str, folder: str) -> str | None:
    """Where in the code of a checkpoint the file of a script is."""
    path = PurePath(folder, script)
    names = [path.relative_to(folder).as_posix()] if path.is_relative_to(folder) else []
    return next((name for name in (*names, path.name) if (code / name).is_file()), None)


def _managed_storage(config: Mapping[str, Any]) -> dict[str, Any]:
    """The storage of a script, with the usual policy instead of its own."""
    policy = ("save_experiment_best", "save_trial_best", "save_trial_latest")
    return {k: v for k, v in config["checkpoint_storage"].items() if k not in policy}
