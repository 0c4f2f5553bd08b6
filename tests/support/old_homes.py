"""Homes as earlier schemas left them: small files that every later version must open and read.

`python -m tests.support.old_homes` writes the one of the newest schema, once for each: a released
file is never written again. What it held is beside it as JSON.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from determined.platform.supervisor import presence
from determined.store import CheckpointFilter, Reader, TrialFilter
from determined.store._schema import MIGRATIONS
from tests.support.lab import Lab

FOLDER = Path(__file__).parents[1] / "store" / "old"

_SCRIPT = """
import determined as det
with det.core.init() as ctx:
    lr = det.get_cluster_info().trial.hparams["lr"]
    for step in range(1, 9):
        ctx.train.report_training_metrics(step, {"loss": lr / step, "note": "text"})
        if step % 4 == 0:
            ctx.train.report_validation_metrics(step, {"loss": lr / step, "odd": float("nan")})
            with ctx.checkpoint.store_path({"steps_completed": step, "kept": True}) as (path, _):
                (path / "weights").write_bytes(b"12345")
    ctx.train.report_metrics("test", 8, {"f1": 0.5})
    ctx.train.set_metadata({"depth": {"layers": 3}})
    assert lr < 0.3, "too large"
"""


def versions() -> list[int]:
    """The schemas that there is a file of."""
    return sorted(int(path.name.split("-")[1].split(".")[0]) for path in FOLDER.glob("*.db.gz"))


def unpack(version: int, home: Path) -> None:
    """Put the store of a schema into a home."""
    home.mkdir(mode=0o700)
    target = home / "store.db"
    target.write_bytes(gzip.decompress((FOLDER / f"schema-{version}.db.gz").read_bytes()))
    target.chmod(0o600)


def expected(version: int, home: Path) -> dict[str, Any]:
    """What the store of a schema held, with paths as they are once its home is `home`."""
    text = (FOLDER / f"schema-{version}.json").read_text()
    root = Path(json.loads(text)["runs"][0]["folder"]).parents[4]
    content: dict[str, Any] = json.loads(text.replace(str(root), str(home)))
    return content


def reading(home: Path) -> dict[str, Any]:
    """All that readers see of a store, as JSON would give it back."""
    reader = Reader(home)
    trials = reader.trials(TrialFilter(experiment_id=1)).rows
    groups = ("training", "validation", "test")
    content = {
        "experiments": [asdict(row) for row in reader.experiments().rows],
        "trials": [asdict(trial) for trial in trials],
        "runs": [asdict(run) for trial in trials for run in reader.runs(trial.id)],
        "checkpoints": [asdict(row) for row in reader.checkpoints(CheckpointFilter(1)).rows],
        "metrics": {
            f"{trial.id} {group}": [asdict(row) for row in reader.metrics.reports(trial.id, group)]
            for trial in trials
            for group in groups
        },
        "summaries": [
            {
                group: {name: asdict(summary) for name, summary in summaries.items()}
                for group, summaries in reader.metrics.summaries(trial.id).items()
            }
            for trial in trials
        ],
        "events": [asdict(event) for event in reader.events(experiment_id=1)],
        "projects": [asdict(project) for project in reader.registry.projects()],
    }
    reader.close()
    return dict(json.loads(json.dumps(content, default=str)))


def _write(folder: Path) -> None:
    lab = Lab(folder)
    lab.create(
        _SCRIPT,
        hyperparameters={"lr": {"type": "categorical", "vals": [0.1, 0.2, 0.4]}},
        searcher={"name": "grid", "metric": "loss"},
        labels=["old"],
        workspace="Research",
        project="Vision",
    )
    lab.wait(1)
    lab.service.label(1, "kept")
    lab.until(lambda: not lab.service.reader.has_chores())
    presence.stop(lab.home)
    lab.close()
    connection = sqlite3.connect(lab.home.path / "store.db")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("VACUUM")
    connection.close()
    FOLDER.mkdir(exist_ok=True)
    name = f"schema-{len(MIGRATIONS)}"
    packed = gzip.compress((lab.home.path / "store.db").read_bytes(), 9, mtime=0)
    (FOLDER / f"{name}.db.gz").write_bytes(packed)
    text = json.dumps(reading(lab.home.path), indent=1, sort_keys=True)
    (FOLDER / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    if len(MIGRATIONS) in versions():
        sys.exit(f"There is a file of schema {len(MIGRATIONS)} already; it stays as it is.")
    made = Path(tempfile.mkdtemp(prefix="old-home-"))
    try:
        _write(made)
    finally:
        shutil.rmtree(made)
