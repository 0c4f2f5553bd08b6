"""What users of batch processing implement, and the context it gets."""

from __future__ import annotations

import abc
import contextlib
import pathlib
import tempfile
import uuid
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from determined.core import Context
from determined.pytorch._context.device import choose_device
from determined.pytorch._data.batches import TorchData, to_device
from determined.pytorch._metrics.reducer import MetricReducer
from determined.pytorch._metrics.wrapped_reducers import _PyTorchReducerContext
from determined.storage import StorageManager
from determined.storage._durable import sync_path


def get_default_device(core_context: Context) -> torch.device:
    """Return the accelerator of this rank, or the CPU where there is none."""
    num_devices = torch.accelerator.device_count() if torch.accelerator.is_available() else 0
    return choose_device(None, num_devices, core_context.distributed)


class TorchBatchProcessorContext(_PyTorchReducerContext):
    """Helps a processor: device, output directory, metrics, ranks."""

    def __init__(self, core_context: Context, storage_path: str) -> None:
        super().__init__(core_context.distributed.allgather)
        self._core = core_context
        self._storage_path = storage_path
        self._warned_types: set[type] = set()
        self.device = get_default_device(core_context)

    @property
    def _reducers(self) -> list[MetricReducer]:
        """The wrapped reducers, in the order in which they were wrapped."""
        return [registered.reducer for registered in self._wrapped_reducers]

    def get_hparams(self) -> dict[str, Any]:
        """Return the hyperparameters of the trial that the platform runs; local runs have none."""
        trial_info = self._core._trial
        assert trial_info is not None, (
            "get_hparams() returns the platform's hyperparameters, but this process is not run "
            "by the platform: configure the processor yourself."
        )
        return trial_info.hparams

    def to_device(self, data: Any, warned_types: set[type] | None = None) -> TorchData:
        """Move a batch to this rank's device; what cannot move stays, with a warning per type."""
        warned = self._warned_types if warned_types is None else warned_types
        return to_device(data, self.device, warned)

    def prepare_model_for_inference(self, model: nn.Module) -> nn.Module:
        """Put a model into evaluation mode, on this rank's device."""
        return model.eval().to(self.device)

    def get_tensorboard_path(self) -> pathlib.Path:
        """Return the directory for event files of this rank."""
        return self._core.train.get_tensorboard_path()

    @contextlib.contextmanager
    def upload_path(self) -> Iterator[pathlib.Path]:
        """Yield an empty directory whose files are kept as output when the block ends well.

        They appear in the checkpoint storage under `<default_output_uuid>/rank_<rank>`, each
        atomically; a file of the same name is replaced. Name files after the batch, so that batches
        that are processed again after a failure overwrite their own output.
        """
        with tempfile.TemporaryDirectory(prefix="determined-output-") as name:
            yield pathlib.Path(name)
            _keep_files(self._core.checkpoint._storage, pathlib.Path(name), self._storage_path)

    def report_metrics(self, group: str, steps_completed: int, metrics: dict[str, Any]) -> None:
        """Report metrics under a group's name. Reports come from the chief."""
        self._core.train.report_metrics(group, steps_completed, metrics)

    def report_task_using_model_version(self, model_version: Any) -> None:
        """Say that the metrics of this task belong to a model version."""
        self._core.experimental.report_task_using_model_version(model_version)

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        """Say that the metrics of this task belong to a checkpoint."""
        self._core.experimental.report_task_using_checkpoint(checkpoint)

    def get_distributed_rank(self) -> int:
        """Return the rank of this process; 0 is the chief."""
        return self._core.distributed.rank

    def get_distributed_size(self) -> int:
        """Return the number of ranks."""
        return self._core.distributed.size


class TorchBatchProcessor(metaclass=abc.ABCMeta):
    """Processes a dataset batch by batch; `torch_batch_process` makes one on each rank."""

    @abc.abstractmethod
    def __init__(self, context: TorchBatchProcessorContext) -> None:
        """Load the model and wrap the reducers: `context.wrap_reducer` belongs here."""

    @abc.abstractmethod
    def process_batch(self, batch: Any, batch_idx: int) -> None:
        """Process one batch, as the loader made it: move it with `context.to_device`.

        `batch_idx` counts the batches of this rank, across interruptions.
        """

    def on_checkpoint_start(self) -> None:  # noqa: B027  # there is nothing to do by default
        """Save what was produced so far: batches before this point are not processed again."""

    def on_finish(self) -> None:  # noqa: B027  # there is nothing to do by default
        """Every batch was processed and the metrics were reported."""


def _keep_files(storage: StorageManager, folder: pathlib.Path, name: str) -> None:
    """Add the files of a folder to `name` in the storage, next to the checkpoints."""
    base = storage.base_path
    if base is None:
        storage.put(folder, name)  # objects appear atomically
        return
    stage = storage.begin(str(uuid.uuid4()))
    try:
        touched = {base}
        for path in storage.put(folder, stage).files:
            target = base / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            (base / stage / path).replace(target)
            touched.update(p for p in target.parents if p.is_relative_to(base))
        for directory in touched:
            sync_path(directory)  # or a checkpoint could outlive the output that it counts on
    finally:
        storage.abort(stage)
