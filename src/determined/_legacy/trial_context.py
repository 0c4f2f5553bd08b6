"""Names that older trial code and its tools import from `determined`: thin, and free of torch."""

from __future__ import annotations

import abc
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined._legacy.experiment_config import ExperimentConfig
from determined._legacy.hparams import sample_hparams
from determined.gpu import get_gpu_uuids

if TYPE_CHECKING:
    from determined.core._context import Context
    from determined.core._distributed import DistributedContext

logger = logging.getLogger("determined.pytorch")


@dataclass(frozen=True)
class EnvContext:
    """What a trial was started with."""

    experiment_config: ExperimentConfig
    hparams: dict[str, Any]
    trial_seed: int
    container_gpus: list[str] = field(default_factory=list)
    experiment_id: int = 0
    trial_id: int = 0
    steps_completed: int = 0
    latest_checkpoint: str | None = None
    managed_training: bool = False
    test_mode: bool = False
    on_cluster: bool = False
    debug: bool = False

    @property
    def use_gpu(self) -> bool:
        """Whether the trial has a GPU."""
        return bool(self.container_gpus)


class TrialContext:
    """Base of trial contexts: read access to what the trial was started with."""

    def __init__(self, core_context: Context, env: EnvContext) -> None:
        self._core = core_context
        self.env = env
        self.distributed: DistributedContext = core_context.distributed
        self._stop_requested = False

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> TrialContext:
        """Make a context directly, to try trial code without training.

        Hyperparameter ranges are sampled, and at most one GPU is used.
        """
        from determined.core._context import _dummy_init

        return cls(_dummy_init(), build_local_env(config, limit_gpus=1))

    def get_experiment_config(self) -> dict[str, Any]:
        """The experiment configuration."""
        return self.env.experiment_config

    def get_experiment_id(self) -> int:
        """The experiment's number; 0 outside the platform."""
        return self.env.experiment_id

    def get_trial_id(self) -> int:
        """The trial's number; 0 outside the platform."""
        return self.env.trial_id

    def get_trial_seed(self) -> int:
        """The seed of this trial."""
        return self.env.trial_seed

    def get_initial_batch(self) -> int:
        """How many batches were trained before this process."""
        return self.env.steps_completed

    def get_hparams(self) -> dict[str, Any]:
        """All hyperparameters, sampled."""
        return self.env.hparams

    def get_hparam(self, name: str) -> Any:
        """One hyperparameter; raises ValueError if there is none with this name."""
        hparams = self.get_hparams()
        if name not in hparams:
            raise ValueError(
                f"There is no hyperparameter {name!r}; the hyperparameters are "
                f"{sorted(map(str, hparams))}."
            )
        if name == "global_batch_size":
            logger.warning(
                "Use context.get_per_slot_batch_size() or get_global_batch_size() rather than the "
                "hyperparameter global_batch_size: they account for the number of slots."
            )
        return hparams[name]

    def get_data_config(self) -> dict[str, Any]:
        """The free-form `data` section of the experiment configuration."""
        return self.get_experiment_config().get("data") or {}

    def get_stop_requested(self) -> bool:
        """Whether `set_stop_requested(True)` was called on this rank."""
        return self._stop_requested

    def set_stop_requested(self, stop_requested: bool) -> None:
        """Note a request to stop, for trial code that is tried without training."""
        assert isinstance(stop_requested, bool), (
            f"`stop_requested` must be True or False, got {stop_requested!r}."
        )
        self._stop_requested = stop_requested

    def get_tensorboard_path(self) -> Path:
        """The directory of this rank's event files."""
        return self._core.train.get_tensorboard_path()


class LegacyTrial(abc.ABC):
    """Base of every trial class."""

    trial_controller_class: type[TrialController] | None = None
    trial_context_class: type[Any] | None = None

    @abc.abstractmethod
    def __init__(self, context: Any) -> None:
        """Build what training needs; subclasses need not call this one."""


class TrialController(abc.ABC):
    """Runs a trial from start to end."""

    @abc.abstractmethod
    def run(self) -> None:
        """Train until the trial is done."""


def build_local_env(
    config: dict[str, Any] | None,
    *,
    hparams: dict[str, Any] | None = None,
    managed_training: bool = False,
    test_mode: bool = False,
    limit_gpus: int | None = None,
) -> EnvContext:
    """Describe a trial that runs on this machine, outside any platform."""
    experiment_config = ExperimentConfig(config or {})
    seed = experiment_config.experiment_seed()
    if hparams is None:
        hparams = sample_hparams(experiment_config.get("hyperparameters") or {}, seed)
    return EnvContext(
        experiment_config=experiment_config,
        hparams=hparams,
        trial_seed=seed,
        container_gpus=get_gpu_uuids()[:limit_gpus],
        managed_training=managed_training,
        test_mode=test_mode,
        debug=experiment_config.debug_enabled(),
    )
