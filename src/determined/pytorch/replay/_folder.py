"""Runs whose checkpoints lie in a folder: what is known of them, and how to start them again."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from determined._contracts.checkpoint_layout import CODE, LOAD_DATA, METADATA
from determined._contracts.replay_span import REPLAY_VARIABLE, ReplaySpan
from determined._contracts.run_diff import Facts, Point, fingerprints, flat
from determined._contracts.tensor_hashes import read_tensor_hashes
from determined._os.together import Command
from determined.core.backends.tracking import TRACKING_VARIABLE
from determined.errors import CheckpointNotFound
from determined.pytorch._checkpoint.files.reading import read_json
from determined.pytorch._checkpoint.state.training_state import RunRecord, read_run
from determined.storage import SharedFSStorageManager
from determined.storage._runs import list_runs

_THREADS = "OMP_NUM_THREADS"


@dataclasses.dataclass(frozen=True)
class FolderRun:
    """The exact checkpoints of one run, by batch, and the record of the newest."""

    run_id: str
    points: tuple[Point, ...]
    record: RunRecord

    @property
    def newest(self) -> pathlib.Path:
        """The folder of the last checkpoint."""
        return pathlib.Path(self.points[-1].name)

    @property
    def length(self) -> int:
        """How many batches it has trained."""
        return self.points[-1].batch

    def at_or_before(self, batch: int) -> Point | None:
        """The checkpoint to start from; None for the beginning."""
        return next((p for p in reversed(self.points) if p.batch <= batch), None)


def open_run(path: str | os.PathLike[str]) -> FolderRun:
    """Find a run: the only one of a storage, or a checkpoint's."""
    folder = pathlib.Path(path).absolute()
    is_checkpoint = (folder / METADATA).exists() or (folder / LOAD_DATA).exists()
    storage = folder.parent if is_checkpoint else folder
    if not storage.is_dir():
        raise CheckpointNotFound(f"{path}: there is no such folder.")
    runs = list_runs(SharedFSStorageManager(storage))
    if is_checkpoint:
        runs = [run for run in runs if folder.name in {c.storage_id for c in run.checkpoints}]
    if len(runs) != 1:
        names = ", ".join(run.run_id for run in runs) or "none"
        raise CheckpointNotFound(
            f"{path}: expected a checkpoint, or a storage with the checkpoints of one run, found "
            f"these runs: {names}. Give a checkpoint of the run."
        )
    by_batch = {}
    for checkpoint in runs[0].checkpoints:
        place = storage / checkpoint.storage_id
        batch = checkpoint.manifest.steps_completed or 0
        if checkpoint.is_exact:
            by_batch[batch] = Point(batch, str(place), True, read_tensor_hashes(place))
    points = tuple(by_batch[batch] for batch in sorted(by_batch))
    record = read_run(pathlib.Path(points[-1].name)) if points else None
    if record is None:
        raise CheckpointNotFound(f"{path}: none of its checkpoints is exact and of this library.")
    return FolderRun(runs[0].run_id, points, record)


def facts_of(run: FolderRun) -> Facts:
    """Return what a run's checkpoints tell of it, for a comparison on paper."""
    record, stored = run.record, read_json(run.newest / LOAD_DATA) or {}
    environment = dict(record.environments[0]) if record.environments else {}
    packages = environment.pop("packages", {})
    for name in ("version", "interop_threads", "compiled"):
        environment.pop(name, None)
    command = record.command or {}
    configuration: dict[str, Any] = {
        "seed": record.seed,
        "ranks": record.world_size,
        "aggregation_frequency": record.aggregation_frequency,
        "arguments": command.get("arguments"),
        **flat({"hyperparameters": stored.get("hparams") or {}}),
        **flat({"config": stored.get("experiment_config") or {}}),
        **_settings(record.constructed or {}),
    }
    return {
        "configuration": configuration,
        "code": digests_of(run.newest / CODE),
        "packages": packages,
        "environment": flat(environment),
        "data": fingerprints(run.points),
    }


def digests_of(folder: pathlib.Path) -> dict[str, str]:
    """Return the hash of each file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.exists() else []
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in files
    }


def _settings(constructed: Mapping[str, Any]) -> dict[str, Any]:
    """What the script gave to optimizers and schedulers, by names that people know."""
    found: dict[str, Any] = {}
    for index, groups in enumerate(constructed.get("groups") or ()):
        for number, group in enumerate(groups):
            found |= flat({f"optimizer {index} group {number}": group})
    for index, state in enumerate(constructed.get("schedulers") or ()):
        found |= flat({f"scheduler {index}": state if isinstance(state, Mapping) else {"": state}})
    return found


def prepare(run: FolderRun, span: ReplaySpan, folder: pathlib.Path) -> Command:
    """Lay out what a process needs to train a span again, in an empty folder."""
    command = run.record.command
    if command is None or command.get("script") is None:
        raise CheckpointNotFound(
            f"The checkpoints of {run.run_id} do not say which script made them (a notebook, or an "
            "earlier release), so it cannot be started again."
        )
    if run.record.world_size != 1:
        raise CheckpointNotFound(
            f"The run {run.run_id} was trained by {run.record.world_size} processes: replays "
            "train with one."
        )
    code = folder / CODE
    shutil.copytree(run.newest / CODE, code)
    script = _script_in(code, command)
    span.save(folder / "span.json")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DET_")}
    environment |= {REPLAY_VARIABLE: str(folder / "span.json"), TRACKING_VARIABLE: "off"}
    threads = run.record.environments[0].get("threads") if run.record.environments else None
    if threads is not None:
        environment[_THREADS] = str(threads)
    was_in = pathlib.Path(command["folder"])
    argv = (sys.executable, str(script), *map(str, command["arguments"]))
    return Command(argv, environment, was_in if was_in.is_dir() else code, folder / "log")


def _script_in(code: pathlib.Path, command: Mapping[str, Any]) -> pathlib.Path:
    """Find the copy of the script among the code of a checkpoint."""
    path, folder = pathlib.PurePath(command["script"]), command["folder"]
    names = [path.relative_to(folder)] if path.is_relative_to(folder) else []
    for name in (*names, pathlib.PurePath(path.name)):
        if (code / name).is_file():
            return code / name
    raise CheckpointNotFound(f"The code in the checkpoint does not have the script {path}.")


def span_of(
    run: FolderRun,
    batches: tuple[int, int],
    folder: pathlib.Path,
    callbacks: Sequence[str] = (),
    **others: Any,
) -> tuple[ReplaySpan, int]:
    """Return what to train for some batches, and the batch that it starts after."""
    first, last = batches
    if not 1 <= first <= last <= run.length:
        raise ValueError(
            f"`batches` must be A:B with 1 <= A <= B <= {run.length}, which is how far the run "
            f"{run.run_id} has trained, got {first}:{last}."
        )
    start = run.at_or_before(first - 1)
    span = ReplaySpan(
        first,
        last,
        None if start is None else start.name,
        str(folder / "checkpoints"),
        str(folder / "record.jsonl"),
        run.run_id,
        tuple(callbacks),
        (str(pathlib.Path.cwd()),),
        **others,
    )
    return span, 0 if start is None else start.batch
