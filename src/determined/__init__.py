"""Train PyTorch models. Light to import: `determined.pytorch` brings torch, this does not.

`core` holds the services of a training process, `errors` what can go wrong.
"""

import importlib
from typing import TYPE_CHECKING, Any

from determined import core, errors, util
from determined._distributed_backend import _DistributedBackend
from determined._experiment_config import ExperimentConfig
from determined._import_from_path import import_from_path
from determined._info import (
    ClusterInfo,
    RendezvousInfo,
    ResourcesInfo,
    TrialInfo,
    get_cluster_info,
)
from determined._local_execution import _local_execution_manager, _make_local_execution_env
from determined._log_format import LOG_FORMAT
from determined._trial_context import EnvContext, LegacyTrial, TrialContext, TrialController
from determined._version import __version__
from determined.errors import InvalidHP

if TYPE_CHECKING:
    from determined import load as load
    from determined import tensorboard as tensorboard

__all__ = [
    "LOG_FORMAT",
    "ClusterInfo",
    "EnvContext",
    "ExperimentConfig",
    "InvalidHP",
    "LegacyTrial",
    "RendezvousInfo",
    "ResourcesInfo",
    "TrialContext",
    "TrialController",
    "TrialInfo",
    "_DistributedBackend",
    "__version__",
    "_local_execution_manager",
    "_make_local_execution_env",
    "core",
    "errors",
    "get_cluster_info",
    "import_from_path",
    "util",
]

_MODULES = ("load", "tensorboard")


def __getattr__(name: str) -> Any:
    """Import a module when it is first asked for: `det.tensorboard` after `import determined`."""
    if name in _MODULES:
        return importlib.import_module(f"determined.{name}")
    raise AttributeError(f"module 'determined' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
