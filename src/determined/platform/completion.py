"""What fills the gaps of a configuration that is given to a door: this moment, this machine."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from determined.config import Completion, random_name
from determined.platform.home import Home


def completion(template: str | None = None) -> Completion:
    """Draw a name, take the time, and look where checkpoints go by default."""
    return Completion(
        created=int(time.time()),
        name=random_name(random.SystemRandom()),
        template=template,
        checkpoint_storage={"type": "shared_fs", "host_path": str(_checkpoints())},
    )


def _checkpoints() -> Path:
    if storage := os.environ.get("DET_STORAGE"):
        return Path(storage).absolute()
    return Home.find().checkpoints
