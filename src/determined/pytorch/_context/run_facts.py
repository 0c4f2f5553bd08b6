"""What a trial can ask about its run: settings, identity, position."""

from __future__ import annotations

from typing import Any

from determined._legacy.trial_facts import TrialFacts
from determined.core import Context
from determined.errors import InternalException
from determined.pytorch._checks.arguments import check_kind
from determined.util import calculate_batch_sizes


class RunFacts(TrialFacts):
    """The getters of `PyTorchTrialContext`, and the few setters that belong to them."""

    def __init__(
        self,
        core_context: Context,
        trial_seed: int | None,
        hparams: dict[str, Any] | None,
        slots_per_trial: int,
        exp_conf: dict[str, Any] | None,
        steps_completed: int,
        enable_tensorboard_logging: bool,
    ) -> None:
        self._core = core_context
        self._trial_seed = trial_seed
        self._hparams = hparams
        self._exp_conf = exp_conf
        self._steps_completed = steps_completed
        self._enable_tensorboard_logging = enable_tensorboard_logging
        self._per_slot_batch_size: int | None = None
        self._global_batch_size: int | None = None
        if hparams and hparams.get("global_batch_size"):
            self._per_slot_batch_size, self._global_batch_size = calculate_batch_sizes(
                hparams, slots_per_trial, "PyTorchTrial"
            )
        self._epoch_len: int | None = None
        self._current_batch_idx: int | None = None

    # Settings.

    def get_global_batch_size(self) -> int:
        """Return the batch size over all slots, a multiple of the number of slots."""
        if self._global_batch_size is None:
            raise ValueError(
                "global_batch_size is a required hyperparameter of this method: pass "
                "pytorch.init(hparams={'global_batch_size': ...})."
            )
        return self._global_batch_size

    def get_per_slot_batch_size(self) -> int:
        """Return the batch size of one slot: what a data loader takes as `batch_size`."""
        self.get_global_batch_size()
        assert self._per_slot_batch_size is not None
        return self._per_slot_batch_size

    def get_hparams(self) -> dict[str, Any]:
        """Return the hyperparameters given to `pytorch.init`."""
        if self._hparams is None:
            raise ValueError("There are no hyperparameters: pass pytorch.init(hparams={...}).")
        return self._hparams

    def get_hparam(self, name: str) -> Any:
        """Return one hyperparameter."""
        check_kind("name", name, str, "a string", optional=False)
        return super().get_hparam(name)

    def get_experiment_config(self) -> dict[str, Any]:
        """Return the experiment configuration given to `pytorch.init`."""
        if self._exp_conf is None:
            raise ValueError("There is no experiment config: pass pytorch.init(exp_conf={...}).")
        return self._exp_conf

    def get_experiment_id(self) -> int:
        """Return the experiment's id; 0 outside the platform."""
        return self._core._trial.experiment_id if self._core._trial else 0

    def get_trial_id(self) -> int:
        """Return the trial's id; 0 outside the platform."""
        return self._core._trial.trial_id if self._core._trial else 0

    def get_trial_seed(self) -> int:
        """Return the seed from which data order and augmentation derive."""
        if self._trial_seed is None:
            raise InternalException("This context has no seed: pass pytorch.init(seed=...).")
        return self._trial_seed

    def get_initial_batch(self) -> int:
        """Return how many batches were trained before this process, 0 for a fresh start."""
        return self._steps_completed

    def get_enable_tensorboard_logging(self) -> bool:
        """Return whether metrics are written to TensorBoard automatically."""
        return self._enable_tensorboard_logging

    def set_enable_tensorboard_logging(self, enable_tensorboard_logging: bool) -> None:
        """Set whether metrics are written to TensorBoard automatically."""
        assert isinstance(enable_tensorboard_logging, bool), (
            "`enable_tensorboard_logging` must be True or False, got "
            f"{enable_tensorboard_logging!r}."
        )
        self._enable_tensorboard_logging = enable_tensorboard_logging

    # Where training is.

    def is_epoch_start(self) -> bool:
        """Return whether the current batch is the first of its epoch."""
        return self.current_train_batch() % self._epoch_length() == 0

    def is_epoch_end(self) -> bool:
        """Return whether the current batch is the last of its epoch."""
        return self.current_train_batch() % self._epoch_length() == self._epoch_length() - 1

    def current_train_epoch(self) -> int:
        """Return the index of the epoch of the current batch."""
        return self.current_train_batch() // self._epoch_length()

    def current_train_batch(self) -> int:
        """Return the index of the current batch since the start of the trial."""
        if self._current_batch_idx is None:
            raise InternalException(
                "No batch is being trained yet: call this in train_batch or later."
            )
        return self._current_batch_idx

    def _epoch_length(self) -> int:
        if self._epoch_len is None:
            raise InternalException(
                "The data loaders do not exist yet: call this in train_batch or later."
            )
        return self._epoch_len
