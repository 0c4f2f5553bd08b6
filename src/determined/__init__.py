"""Train PyTorch models. Light to import: `determined.pytorch` brings torch, this does not.

`core` holds the services of a training process, `errors` what can go wrong.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from determined._version import __version__

if TYPE_CHECKING:
    from determined import core, errors, util
    from determined import lightning as lightning
    from determined import load as load
    from determined import tensorboard as tensorboard
    from determined import transformers as transformers
    from determined._code.import_from_path import import_from_path
    from determined._info import (
        ClusterInfo,
        RendezvousInfo,
        ResourcesInfo,
        TrialInfo,
        get_cluster_info,
    )
    from determined._legacy.distributed_backend import _DistributedBackend
    from determined._legacy.experiment_config import ExperimentConfig
    from determined._legacy.local_execution import (
        _local_execution_manager,
        _make_local_execution_env,
    )
    from determined._legacy.trial_context import (
        EnvContext,
        LegacyTrial,
        TrialContext,
        TrialController,
    )
    from determined.common._logging import LOG_FORMAT
    from determined.errors import InvalidHP

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

# Imported when first asked for: `det` and the processes that it starts come through here and need
# next to nothing of it.
_HOMES = {
    "ClusterInfo": "_info",
    "EnvContext": "_legacy.trial_context",
    "ExperimentConfig": "_legacy.experiment_config",
    "InvalidHP": "errors",
    "LOG_FORMAT": "common._logging",
    "LegacyTrial": "_legacy.trial_context",
    "RendezvousInfo": "_info",
    "ResourcesInfo": "_info",
    "TrialContext": "_legacy.trial_context",
    "TrialController": "_legacy.trial_context",
    "TrialInfo": "_info",
    "_DistributedBackend": "_legacy.distributed_backend",
    "_local_execution_manager": "_legacy.local_execution",
    "_make_local_execution_env": "_legacy.local_execution",
    "get_cluster_info": "_info",
    "import_from_path": "_code.import_from_path",
}
_MODULES = ("core", "errors", "lightning", "load", "tensorboard", "transformers", "util")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"determined.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'determined' has no attribute {name!r}")
    value = getattr(import_module(f"determined.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
