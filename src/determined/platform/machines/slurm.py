"""A Slurm cluster: its settings, and its jobs as the supervisor saw them last.

    cluster:
      type: slurm
      partition: gpu          # else Slurm's default; resources.resource_pool goes before it
      account: lab
      qos: normal
      time_limit: "12:00:00"  # of a job; a trial that needs longer continues in another one
      shared_dir: /scratch/me/det            # a folder that nodes see; else DET_HOME must be one
      shared_dir_on_nodes: /mnt/scratch/det  # if they see it under another path
      slot_type: gpu          # or cpu; without it GPUs where the cluster has any
      slots_per_node: 4       # else those of the largest node of the partition
      max_jobs: 100           # at most so many of ours, pending ones included
      sbatch_args: [--mem-per-cpu=4G]
      modules: [cuda/12.4]    # loaded before a trial
      prolog: source /site/setup.sh          # a line of shell before it

Slurm decides what runs where: one slot here stands for one job. `slurm.json` of the home holds what
the supervisor saw; clients read it, so they need not contact the cluster.
"""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from determined._os.json_file import write_json
from determined.errors import DeterminedError
from determined.gpu import CUDA
from determined.platform.machines.slots import CPU, Machine, Slot

TABLE_FILE = "slurm.json"
SCHEME = "slurm"
DEFAULT_MAX_JOBS = 100
_MOST_JOBS = 10_000
_VERSION = 1
# As on other clusters: this machine's slots count from 0.
_FIRST_SLOT = 1000
_TIME = re.compile(r"\d+|\d+:\d+|\d+:\d+:\d+|\d+-\d+|\d+-\d+:\d+|\d+-\d+:\d+:\d+")
_NAME = re.compile(r"[\w.,+-]+")
_SLOT_TYPES = ("gpu", "cpu")
_KEYS = (
    *("type", "partition", "account", "qos", "time_limit", "shared_dir", "shared_dir_on_nodes"),
    *("slot_type", "slots_per_node", "max_jobs", "sbatch_args", "modules", "prolog"),
)


@dataclass(frozen=True)
class SlurmSettings:
    """How jobs are submitted; the keys are explained above.

    `way_back` is a sentence on how to use this machine instead.
    """

    partition: str = ""
    account: str = ""
    qos: str = ""
    time_limit: str = ""
    shared_dir: str = ""
    shared_dir_on_nodes: str = ""
    slot_type: str | None = None
    slots_per_node: int | None = None
    max_jobs: int = DEFAULT_MAX_JOBS
    sbatch_args: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    prolog: str = ""
    way_back: str = field(default="unset DET_CLUSTER", compare=False)

    @property
    def address(self) -> str:
        return f"{SCHEME}:{self.partition}" if self.partition else SCHEME


def from_name(name: str, written: SlurmSettings | None) -> SlurmSettings:
    """The settings for `slurm` or `slurm:partition`, completed by those of the file."""
    _, _, partition = name.partition(":")
    if name not in (SCHEME, f"{SCHEME}:{partition}") or (
        ":" in name and not _NAME.fullmatch(partition)
    ):
        raise DeterminedError(f"DET_CLUSTER: expected slurm or slurm:PARTITION, got {name!r}.")
    settings = written or SlurmSettings()
    return replace(settings, partition=partition) if partition else settings


def from_section(
    section: Mapping[str, Any], refuse: Callable[[str | None, str, Any], DeterminedError]
) -> SlurmSettings:
    """The settings of a `cluster` section; `refuse` makes the error for a key."""
    from determined.config.sbatch_options import refusal

    for key in section:
        if key not in _KEYS:
            raise refuse(key, f"one of the keys {', '.join(_KEYS)}", key)
    given = {key: value for key, value in section.items() if key != "type" and value is not None}
    for key in ("partition", "account", "qos"):
        if key in given and not (isinstance(given[key], str) and _NAME.fullmatch(given[key])):
            raise refuse(key, "a name", given[key])
    for key in ("slots_per_node", "max_jobs"):
        value = given.get(key, 1)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST_JOBS:
            raise refuse(key, f"a whole number from 1 to {_MOST_JOBS}", value)
    if "time_limit" in given:
        limit = given["time_limit"]
        is_minutes = isinstance(limit, int) and not isinstance(limit, bool) and limit > 0
        if not is_minutes and not (isinstance(limit, str) and _TIME.fullmatch(limit)):
            raise refuse("time_limit", 'minutes, or text such as "12:00:00" or "2-00:00:00"', limit)
        given["time_limit"] = str(limit)
    for key in ("shared_dir", "shared_dir_on_nodes"):
        if key in given and not (isinstance(given[key], str) and given[key].startswith("/")):
            raise refuse(key, "an absolute path", given[key])
    if "shared_dir_on_nodes" in given and "shared_dir" not in given:
        raise refuse("shared_dir_on_nodes", "shared_dir beside it", given["shared_dir_on_nodes"])
    if given.get("slot_type") not in (None, *_SLOT_TYPES):
        raise refuse("slot_type", "gpu or cpu", given["slot_type"])
    for key in ("sbatch_args", "modules"):
        words = given.get(key, [])
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise refuse(key, "a list of texts", words)
        given[key] = tuple(words)
    for word in given["sbatch_args"]:
        if why := refusal(word):
            raise refuse("sbatch_args", f"options that you may give ({why})", word)
    for word in given["modules"]:
        if not re.fullmatch(r"[\w./+@:-]+", word):
            raise refuse("modules", "names of modules", word)
    if not isinstance(given.get("prolog", ""), str):
        raise refuse("prolog", "lines of shell", given["prolog"])
    return SlurmSettings(**given)


@dataclass(frozen=True)
class Partition:
    """A partition, and the largest of its nodes."""

    name: str
    is_default: bool = False
    nodes: int = 0
    idle: int = 0
    down: int = 0
    cpus: int = 1
    gpus: int = 0

    @property
    def size(self) -> str:
        """What its largest node has, in words."""
        return f"{self.gpus} GPUs" if self.gpus else f"{self.cpus} CPUs"


@dataclass(frozen=True)
class Job:
    """A job of this home, as `squeue` listed it. `starts` is Slurm's estimate, "" without one."""

    id: str
    allocation_id: str
    state: str
    reason: str = ""
    nodes: str = ""
    partition: str = ""
    starts: str = ""


@dataclass(frozen=True)
class SlurmTable:
    """The cluster as it was seen last."""

    address: str
    home: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    """Distinguishes homes that share a cluster: part of the names of jobs."""
    partitions: tuple[Partition, ...] = ()
    jobs: tuple[Job, ...] = ()
    slot_type: str | None = None
    max_jobs: int = DEFAULT_MAX_JOBS
    trouble: str = ""
    """Why the cluster does not answer, if so: nothing is started then."""

    @property
    def has_gpus(self) -> bool:
        if self.slot_type is not None:
            return self.slot_type == "gpu"
        return any(partition.gpus for partition in self.partitions)

    def partition(self, name: str) -> Partition | None:
        """The partition of a name; the default one for "", None for one that is not there."""
        for partition in self.partitions:
            if partition.name == name or (not name and partition.is_default):
                return partition
        return None

    @property
    def machine(self) -> Machine:
        """What there is to schedule on: as many jobs as may be submitted."""
        if self.trouble:
            return Machine((), (self.trouble,), is_cluster=True, is_queued=True)
        slots = tuple(Slot(_FIRST_SLOT + number) for number in range(self.max_jobs))
        kind = CUDA if self.has_gpus else CPU
        return Machine(slots, is_cluster=True, is_queued=True, kind=kind)

    def save(self, path: Path) -> None:
        write_json(path, {"version": _VERSION, **asdict(self)}, durable=True)


def load_table(path: Path) -> SlurmTable | None:
    """The table that was saved last, None if there is none."""
    with contextlib.suppress(FileNotFoundError):
        content = json.loads(path.read_bytes())
        if content.pop("version") == _VERSION:
            partitions = tuple(Partition(**each) for each in content.pop("partitions"))
            jobs = tuple(Job(**each) for each in content.pop("jobs"))
            return SlurmTable(**content, partitions=partitions, jobs=jobs)
    return None


_REASONS = {
    "Priority": "jobs of higher priority go first",
    "Resources": "waits for nodes to become free",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": "the job that it depends on has failed",
    "BeginTime": "its start time has not come",
    "JobHeldUser": "held by its user: `scontrol release` lets it go",
    "JobHeldAdmin": "held by an administrator",
    "Licenses": "waits for a license",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "PartitionNodeLimit": "it needs more nodes than its partition has, or some are down",
    "PartitionTimeLimit": "its time limit is above that of the partition",
    "ReqNodeNotAvail": "a node that it needs is down, drained or reserved",
    "Reservation": "waits for its reservation",
    "NodeDown": "a node that it needs is down",
    "BadConstraints": "no node can satisfy what it asks for",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its QOS is not valid",
    "NonZeroExitCode": "it failed",
}
_LIMITS = (("QOS", "a limit of its QOS"), ("Assoc", "a limit of its account"))


def plain_reason(job: Job) -> str:
    """Why a job is pending, in words; Slurm's own word stands behind them."""
    if job.state != "PENDING":
        return job.state.lower().replace("_", " ")
    # As in "ReqNodeNotAvail, UnavailableNodes:n1".
    word = job.reason.partition(",")[0].strip("() ")
    known = _REASONS.get(word)
    if known is None:
        known = next(
            (f"{text} is reached" for start, text in _LIMITS if word.startswith(start)), ""
        )
    shown = {"": "waits in Slurm's queue", "None": "waits for Slurm to look at it"}
    text = f"{known} ({job.reason})" if known else shown.get(word, f"Slurm says {job.reason}")
    return f"{text}; Slurm expects it to start at {job.starts}" if job.starts else text
