"""Rerun a trial in this terminal: same code, hyperparameters, environment and checkpoint.

It has no run folder, so training reports nothing, and its checkpoints go to a temporary folder:
whatever happens here does not affect the experiment.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined._contracts.home import checkpoint_key
from determined._legacy.entrypoint import is_trial_class
from determined._os.json_file import write_json
from determined._os.together import Command
from determined.platform.homes.home import Home
from determined.platform.homes.snapshot import load_snapshot, working_copy
from determined.platform.machines.slots import find_slots, free_ports, port_variables
from determined.platform.queries.downloads import download, storage_of
from determined.platform.runs.entrypoint import command_for
from determined.platform.runs.environment import RecordedEnvironment, load_environment
from determined.platform.runs.folder import RunFolder
from determined.platform.runs.keeper._hook import with_startup_hook
from determined.platform.runs.variables import run_environment, variables_for_device
from determined.store import Checkpoint, CheckpointFilter, Experiment, Order, Reader, Trial

if TYPE_CHECKING:
    from determined.config.model.experiment import Configuration

# What belongs to this terminal, not to the shell that created the experiment.
_OF_THE_TERMINAL = ("TERM", "COLUMNS", "LINES", "COLORTERM", "NO_COLOR", "DISPLAY", "EDITOR")
_OF_NOBODY = ("DET_RUN_DIR",)


def prepare(
    reader: Reader,
    home: Home,
    trial: Trial,
    experiment: Experiment,
    path: Path,
    *,
    from_beginning: bool = False,
    start: Checkpoint | None = None,
    slots: int = 1,
) -> Debug:
    """Prepare a trial in the empty folder `path`, the only place that it writes to.

    It starts from its latest checkpoint, from `start`, or from the beginning. With several slots
    its own command starts as many processes.
    """
    folder = RunFolder(path)
    folder.info.mkdir(mode=0o700)
    if experiment.snapshot_id is None:
        folder.workdir.mkdir(mode=0o700)
    else:
        working_copy(load_snapshot(home.snapshots, experiment.snapshot_id), folder.workdir)
    checkpoint = None if from_beginning else start or latest_checkpoint(reader, trial)
    checkpoints = path / "checkpoints"
    if checkpoint is not None:
        source = storage_of(checkpoint, experiment)
        download(checkpoint, source, checkpoints / checkpoint.uuid)
    info = _info(trial, experiment, checkpoint, checkpoints, slots)
    info["cluster"]["checkpoint_key"] = _checkpoint_key(home)
    for name, content in info.items():
        write_json(folder.info / f"{name}.json", content)
    recorded = load_environment(_recorded(home, experiment))
    environment = _environment(recorded, folder, info, experiment.configuration)
    command = _command(experiment, recorded, slots)
    argv, environment = with_startup_hook(command, environment, folder.workdir)
    return Debug(argv, environment, folder.workdir, checkpoint)


class Debug:
    """A trial that is ready to run in a terminal."""

    def __init__(
        self,
        argv: tuple[str, ...],
        environment: dict[str, str],
        workdir: Path,
        checkpoint: Checkpoint | None,
    ) -> None:
        self.argv = argv
        self.environment = environment
        self.workdir = workdir
        self.checkpoint = checkpoint

    def logged(self, log: Path) -> Command:
        """Return how to run it without a terminal, with its output in a file."""
        return Command(self.argv, self.environment, self.workdir, log)

    def run(self) -> int:
        """Run it in the foreground and return its exit code; Ctrl-C goes to the trial."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process = subprocess.Popen(
                self.argv,
                env=self.environment,
                cwd=self.workdir,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
            code = process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
        return code if code >= 0 else 128 - code


def latest_checkpoint(reader: Reader, trial: Trial) -> Checkpoint | None:
    """What the next run of a trial would start from."""
    page = reader.checkpoints(
        CheckpointFilter(trial_id=trial.id, states=["COMPLETED"]),
        Order("steps_completed", descending=True),
    )
    exact = [checkpoint for checkpoint in page.rows if not checkpoint.metadata.get("not_exact")]
    if exact:
        return exact[0]
    warm = trial.warm_start_checkpoint
    return None if warm is None else reader.checkpoint(warm)


def _checkpoint_key(home: Home) -> str | None:
    """What its own checkpoints are sealed with: classes of the trial's code are trusted in them."""
    try:
        return checkpoint_key(home.path).decode()
    except OSError:
        return None


def _command(experiment: Experiment, recorded: RecordedEnvironment, slots: int) -> tuple[str, ...]:
    entrypoint = experiment.configuration.entrypoint or ""
    if slots == 1 and is_trial_class(
        entrypoint
    ):  # in one process, where breakpoints can use the terminal
        return (recorded.interpreter, "-m", "determined.exec.harness", entrypoint.strip())
    return command_for(entrypoint, recorded.interpreter)


def _recorded(home: Home, experiment: Experiment) -> Path:
    folder = home.experiment(experiment.id)
    if folder.exists():
        return folder
    return home.creations / str(experiment.environment.get("creation"))  # it has not run yet


def _environment(
    recorded: RecordedEnvironment,
    folder: RunFolder,
    info: Mapping[str, Mapping[str, Any]],
    configuration: Configuration,
) -> dict[str, str]:
    section = configuration.environment.environment_variables.as_dict()
    environment = run_environment(
        recorded,
        folder,
        info,
        configured=variables_for_device(section, find_slots().kind),
        ports=port_variables(free_ports()),
    )
    kept = {name: os.environ[name] for name in _OF_THE_TERMINAL if name in os.environ}
    return {k: v for k, v in {**environment, **kept}.items() if k not in _OF_NOBODY}


def _info(
    trial: Trial,
    experiment: Experiment,
    checkpoint: Checkpoint | None,
    checkpoints: Path,
    slots: int,
) -> dict[str, dict[str, Any]]:
    is_own = checkpoint is not None and checkpoint.trial_id == trial.id
    section = {**experiment.checkpoint_storage, "type": "shared_fs"}
    resources = experiment.configuration.resources
    section |= {"host_path": str(checkpoints), "storage_path": None}
    return {
        "cluster": {
            "master_url": "",
            "cluster_id": "local",
            "agent_id": os.uname().nodename,
            "slot_ids": list(range(slots)) if resources.slots_per_trial else [],
            "task_id": trial.task_id,
            "allocation_id": f"{trial.task_id}.debug",
            "session_token": "",
            "task_type": "TRIAL",
            "latest_checkpoint": None if checkpoint is None else checkpoint.uuid,
        },
        "trial": {
            "trial_id": trial.id,
            "experiment_id": experiment.id,
            "trial_seed": trial.seed,
            "hparams": trial.hparams,
            "config": {**experiment.config, "checkpoint_storage": section},
            "steps_completed": checkpoint.steps_completed if checkpoint and is_own else 0,
            "trial_run_id": trial.run_id + 1,
            "debug": experiment.configuration.debug,
            "inter_node_network_interface": None,
        },
        "rendezvous": {
            "container_addrs": ["127.0.0.1"],
            "container_rank": 0,
            "container_slot_counts": [slots],
        },
        "resources": {"gpu_uuids": []},
    }
