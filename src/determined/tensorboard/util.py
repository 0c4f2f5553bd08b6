"""Paths of TensorBoard files."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# What profilers of torch and TensorFlow append to a host name: torch puts a time stamp in front.
_PROFILER_ENDING = re.compile(
    r"""(\.\d+)?\.pt\.trace\.json(\.gz)?$
    | \.trace\.json\.gz$
    | \.xplane\.pb$
    | \.(input_pipeline|overview_page|tensorflow_stats|kernel_stats|op_profile)\.(pb|json)$
    | \.memory_profile\.json\.gz$
    """,
    re.VERBOSE,
)


def get_base_path(checkpoint_config: Mapping[str, Any]) -> Path:
    """Return this process's own directory, in `base_path` of the config or the temporary one."""
    base = checkpoint_config.get("base_path") or tempfile.gettempdir()
    allocation = os.environ.get("DET_ALLOCATION_ID", "")
    rank = os.environ.get("RANK") or os.environ.get("HOROVOD_RANK") or "0"
    return Path(base) / f"tensorboard-{allocation}-{rank}"


def get_rank_aware_path(path: Path, rank: int) -> Path:
    """Put `#<rank>` into the name of a profiler file: ranks of one host use the same names."""
    ending = _PROFILER_ENDING.search(path.name)
    if ending is None:
        return path
    return path.with_name(f"{path.name[: ending.start()]}#{rank}{ending.group()}")
