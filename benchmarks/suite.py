"""What is compared: workloads, sizes, goals. A comparison's numbers are one list per contender."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterable
from typing import Any

from benchmarks.job import Job

OURS = ("ours", "ours, bare")
_PEERS = {"Lightning": "lightning", "Accelerate": "accelerate", "ignite": "ignite"}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Contenders that train the same job in turns; `goals` are upper limits of their ratios.

    `units` says how many things of the title's kind one training batch stands for. Processes are
    started `launches` times: where in memory things happen to lie is worth a percent or two.
    """

    name: str
    title: str
    job: Job
    goals: dict[str, float] = dataclasses.field(default_factory=dict)
    units: int = 1
    only_defaults: bool = False
    launches: int = 1


@dataclasses.dataclass(frozen=True)
class Growth:
    """Our time over the plain loop, as one size of the job grows."""

    name: str
    title: str
    field: str
    points: tuple[int, ...]
    job: Job
    plain_grows_too: bool = False


COMPARISONS = (
    Comparison(
        "tiny",
        "tiny MLP, batch 8",
        Job("tiny", rounds=20),
        {"ours": 1.05, "ours, bare": 1.02},
        launches=3,
    ),
    Comparison("mid", "mid MLP, batch 64", Job("mid", lead=5, turn=50, rounds=8)),
    Comparison(
        "conv",
        "conv net on digits",
        Job("conv", warmup=20, lead=3, turn=30, rounds=10),
        dict.fromkeys(OURS, 1.01),
    ),
    Comparison(
        "transformer",
        "small transformer",
        Job("transformer", warmup=20, lead=3, turn=30, rounds=8),
        dict.fromkeys(OURS, 1.01),
    ),
    Comparison(
        "tensors",
        "TensorDataset, batch 64",
        Job("tensors", rounds=15),
        dict.fromkeys(OURS, 0.80),
    ),
    Comparison(
        "validation",
        "validation, per batch",
        Job("tiny", warmup=2, lead=1, turn=2, rounds=14, validation_batches=200),
        dict.fromkeys(OURS, 1.05),
        units=200,
    ),
    Comparison("aggregation", "aggregation of 4 batches", Job("tiny", rounds=20, aggregation=4)),
    Comparison("ranks", "two ranks", Job("tiny", rounds=12, ranks=2), dict.fromkeys(OURS, 1.05)),
    Comparison(
        "terminal",
        "tiny MLP in a terminal",
        Job("tiny", rounds=30, in_terminal=True),
        only_defaults=True,
    ),
)

# A turn begins just before its save, and lasts until what goes on in the background is done.
STALL = Comparison(
    "stall",
    "checkpoint of 100 MB, stall",
    Job("large", warmup=1490, lead=0, turn=1500, rounds=6, save_every=1500),
    {"ours": 0.35},
    only_defaults=True,
)
RESUME = Comparison(
    "resume",
    "resume, start to first batch",
    Job("large", warmup=4, lead=0, turn=1, rounds=1, save_every=4),
    only_defaults=True,
)
START_ROUNDS = 2
IMPORT_ROUNDS = 2

GROWTH = (
    Growth("metrics", "metrics per batch", "metrics", (1, 10, 100), Job("tiny", rounds=20), True),
    Growth("callbacks", "callbacks", "callbacks", (0, 5, 20), Job("tiny", rounds=20)),
    Growth("models", "wrapped models", "models", (1, 4, 16), Job("tiny", rounds=20)),
    Growth(
        "reports",
        "batches per report",
        "report_every",
        (1, 10, 100, 1000, 10_000),
        Job("tiny", turn=10_000, rounds=2),
    ),
)

QUICK = ("tiny", "tensors", "validation", "imports", "memory")


def contenders(job: Job, peers: Iterable[str], only_defaults: bool) -> dict[str, tuple[str, Job]]:
    """Return the module and the job of each contender, the plain loop first."""
    found = {"plain": ("benchmarks.contenders.plain", job)}
    for name, module in {"ours": "ours", **{peer: _PEERS[peer] for peer in peers}}.items():
        path = f"benchmarks.contenders.{module}"
        found[name] = (path, job)
        if not only_defaults:
            found[f"{name}, bare"] = (path, dataclasses.replace(job, is_lean=True))
    return found


def installed_peers() -> list[str]:
    """Return the names of the peers that can be imported."""
    return [name for name, module in _PEERS.items() if importlib.util.find_spec(module)]


def import_lines(peers: Iterable[str]) -> dict[str, str]:
    """Return what each contender's scripts import, after torch."""
    lines = {
        "Lightning": "from lightning import LightningModule, Trainer",
        "Accelerate": "from accelerate import Accelerator",
        "ignite": "from ignite.engine import Engine",
    }
    return {"ours": "import determined.pytorch", **{peer: lines[peer] for peer in peers}}


def scaled(job: Job, rounds: int | None) -> Job:
    """Return the job with another number of rounds, if one is given."""
    return job if rounds is None else dataclasses.replace(job, rounds=rounds)


def with_size(job: Job, field: str, value: Any) -> Job:
    return dataclasses.replace(job, **{field: value})
