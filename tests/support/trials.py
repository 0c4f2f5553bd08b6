"""A small trial whose numbers can be worked out by hand, and a log of all that happens to it."""

from __future__ import annotations

import copy
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.utils.data import TensorDataset

from determined import pytorch
from determined.pytorch import DataLoader, PyTorchCallback, PyTorchTrial, PyTorchTrialContext

Log = list[Any]
T = TypeVar("T", bound=PyTorchTrial)


class LineTrial(PyTorchTrial):
    """Fits y = 2x with one weight, on batches of two records, and logs every call.

    Subclasses change the class attributes, or a method.
    """

    num_batches = 3
    num_validation_batches = 3
    learning_rate = 0.01

    def __init__(self, context: PyTorchTrialContext, log: Log | None = None) -> None:
        self.context = context
        self.log: Log = [] if log is None else log
        self.callbacks: dict[str, PyTorchCallback] = {}
        self.log.append("__init__")
        self.model = context.wrap_model(one_weight())
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=self.learning_rate)
        )

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        self.log.append("build_callbacks")
        return self.callbacks

    def build_training_data_loader(self) -> DataLoader:
        self.log.append("build_training_data_loader")
        return DataLoader(line(self.num_batches), batch_size=2)

    def build_validation_data_loader(self) -> DataLoader:
        self.log.append("build_validation_data_loader")
        return DataLoader(line(self.num_validation_batches), batch_size=2)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.log.append(("train_batch", epoch_idx, batch_idx))
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        self.log.append(("evaluate_batch", batch_idx))
        x, y = batch
        return {"validation_loss": torch.nn.functional.mse_loss(self.model(x), y)}

    def evaluation_reducer(self) -> Any:
        self.log.append("evaluation_reducer")
        return super().evaluation_reducer()

    @property
    def weight(self) -> float:
        return next(self.model.parameters()).item()

    @property
    def batches(self) -> list[int]:
        """The index of every batch trained, in order."""
        return [entry[2] for entry in self.log if entry[0] == "train_batch"]


class Recorder(PyTorchCallback):
    """Logs every hook with its arguments, which are copied."""

    def __init__(self, name: str, log: Log) -> None:
        self.name = name
        self.log = log

    def _note(self, hook: str, *args: Any, **kwargs: Any) -> None:
        self.log.append((self.name, hook, *copy.deepcopy([*args, *kwargs.items()])))

    def state_dict(self) -> dict[str, Any]:
        self._note("state_dict")
        return {"name": self.name}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._note("load_state_dict", state_dict)

    def on_trial_startup(self, *args: Any, **kwargs: Any) -> None:
        self._note("on_trial_startup", *args, **kwargs)

    def on_training_start(self) -> None:
        self._note("on_training_start")

    def on_training_epoch_start(self, *args: Any, **kwargs: Any) -> None:
        self._note("on_training_epoch_start", *args, **kwargs)

    def on_training_epoch_end(self, *args: Any, **kwargs: Any) -> None:
        self._note("on_training_epoch_end", *args, **kwargs)

    def on_training_workload_end(self, *args: Any, **kwargs: Any) -> None:
        self._note("on_training_workload_end", *args, **kwargs)

    def on_validation_start(self) -> None:
        self._note("on_validation_start")

    def on_validation_epoch_start(self) -> None:
        self._note("on_validation_epoch_start")

    def on_validation_epoch_end(self, *args: Any, **kwargs: Any) -> None:
        self._note("on_validation_epoch_end", *args, **kwargs)

    def on_validation_end(self, *args: Any, **kwargs: Any) -> None:
        self._note("on_validation_end", *args, **kwargs)

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
        self._note("on_checkpoint_load_start", sorted(checkpoint))

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        self._note("on_checkpoint_save_start", sorted(checkpoint))

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        self._note(
            "on_checkpoint_write_end", sorted(file.name for file in Path(checkpoint_dir).iterdir())
        )

    def on_checkpoint_upload_end(self, *args: Any, **kwargs: Any) -> None:
        self._note("on_checkpoint_upload_end", *args, **kwargs)

    def on_trial_shutdown(self) -> None:
        self._note("on_trial_shutdown")


class DropoutNet(torch.nn.Module):
    """A model that draws random numbers in every forward pass while it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(1, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)
        )

    def forward(self, x: torch.Tensor) -> Any:
        return self.layers(x)


def one_weight(value: float = 0.0) -> torch.nn.Linear:
    """Return the model y = w x."""
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(model.weight, value)
    return model


def line(num_batches: int) -> TensorDataset:
    """Return two records of y = 2x for each batch."""
    x = torch.arange(1.0, 2 * num_batches + 1).reshape(-1, 1)
    return TensorDataset(x, 2 * x)


def train(
    trial_class: Callable[[PyTorchTrialContext], T] = LineTrial,  # type: ignore[assignment]  # mypy knows no default for T
    init: Mapping[str, Any] | None = None,
    **fit: Any,
) -> T:
    """Train as a user's script does, for one epoch unless told otherwise; return the trial."""
    with pytorch.init(**(init or {})) as context:
        trial = trial_class(context)
        if "max_length" not in fit:
            fit["max_length"] = pytorch.Epoch(1)
        pytorch.Trainer(trial, context).fit(**fit)
    return trial


def recording(
    trial_class: type[LineTrial] = LineTrial, names: str = "A"
) -> Callable[[PyTorchTrialContext], LineTrial]:
    """Return what makes a trial with one `Recorder` for each letter of `names`."""

    def make(context: PyTorchTrialContext) -> LineTrial:
        trial = trial_class(context, [])
        trial.callbacks = {name: Recorder(name, trial.log) for name in names}
        return trial

    return make


def count(log: Log, hook: str) -> int:
    """Count the calls of a hook or method in a log."""
    return sum(hook in entry[:2] for entry in log if isinstance(entry, tuple))


def checkpoints(root: str | os.PathLike[str] | None = None) -> dict[int, list[Path]]:
    """Return all checkpoints of a storage by their number of batches."""
    found: dict[int, list[Path]] = {}
    for file in Path(root or os.environ["DET_STORAGE"]).glob("*/metadata.json"):
        steps = json.loads(file.read_text())["steps_completed"]
        found.setdefault(steps, []).append(file.parent)
    return found


def the_checkpoint(batches_trained: int) -> str:
    """Return the id of the only checkpoint after so many batches."""
    (path,) = checkpoints()[batches_trained]
    return path.name


@contextmanager
def reports(log: Log) -> Iterator[Log]:
    """Log what the chief reports, as scripts see it: from the lines of `determined.core`."""
    pattern = re.compile(
        r"(?P<status>status: .*)|(?P<progress>report_progress\(progress=(?P<value>.*)\))"
        r"|report_(?P<group>training|validation)_metrics\(steps_completed=(?P<step>\d+), .*"
    )

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            match = pattern.fullmatch(record.getMessage())
            if match is None:
                return
            if match["status"]:
                log.append(match["status"])
            elif match["progress"]:
                log.append(("progress", float(match["value"])))
            else:
                log.append(("report", match["group"], int(match["step"])))

    logger, handler = logging.getLogger("determined.core"), Handler()
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield log
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
