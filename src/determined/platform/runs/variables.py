"""The environment variables of one run. Pure."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from determined.platform.runs.environment import RecordedEnvironment
from determined.platform.runs.folder import RunFolder

_THREADS = "OMP_NUM_THREADS"
_THREADS_OF_LIBRARIES = ("MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# The kernel refuses longer ones; the same is in the files that DET_INFO_DIR names.
_LONGEST_VARIABLE = 100_000


def run_environment(
    recorded: RecordedEnvironment,
    run: RunFolder,
    info: Mapping[str, Mapping[str, Any]],
    *,
    configured: Sequence[str] = (),
    devices: Mapping[str, str] | None = None,
    ports: Mapping[str, str] | None = None,
    tensorboard: Path | None = None,
    home: Path | None = None,
) -> dict[str, str]:
    """Return the variables of a run; what comes later in this list wins.

    The creator's environment, the creator's interpreter first on PATH, unbuffered output,
    `environment.environment_variables` of the configuration (`NAME=VALUE` or `NAME`, as
    `configured`), thread counts unless one of these set them, then what the platform decides for
    this run: devices, ports and the DET_ variables.
    """
    environment = dict(recorded.variables)
    environment["PATH"] = _with_first(
        str(Path(recorded.interpreter).parent), environment.get("PATH", os.defpath)
    )
    environment["PYTHONUNBUFFERED"] = "1"
    for assignment in configured:
        name, _, value = assignment.partition("=")
        environment[name] = value
    if _THREADS not in environment:  # the other libraries use it, too
        threads = str(recorded.threads)
        ours = {n: threads for n in (_THREADS, *_THREADS_OF_LIBRARIES) if n not in environment}
        environment |= ours
        # So that a run which continues does not take them for a choice of the user.
        environment["DET_SET_VARIABLES"] = " ".join(f"{n}={value}" for n, value in ours.items())
    environment.update(devices or {})
    environment.update(ports or {})
    environment.update(_of_this_run(run, info))
    if tensorboard is not None:
        environment["DET_TENSORBOARD_DIR"] = str(tensorboard)
    if home is not None:
        environment["DET_HOME"] = str(home)
    return environment


def variables_for_device(
    configured: Sequence[str] | Mapping[str, Sequence[str]], kind: str
) -> tuple[str, ...]:
    """Return the configured variables that apply: all of a list, of a map those of the device.

    `kind` is cpu, cuda, rocm or mps, which goes with the CPU: configurations do not know it.
    """
    if not isinstance(configured, Mapping):
        return tuple(configured)
    keys = ("gpu", kind) if kind in ("cuda", "rocm") else ("cpu",)
    return tuple(assignment for key in keys for assignment in configured.get(key) or ())


def _of_this_run(run: RunFolder, info: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    cluster, trial = info["cluster"], info.get("trial", {})
    values = {
        "DET_INFO_DIR": str(run.info),
        "DET_RUN_DIR": str(run.path),
        "DET_WORKDIR": str(run.workdir),
        "DET_MASTER": cluster["master_url"],
        "DET_CLUSTER_ID": cluster["cluster_id"],
        "DET_AGENT_ID": cluster["agent_id"],
        "DET_SLOT_IDS": json.dumps(cluster["slot_ids"]),
        "DET_TASK_ID": cluster["task_id"],
        "DET_ALLOCATION_ID": cluster["allocation_id"],
        "DET_SESSION_TOKEN": cluster["session_token"],
        "DET_TASK_TYPE": cluster["task_type"],
        "DET_LATEST_CHECKPOINT": cluster.get("latest_checkpoint"),
    }
    if trial:
        values |= {
            "DET_TRIAL_ID": str(trial["trial_id"]),
            "DET_EXPERIMENT_ID": str(trial["experiment_id"]),
            "DET_TRIAL_SEED": str(trial["trial_seed"]),
            "DET_TRIAL_RUN_ID": str(trial["trial_run_id"]),
            "DET_STEPS_COMPLETED": str(trial["steps_completed"]),
            "DET_HPARAMS": json.dumps(trial["hparams"]),
            "DET_EXPERIMENT_CONFIG": json.dumps(trial["config"]),
        }
    return {
        name: value
        for name, value in values.items()
        if value is not None and len(value) <= _LONGEST_VARIABLE
    }


def _with_first(folder: str, path: str) -> str:
    others = [other for other in path.split(os.pathsep) if other and other != folder]
    return os.pathsep.join([folder, *others])
