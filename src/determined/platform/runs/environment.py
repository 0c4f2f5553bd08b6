"""What an experiment was created with: interpreter, environment, code version, packages.

Written once at creation, in the experiment's folder:

    environment.json   interpreter, variables, threads, packages, git commit; 0600, because
                       variables may contain secrets
    git.diff           changes since that commit, if there are any
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from determined._os.json_file import write_json

_VERSION = 1
_FILE = "environment.json"
_DIFF = "git.diff"
_GIT_SECONDS = 10.0
_LARGEST_DIFF_BYTES = 10 << 20
_LIST_PATHS = "import json, sys; print(json.dumps(sys.path))"

# Of a run or a distributed job that the creator belongs to: trials must not inherit them.
_NOT_INHERITED = frozenset(
    """
    DET_INFO_DIR DET_RUN_DIR DET_WORKDIR DET_LAUNCH_DIR DET_COMM_SECRET DET_CHIEF_IP DET_TASK_ID
    DET_TENSORBOARD_DIR
    DET_ALLOCATION_ID DET_TASK_TYPE DET_TRIAL_ID DET_TRIAL_SEED DET_TRIAL_RUN_ID DET_HPARAMS
    DET_EXPERIMENT_ID DET_EXPERIMENT_CONFIG DET_STEPS_COMPLETED DET_LATEST_CHECKPOINT DET_SLOT_IDS
    DET_AGENT_ID DET_CLUSTER_ID DET_SESSION_TOKEN DET_RESOURCES_ID DET_RESOURCES_TYPE
    DET_CONTAINER_ID USE_TORCH_DISTRIBUTED C10D_PORT INTER_TRAIN_PROCESS_COMM_PORT_1
    INTER_TRAIN_PROCESS_COMM_PORT_2 RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK
    GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID
    TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS
    """.split()  # noqa: SIM905  # forty lines otherwise
)


@dataclass(frozen=True)
class GitState:
    """The commit that code was at; `is_changed` if it differs from that."""

    commit: str
    branch: str | None
    is_changed: bool


@dataclass(frozen=True)
class RecordedEnvironment:
    """What runs of an experiment start from, now and after any restart."""

    interpreter: str
    variables: Mapping[str, str]
    threads: int
    packages: tuple[str, ...]
    git: GitState | None = None


def inherited(variables: Mapping[str, str]) -> dict[str, str]:
    """Leave out variables of a run or a distributed job that the creator belongs to."""
    return {name: value for name, value in variables.items() if name not in _NOT_INHERITED}


def record_environment(
    folder: Path,
    model_dir: Path | None,
    threads: int,
    *,
    interpreter: str | None = None,
    variables: Mapping[str, str] | None = None,
) -> RecordedEnvironment:
    """Record this process's environment, or the one given, in an experiment's folder."""
    interpreter = interpreter or sys.executable
    variables = os.environ if variables is None else variables
    git, diff = (None, b"") if model_dir is None else _look_at_git(model_dir)
    recorded = RecordedEnvironment(
        interpreter,
        inherited(variables),
        threads,
        tuple(list_packages(interpreter)),
        git,
    )
    if diff:
        descriptor = os.open(folder / _DIFF, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(diff)
    write_json(folder / _FILE, {"version": _VERSION, **asdict(recorded)}, durable=True)
    return recorded


def load_environment(folder: Path) -> RecordedEnvironment:
    """Return what was recorded in an experiment's folder."""
    content: dict[str, Any] = json.loads((folder / _FILE).read_bytes())
    if content.pop("version") != _VERSION:
        raise ValueError(f"{folder / _FILE} was written by another version of determined-pytorch.")
    git = content.pop("git")
    packages = tuple(content.pop("packages"))
    return RecordedEnvironment(
        **content, packages=packages, git=None if git is None else GitState(**git)
    )


def list_packages(interpreter: str) -> list[str]:
    """Return what an interpreter can import, as `name==version`, by the names of their folders.

    Reading the metadata of each would take a hundred times as long.
    """
    found: dict[str, str] = {}
    for place in _search_path(interpreter):
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                stem, _, kind = entry.name.rpartition(".")
                name, _, version = stem.partition("-")
                if kind in ("dist-info", "egg-info") and version:
                    found.setdefault(name.replace("_", "-").lower(), version.partition("-py")[0])
    return sorted(f"{name}=={version}" for name, version in found.items())


def _search_path(interpreter: str) -> list[str]:
    if interpreter == sys.executable:
        return sys.path
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        answer = subprocess.run(
            [interpreter, "-c", _LIST_PATHS], capture_output=True, timeout=60, check=True
        )
        paths: list[str] = json.loads(answer.stdout)
        return paths
    return []


def _look_at_git(folder: Path) -> tuple[GitState | None, bytes]:
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    if not commit:
        return None, b""
    branch = _git(folder, "symbolic-ref", "--short", "-q", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--", ".")
    diff = _git(folder, "diff", "--no-ext-diff", "--no-textconv", "--binary", "HEAD", "--", ".")
    state = GitState(commit.decode().strip(), branch.decode().strip() or None, bool(changes))
    return state, diff if len(diff) <= _LARGEST_DIFF_BYTES else b""


def _git(folder: Path, *arguments: str) -> bytes:
    """Call git; return nothing if there is no git, no repository, or no answer in time."""
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *arguments]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(
            command,
            capture_output=True,
            timeout=_GIT_SECONDS,
            stdin=subprocess.DEVNULL,
            env=environment,
            check=True,
        )
        return answer.stdout
    return b""
