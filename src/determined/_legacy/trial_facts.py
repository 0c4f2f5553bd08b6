"""What every trial context answers in the same way: hyperparameters, data settings, stopping."""

from __future__ import annotations

import abc
import logging
from typing import Any

logger = logging.getLogger("determined.pytorch")


class TrialFacts(abc.ABC):
    """Getters that are derived from two others, and the request to stop."""

    _stop_requested = False

    @abc.abstractmethod
    def get_hparams(self) -> dict[str, Any]:
        """All hyperparameters, sampled."""

    @abc.abstractmethod
    def get_experiment_config(self) -> dict[str, Any]:
        """The experiment configuration."""

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
        """Request a stop, with a checkpoint, at the next boundary or within 100 batches.

        One rank asking is enough.
        """
        assert isinstance(stop_requested, bool), (
            f"`stop_requested` must be True or False, got {stop_requested!r}."
        )
        if stop_requested:
            logger.info("The trial requested a stop; training ends at the next boundary.")
        self._stop_requested = stop_requested
