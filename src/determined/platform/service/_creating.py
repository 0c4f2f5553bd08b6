"""The verbs of `Service` that create experiments or continue them."""

from __future__ import annotations

import contextlib
import getpass
import shutil
import time
import uuid as uuids
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined.errors import DeterminedError, RefusedError
from determined.platform.service._lookups import Lookups
from determined.platform.supervisor import presence

if TYPE_CHECKING:  # most commands need none of them, and `det` must start fast
    from determined.config import Loaded
    from determined.platform.homes.snapshot import Snapshot
    from determined.platform.machines.slots import Machine


class CreatingVerbs(Lookups):
    """The part of `Service` that creates and continues experiments."""

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
        from determined.platform.rules.host_changes import host_changes
        from determined.platform.runs.keeper._hook import HOOK

        file = snapshot.tree / HOOK
        script = file.read_text("utf-8", "replace") if file.is_file() else ""
        found = [f"line {number} (`{line}`)" for number, line, _ in host_changes(script)]
        if not found:
            return ""
        return f"{HOOK} would change this machine, not just the experiment: {', '.join(found)}."

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
    ) -> int:
        """Create an experiment from a configuration and a code snapshot; return its id.

        Refused if its startup hook would change the machine, unless `allow_host_changes`.
        """
        from determined.platform.homes.creation import Creation, save_creation
        from determined.platform.machines.machine import find_machine, threads_on
        from determined.platform.runs.environment import record_environment

        config = loaded.effective
        if not allow_host_changes and (sentence := self.host_changes(snapshot)):
            raise RefusedError(f"{sentence} Pass --allow-host-changes to run it all the same.")
        _check_script(config["entrypoint"], snapshot, model_dir)
        self._before_creation()
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

    def _before_creation(self) -> None:
        """Raise RefusedError if there is no room for another experiment."""

    def _check_cluster(self) -> None:
        """Refuse what the running supervisor would start elsewhere than requested."""
        from determined.platform.machines.cluster import CLUSTER_VARIABLE, find_cluster

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
            if isinstance(error, OSError) and _is_about(error, self.home.path):
                raise self._cannot_write(error) from error
            raise

    def _was_asked(self, uuid: str) -> bool:
        """Whether the store has this command, and it was not refused."""
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
        rerun_failed: bool = True,
        overrides: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Continue an experiment that has ended, or that has paused itself.

        Args:
            experiment_id: which one.
            max_trials: try more values (random, async_halving, adaptive_asha, custom).
            max_time: train the best longer (async_halving, adaptive_asha, custom).
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


def _is_about(error: OSError, home: Path) -> bool:
    """Whether the home is to blame; a missing path without a name is the working directory."""
    if error.filename is None:
        return not isinstance(error, FileNotFoundError)
    return str(error.filename).startswith(str(home))


def _check_script(entrypoint: Any, snapshot: Snapshot, model_dir: Path | None) -> None:
    """Refuse a command whose script is not in the code; a startup hook may make one."""
    from determined.platform.runs.entrypoint import script_of
    from determined.platform.runs.keeper._hook import HOOK

    script = script_of(entrypoint)
    if script is None or (snapshot.tree / script).exists() or (snapshot.tree / HOOK).exists():
        return
    folder = "no folder was given" if model_dir is None else f"{model_dir} has no such file"
    raise RefusedError(
        f"entrypoint: {script} is not in the experiment's code: {folder}, or a .detignore leaves "
        "it out. Give the folder that has it: `det experiment create CONFIG MODEL_DIR`."
    )


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
