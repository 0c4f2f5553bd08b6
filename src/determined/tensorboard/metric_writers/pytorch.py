"""Metric writers over torch's `SummaryWriter`."""

from __future__ import annotations

import warnings

from torch.utils.tensorboard import SummaryWriter

from determined.tensorboard.metric_writers.base import MetricWriter
from determined.tensorboard.util import get_base_path


class _TorchWriter(MetricWriter):
    """Writes to the process's own TensorBoard directory; `writer` is a `SummaryWriter`."""

    def __init__(self) -> None:
        self.writer = SummaryWriter(log_dir=str(get_base_path({})))

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.writer.add_scalar(name, value, step)

    def reset(self) -> None:
        self.writer.close()

    def flush(self) -> None:
        self.writer.flush()


class TorchWriter(_TorchWriter):
    """Deprecated: use `PyTorchTrialContext.get_tensorboard_writer()`."""

    def __init__(self) -> None:
        warnings.warn(
            "TorchWriter is deprecated: use context.get_tensorboard_writer() in a trial, or "
            "SummaryWriter(core_context.train.get_tensorboard_path()) outside one.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__()
