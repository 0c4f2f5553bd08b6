"""What fills the gaps of a configuration that is given to `det`: this moment, this machine."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from determined.config import Completion, random_name


def completion() -> Completion:
    """Draw a name, take the time, and look where checkpoints go by default."""
    return Completion(
        created=int(time.time()),
        name=random_name(random.SystemRandom()),
        checkpoint_storage={"type": "shared_fs", "host_path": str(_checkpoints())},
    )


def _checkpoints() -> Path:
    if storage := os.environ.get("DET_STORAGE"):
        return Path(storage).absolute()
    if home := os.environ.get("DET_HOME"):
        return Path(home).absolute() / "checkpoints"
    import platformdirs

    return Path(platformdirs.user_data_dir("determined")) / "checkpoints"
