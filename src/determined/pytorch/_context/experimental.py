"""`context.experimental`: settings that may still change."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

from determined.pytorch._checks.arguments import check_kind

if TYPE_CHECKING:
    from determined.pytorch._context.context import PyTorchTrialContext

logger = logging.getLogger("determined.pytorch")


class PyTorchExperimentalContext:
    """Settings that may still change; call them in the trial's `__init__`."""

    def __init__(self, parent: PyTorchTrialContext) -> None:
        self._parent = parent
        self._auto_amp = False
        self._autocast: tuple[str, torch.dtype] | None = None
        self._data_repro_checks_disabled = False
        self._auto_to_device = True

    def use_amp(self, dtype: torch.dtype | None = None) -> None:
        """Train in mixed precision: autocast, loss scaling and unscaling are automatic.

        Call it before `wrap_model`. Without `dtype`, accelerators use torch's default (float16 on
        CUDA) and the CPU stays in float32. `torch.bfloat16` works everywhere and needs no loss
        scaling.
        """
        check_kind("dtype", dtype, torch.dtype, "a torch.dtype")
        device_type = self._parent.device.type
        if dtype is None and device_type != "cpu":
            dtype = torch.get_autocast_dtype(device_type)
        scaled = dtype == torch.float16 and device_type != "mps"
        self._parent.wrap_scaler(torch.amp.GradScaler(device_type, enabled=scaled))
        self._auto_amp = True
        if dtype is not None and self._parent._managed_training:
            self._autocast = (device_type, dtype)

    def disable_dataset_reproducibility_checks(self) -> None:
        """Accept any iterable from the build methods, not only a `determined.pytorch.DataLoader`.

        Sharding and shuffling are then up to the trial.
        """
        self._data_repro_checks_disabled = True
        logger.info("Data loaders of any type are accepted; their order is not checked.")

    def disable_auto_to_device(self) -> None:
        """Do not move batches to the device; the trial does, with `context.to_device`."""
        self._auto_to_device = False
        logger.info("Batches are not moved to the device automatically.")

    def wrap_reducer(self, *args: Any, **kwargs: Any) -> Any:
        """Moved: use `context.wrap_reducer`."""
        return self._parent.wrap_reducer(*args, **kwargs)

    def reset_reducers(self) -> None:
        """Moved: use `context.reset_reducers`."""
        self._parent.reset_reducers()

    def reduce_metrics(self, for_training: bool) -> dict[str, Any]:
        """Moved: use `context.reduce_metrics`."""
        return self._parent.reduce_metrics(for_training)
