"""Prepare and start runs, ask them to stop, and end those that do not.

Each step follows from what is committed and may be repeated. Requests are written to the run's
control file; signals are sent only when it does not react in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from determined._contracts.home import checkpoint_key
from determined._info import ELSEWHERE_FILE, FORK_FILE
from determined.journal import Control
from determined.platform.homes.creation import experiment_folder
from determined.platform.homes.snapshot import load_snapshot, working_copy
from determined.platform.machines.slots import Machine, device_variables, free_ports, port_variables
from determined.platform.rules.scheduler import DEFAULT_PRIORITY
from determined.platform.rules.states import State
from determined.platform.runs.entrypoint import command_for
from determined.platform.runs.environment import load_environment
from determined.platform.runs.folder import LOST, NOT_STARTED, LogPolicy, RunExit, RunSpec
from determined.platform.runs.job_order import JobOrder
from determined.platform.runs.keeper._hook import FOLDER_VARIABLE as HOOK_VENV
from determined.platform.runs.launchers.protocol import (
    Launcher,
    RunAlreadyStartedError,
    RunNotPlacedError,
    RunState,
)
from determined.platform.runs.placement import Part, Placement, expected_versions, place
from determined.platform.runs.variables import run_environment, variables_for_device
from determined.platform.supervisor.checkpoints import check_storage, find_unrecorded
from determined.platform.supervisor.decisions import is_invalid_hp
from determined.platform.supervisor.live_state import LiveExperiment, LiveRun, LiveState
from determined.store import Trial

logger = logging.getLogger("determined.supervisor")

_STOP_GRACE_SECONDS = 60.0
_INVALID_HP_GRACE_SECONDS = 10.0
_LOOK_AGAIN_SECONDS = 5.0


class Runs:
    """Brings live runs to where the live state wants them. `changed` wakes the loop."""

    def __init__(
        self,
        live_state: LiveState,
        launcher: Launcher,
        machine: Callable[[], Machine],
        changed: asyncio.Event,
    ) -> None:
        self._live_state = live_state
        self._launcher = launcher
        self._machine = machine
        self._changed = changed
        self._tasks: set[asyncio.Task[None]] = set()
        self._preparing: set[asyncio.Future[None]] = set()

    def act(self) -> None:
        """Start new runs; notify those that must stop, and end those that do not."""
        for run in list(self._live_state.runs.values()):
            if not run.is_watched:
                run.is_watched = True
                self._spawn(self._watch(run))
            elif run.end is None:
                self._enforce_control(run)

    def next_measure(self) -> float | None:
        """When the next run that was asked to stop runs out of time, by the monotonic clock."""
        due = [
            run.asked_since + self._grace_seconds(run)
            for run in self._live_state.runs.values()
            if run.asked_since is not None and not run.last_measure and run.end is None
        ]
        return min(due, default=None)

    async def close(self) -> None:
        """Stop watching; the runs continue."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._preparing, return_exceptions=True)

    # Start to end

    async def _watch(self, run: LiveRun) -> None:
        """Start a run unless it was started before, wait for its end, and record how it ended."""
        end = await self._start_if_needed(run)
        last_error = ""
        while end is None:
            try:
                end = await self._launcher.wait(run.folder)
                if end is None and not self._live_state.home.path.exists():
                    await asyncio.sleep(_LOOK_AGAIN_SECONDS)  # nothing can be known about it
                elif end is None:
                    end = await self._launcher.declare_dead(run.folder, "Its keeper was lost.")
            except Exception as error:  # it may be alive: until that is known it must not run again
                if str(error) != last_error:
                    logger.exception("the end of run %s cannot be seen", run.allocation_id)
                last_error = str(error)
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        section = self._live_state.experiments[run.experiment_id].record.checkpoint_storage
        run.unrecorded = await asyncio.to_thread(find_unrecorded, run, section)
        run.end = end
        self._changed.set()

    async def _start_if_needed(self, run: LiveRun) -> RunExit | None:
        """Start it; return how it ended if it could not start."""
        try:
            (state,) = await self._launcher.states([run.folder])
            if state is not RunState.NOT_STARTED:
                return None
            if self._wanted(run).preempt:
                return RunExit(143, NOT_STARTED, message="no longer wanted", stopped_by="none")
            await self._start(run)
        except RunNotPlacedError as error:
            logger.warning("run %s is placed again: %s", run.allocation_id, error)
            return RunExit(137, LOST, message=str(error))
        except Exception as error:
            if run.folder.was_started:
                logger.exception("run %s could not be kept", run.allocation_id)
                return None
            logger.exception("run %s could not be started", run.allocation_id)
            return RunExit(1, NOT_STARTED, message=f"could not be started: {error}")
        return None

    async def _start(self, run: LiveRun) -> None:
        live = self._live_state.experiments[run.experiment_id]
        arguments = (run, live, live.trials[run.trial_id], self._wanted(run))
        preparing = asyncio.get_running_loop().run_in_executor(None, self._prepare, *arguments)
        self._preparing.add(preparing)
        preparing.add_done_callback(self._preparing.discard)
        await asyncio.shield(preparing)  # a thread cannot be canceled: `close` waits for it
        with contextlib.suppress(RunAlreadyStartedError):
            await self._launcher.start(run.folder)

    def _prepare(self, run: LiveRun, live: LiveExperiment, trial: Trial, control: Control) -> None:
        """Create the folder of a run, from scratch however far an earlier attempt came."""
        home, machine = self._live_state.home, self._machine()
        configuration = live.record.configuration
        folder = experiment_folder(home, live.record)
        check_storage(live.record.checkpoint_storage)
        shutil.rmtree(run.folder.path, ignore_errors=True)
        run.folder.path.mkdir(parents=True, mode=0o700)
        parts = _parts(run, machine)
        is_elsewhere = bool(parts) or machine.is_queued
        if live.record.snapshot_id is not None and not is_elsewhere:
            snapshot = load_snapshot(home.snapshots, live.record.snapshot_id)
            working_copy(snapshot, run.folder.workdir)
        recorded = load_environment(folder)
        slots = [slot for slot in machine.slots if slot.id in run.slots]
        # Only a node knows which of its GPUs and ports are free.
        gpus = [slot.gpu for slot in slots if slot.gpu and not is_elsewhere]
        info = self._info(run, live, trial, gpus, parts)
        environment = run_environment(
            recorded,
            run.folder,
            info,
            configured=variables_for_device(
                configuration.environment.environment_variables.as_dict(),
                machine.kind if machine.is_queued else machine.kind_of(slots),
            ),
            devices={} if is_elsewhere else device_variables(slots, machine),
            ports={} if is_elsewhere else port_variables(free_ports()),
            tensorboard=home.tensorboard / str(trial.id),
            home=home.path,
        )
        environment[HOOK_VENV] = str(folder / "hook_venv")
        spec = RunSpec(
            argv=command_for(configuration.entrypoint or "", recorded.interpreter),
            allocation_id=run.allocation_id,
            policies=tuple(
                LogPolicy(policy.name, policy.pattern, policy.action)
                for policy in configuration.log_policies
                if policy.pattern is not None
            ),
            stop_grace_seconds=_STOP_GRACE_SECONDS,
            warm_start=configuration.environment.warm_start,
        )
        run.folder.create(spec, environment, info | _elsewhere(run, live))
        if parts:
            Placement(
                parts,
                has_gpus=any(slot.gpu for slot in slots),
                share=1 / configuration.resources.trials_per_slot,
                code=live.record.snapshot_id,
                snapshots=str(home.snapshots),
                interpreter=recorded.interpreter,
                expects=expected_versions(recorded.packages),
                storage=live.record.checkpoint_storage,
            ).save(run.folder)
        if machine.is_queued:
            resources, section = configuration.resources, configuration.slurm
            priority = live.record.priority
            JobOrder(
                resources.slots_per_trial,
                resources.resource_pool,
                DEFAULT_PRIORITY if priority is None else priority,
                sbatch_args=section.sbatch_args,
                slots_per_node=section.slots_per_node,
                gpu_type=section.gpu_type,
                code=live.record.snapshot_id,
                snapshots=str(home.snapshots),
                interpreter=recorded.interpreter,
                expects=expected_versions(recorded.packages),
                storage=live.record.checkpoint_storage,
            ).save(run.folder)
        self._write_control(run, control)

    def _info(
        self,
        run: LiveRun,
        live: LiveExperiment,
        trial: Trial,
        gpus: list[str],
        parts: Sequence[Part],
    ) -> dict[str, dict[str, Any]]:
        slot_ids, forked = list(run.slots), run.forked
        fork = {} if forked is None else {FORK_FILE.removesuffix(".json"): forked.told}
        return fork | {
            "cluster": {
                "master_url": "",
                "cluster_id": "local",
                "agent_id": os.uname().nodename,
                "slot_ids": slot_ids,
                "task_id": trial.task_id,
                "allocation_id": run.allocation_id,
                "session_token": secrets.token_hex(16),
                "task_type": "TRIAL",
                "latest_checkpoint": run.from_checkpoint,
                "checkpoint_key": _checkpoint_key(self._live_state.home.path),
            },
            "trial": {
                "trial_id": trial.id,
                "experiment_id": live.id,
                "trial_seed": trial.seed if forked is None else forked.seed,
                "hparams": trial.hparams if forked is None else forked.hparams,
                "config": live.record.config if forked is None else forked.config,
                "steps_completed": run.steps_completed,
                "trial_run_id": run.run_id,
                "debug": live.record.configuration.debug,
                "inter_node_network_interface": None,
            },
            "rendezvous": {
                "container_addrs": [part.address for part in parts] or ["127.0.0.1"],
                "container_rank": 0,
                "container_slot_counts": [
                    max(1, count)
                    for count in [len(part.slots) for part in parts] or [len(slot_ids)]
                ],
            },
            "resources": {"gpu_uuids": gpus},
        }

    # Stopping

    def _enforce_control(self, run: LiveRun) -> None:
        wanted = self._wanted(run)
        if wanted != run.control and run.folder.was_started:
            self._write_control(run, wanted)
            self._spawn(self._launcher.send_control(run.folder))
        if not wanted.preempt:
            run.asked_since = None
            return
        now = time.monotonic()
        if run.asked_since is None:
            run.asked_since = now
        if self._must_kill(run) and run.last_measure != "kill":
            run.last_measure = "kill"
            self._spawn(self._kill(run))
        elif not run.last_measure and now - run.asked_since >= self._grace_seconds(run):
            run.last_measure = "terminate"
            logger.info("run %s did not stop in time: ending it", run.allocation_id)
            self._spawn(self._end_by_force(run))

    def _wanted(self, run: LiveRun) -> Control:
        """What the control file of a run should say."""
        live = self._live_state.experiments[run.experiment_id]
        trial = live.trials[run.trial_id]
        reason = run.preempted
        if trial.state != State.ACTIVE.value or trial.is_held:
            reason = trial.reason or trial.state.lower()
        if is_invalid_hp(trial):
            reason = "invalid hyperparameters"
        reason = run.fault or reason
        return Control(
            preempt=bool(reason),
            reason=reason,
            best_validation=live.record.best_validation,
            last_validation=trial.latest_validation_steps,
            metadata=trial.metadata,
            notice=self._live_state.notice,
        )

    def _must_kill(self, run: LiveRun) -> bool:
        """Whether to end it by force: it was killed, failed, or cannot receive a request yet."""
        trial = self._live_state.experiments[run.experiment_id].trials[run.trial_id]
        forced = (State.STOPPING_KILLED.value, State.STOPPING_ERROR.value)
        return bool(run.fault) or trial.state in forced or not run.has_reported

    def _grace_seconds(self, run: LiveRun) -> float:
        live = self._live_state.experiments[run.experiment_id]
        if is_invalid_hp(live.trials[run.trial_id]):
            return _INVALID_HP_GRACE_SECONDS
        return float(live.record.configuration.preemption_timeout)

    async def _end_by_force(self, run: LiveRun) -> None:
        if is_invalid_hp(self._live_state.experiments[run.experiment_id].trials[run.trial_id]):
            await self._kill(run)
        else:
            await self._launcher.terminate(run.folder)

    async def _kill(self, run: LiveRun) -> None:
        while not run.folder.was_started and run.end is None:
            await asyncio.sleep(0.05)  # it is being prepared
        try:
            await self._launcher.kill(run.folder)
        except Exception:
            logger.exception("run %s could not be killed", run.allocation_id)
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            run.last_measure = ""  # try again

    def _write_control(self, run: LiveRun, content: Control) -> None:
        content.write(run.folder.path)
        run.control = content

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("an operation on a run failed", exc_info=error)
            self._changed.set()


def _parts(run: LiveRun, machine: Machine) -> tuple[Part, ...]:
    """The nodes of a run's slots; empty on this machine."""
    parts = place(run.slots, machine, run.trial_id)
    there = {slot for part in parts for slot in part.slots}
    is_ours_to_place = machine.is_cluster and not machine.is_queued
    if is_ours_to_place and (not parts or not there.issuperset(run.slots)):
        raise RunNotPlacedError("A node that it was placed on has left the cluster.")
    return parts


def _elsewhere(run: LiveRun, live: LiveExperiment) -> dict[str, dict[str, Any]]:
    """The info file that names the storage of a run's first checkpoint, if not its own storage."""
    recorded = live.record.environment
    storage = recorded.get("warm_start_storage")
    if storage is None or run.from_checkpoint != recorded["warm_start"]:
        return {}
    name = ELSEWHERE_FILE.removesuffix(".json")
    return {name: {"uuid": run.from_checkpoint, "storage": storage}}


def _checkpoint_key(home: Path) -> str | None:
    """What a run seals its checkpoints with; without it, classes of its own are not trusted."""
    try:
        return checkpoint_key(home).decode()
    except OSError as e:
        logger.warning("No key for checkpoints: %s", e)
        return None
