"""What fills in missing values of a submitted configuration: the time, and this machine."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from determined.config import Completion, random_name
from determined.platform.homes.home import Home

# A cluster may grow: the searcher's own default.
_ON_A_CLUSTER = 16


def completion(
    template: Mapping[str, Any] | str | None = None, home: Home | None = None
) -> Completion:
    """Return a random name, the time, and where checkpoints go by default."""
    return Completion(
        created=int(time.time()),
        name=random_name(random.SystemRandom()),
        template=template,
        checkpoint_storage={"type": "shared_fs", "host_path": str(_checkpoints(home))},
        count_slots=lambda: count_slots(home),
    )


def count_slots(home: Home | None = None) -> int:
    """Return how many slots there are now; at least as many as a search uses on a cluster."""
    from determined.platform.machines.machine import find_machine

    machine = find_machine(home or Home.find())
    return max(len(machine.slots), _ON_A_CLUSTER) if machine.is_cluster else len(machine.slots)


def _checkpoints(home: Home | None) -> Path:
    if storage := os.environ.get("DET_STORAGE"):
        return Path(storage).absolute()
    return (home or Home.find()).checkpoints
