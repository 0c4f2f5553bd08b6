"""The record of a trial: rows, checkpoints with the hashes of their tensors, and facts on paper."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from determined._contracts.replay_check import Row
from determined._contracts.run_diff import Facts, Point, fingerprints, flat
from determined._contracts.tensor_hashes import TensorHashes
from determined.config import masked
from determined.platform.homes.home import Home
from determined.platform.homes.snapshot import load_snapshot
from determined.platform.queries.run_environments import environments_of
from determined.platform.runs.environment import load_environment
from determined.store import CheckpointFilter, Experiment, Order, Reader, Trial

_NOT_OF_TRAINING = ("name", "description", "labels", "workspace", "project", "checkpoint_storage")
_BESIDES = ("version", "interop_threads", "compiled", "packages")


def points_of(reader: Reader, trial: Trial) -> list[Point]:
    """The exact checkpoints of a trial by batch, also those whose files are gone.

    Those of a fork begin with its parent's at the batch where it leaves it, if that has files.
    """
    fork = reader.forks.fork(trial.id)
    found: dict[int, Point] = {}
    if fork is not None:
        base = reader.forks.base(fork.parent_trial_id, fork.at)
        if base is not None and base.steps_completed == fork.at:
            hashes = reader.tensor_hashes(base.uuid)
            found[fork.at] = Point(fork.at, base.uuid, True, hashes)
    page = reader.checkpoints(CheckpointFilter(trial_id=trial.id), Order("steps_completed"))
    for checkpoint in page.rows:
        if checkpoint.metadata.get("not_exact"):
            continue
        batch, has_files = checkpoint.steps_completed, checkpoint.state == "COMPLETED"
        if has_files or batch not in found or not found[batch].has_files:
            hashes = reader.tensor_hashes(checkpoint.uuid)
            found[batch] = Point(batch, checkpoint.uuid, has_files, hashes)
    return [found[batch] for batch in sorted(found)]


def hashes_of(points: list[Point]) -> dict[int, TensorHashes]:
    """The hashes of checkpoints, by batch."""
    return {point.batch: point.hashes for point in points if point.hashes is not None}


def rows_of(reader: Reader, trial: Trial, first: int, last: int) -> dict[tuple[str, int], Row]:
    """The rows that a trial reported in a span, by group and batch."""
    return {
        (group, report.steps_completed): Row(report.metrics, report.batch_metrics)
        for group in ("training", "validation")
        for report in reader.metrics.reports(trial.id, group)
        if first <= report.steps_completed <= last
    }


def facts_of(
    reader: Reader, home: Home, trial: Trial, experiment: Experiment, points: list[Point]
) -> Facts:
    """What is known of a trial on paper."""
    config = masked({k: v for k, v in experiment.config.items() if k not in _NOT_OF_TRAINING})
    environments = environments_of(reader, trial.id)
    environment: dict[str, Any] = dict(environments[-1].environment) if environments else {}
    imported = environment.get("packages") or {}
    for name in _BESIDES:
        environment.pop(name, None)
    configuration = {
        "seed": trial.seed,
        **flat({"hyperparameters": trial.hparams}),
        **flat({"config": {k: v for k, v in config.items() if k != "hyperparameters"}}),
    }
    return {
        "configuration": configuration,
        "code": _code(home, experiment),
        "packages": _packages(home, experiment) | imported,
        "environment": flat(environment),
        "data": fingerprints(points),
    }


def _packages(home: Home, experiment: Experiment) -> dict[str, str]:
    try:
        packages = load_environment(home.experiment(experiment.id)).packages
    except (OSError, ValueError):
        return {}
    return dict(package.partition("==")[::2] for package in packages)


def _code(home: Home, experiment: Experiment) -> dict[str, str]:
    if experiment.snapshot_id is None:
        return {}
    tree: Path = load_snapshot(home.snapshots, experiment.snapshot_id).tree
    files = sorted(path for path in tree.rglob("*") if path.is_file())
    return {
        path.relative_to(tree).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in files
    }
