"""The files of a checkpoint, and the keys in them: every name is here, once.

`state_dict.pth`, `trial_state.pkl` and `load_data.json` have the layout of the original, as has
`code/`. Ours beside them: `ranks/rank_<n>.pth` (random states, data position, open gradients and
open report of each rank), `shards/rank_<n>.pth` of models that are split, `frozen/<n>.pth` with
weights that several checkpoints share, `hashes.json`, `run.json` and `manifest.json`.
"""

from __future__ import annotations

import re
from pathlib import Path

MANIFEST = "manifest.json"
METADATA = "metadata.json"
LOAD_DATA = "load_data.json"
RUN = "run.json"
STATE = "state_dict.pth"
COUNTERS = "trial_state.pkl"
HASHES = "hashes.json"
CODE = "code"

# Where the releases of the original put the tensors and the counters, newest first.
STATE_FILES = (STATE, "determined/state_dict.pth", "pedl/state_dict.pth", "checkpoint.pt")
COUNTER_FILES = (COUNTERS, "workload_sequencer.pkl")
MARKERS = (METADATA, LOAD_DATA, *STATE_FILES, *COUNTER_FILES)
"""Files by which a checkpoint without a manifest, of another release, is recognised."""

# In `state_dict.pth`; the second name is from old releases, which had a single one.
MODELS, OLD_MODEL = "models_state_dict", "model_state_dict"
OPTIMIZERS, OLD_OPTIMIZER = "optimizers_state_dict", "optimizer_state_dict"
SCHEDULERS, OLD_SCHEDULER = "lr_schedulers_state_dict", "lr_scheduler"
CALLBACKS = "callbacks"
MODULES = "modules"  # what differs from the models as built, beside their state
SCALER = "scaler_state_dict"
APEX = "amp_state"

# There, and in the file of each rank.
RANDOM = "rng_state"

# In the file of a rank.
DATA = "data"
GRADIENTS = "gradients"
COUNTS = "counts"  # what `context.count` has counted
WEIGHTS = "loss_weights"  # what the losses of an open accumulation window are sums over
BUFFERS = "buffers"
SEGMENT = "segment"
OWN = "own"  # what else it has otherwise than the chief, by its place in `state_dict.pth`
HOOKS = "communication_hooks"
ENVIRONMENT = "environment"  # until it is gathered into `run.json`


def is_storage_id(name: object) -> bool:
    """Whether `name` is plain text, safe to join to a folder or a URL."""
    return (
        isinstance(name, str)
        and name.isprintable()
        and 0 < len(name.encode()) <= 200
        and not name.startswith(".")
        and not any(character in name for character in "/\\?#*[]:")
    )


def rank_file(rank: int) -> str:
    """Return the file with what only this rank knows."""
    return f"ranks/rank_{rank}.pth"


def shard_file(rank: int) -> str:
    """Return the file with this rank's rows of split tensors."""
    return f"shards/rank_{rank}.pth"


def frozen_file(number: int) -> str:
    """Return a file with weights that are not trained."""
    return f"frozen/{number}.pth"


def is_frozen_file(name: object) -> bool:
    """Whether `name` is one that `frozen_file` returns."""
    return (
        isinstance(name, str) and re.fullmatch(r"frozen/(0|[1-9][0-9]{0,8})\.pth", name) is not None
    )


def export_file(index: int) -> str:
    """Return the file with the weights of a model, for other programs."""
    return f"model_{index}.safetensors"


def count_rank_files(checkpoint: Path) -> int:
    """Return how many ranks the run had that saved a checkpoint, 0 if it does not say."""
    return len(list((checkpoint / "ranks").glob("rank_*.pth")))


def shard_files(checkpoint: Path) -> list[Path]:
    """Return the files with rows of split tensors that a checkpoint has."""
    return sorted((checkpoint / "shards").glob("rank_*.pth"))
