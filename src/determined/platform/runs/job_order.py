"""What a run asks of a batch system: `job.json` of its folder, written before its start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from determined._os.json_file import write_json
from determined.platform.runs.folder import RunFolder

_FILE = "job.json"
_VERSION = 1


class JobOrder(NamedTuple):
    """The slots of a run and how it is submitted.

    `code` is the digest of its snapshot below `snapshots`. `expects` holds the versions of packages
    that the experiment was created with, `storage` is its section `checkpoint_storage`.
    """

    slots: int
    pool: str = ""
    priority: int = 0
    sbatch_args: tuple[str, ...] = ()
    slots_per_node: int | None = None
    gpu_type: str | None = None
    code: str | None = None
    snapshots: str = ""
    interpreter: str = ""
    expects: Mapping[str, str] = {}
    storage: Mapping[str, Any] = {}

    def save(self, run: RunFolder) -> None:
        write_json(run.path / _FILE, {"version": _VERSION, **self._asdict()})


def load_order(run: RunFolder) -> JobOrder | None:
    """What a run asks for; None for one that is no job."""
    path = run.path / _FILE
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    if content.pop("version") != _VERSION:
        raise ValueError(f"{path} was written by another version of determined-pytorch.")
    return JobOrder(**{**content, "sbatch_args": tuple(content["sbatch_args"])})
