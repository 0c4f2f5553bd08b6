"""The way out of every metric: to the platform, to TensorBoard, to the terminal.

The loop calls it on every rank; only the chief reports.
"""

from __future__ import annotations

import logging
import math
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._context.counts import Counted
from determined.pytorch._context.learning_rates import learning_rates
from determined.pytorch._data.training.training_data import TrainingData
from determined.pytorch._display.profile import TimeProfile, machine_line
from determined.pytorch._display.progress import Progress
from determined.pytorch._metrics.batch_metrics import Column, Rows
from determined.pytorch._plan import FitPlan
from determined.pytorch._schedule import Epoch, _TrialState, counted
from determined.tensorboard._events import ScalarEvents
from determined.tensorboard._series import BatchMetrics, log_training, log_validation
from determined.tensorboard.util import get_rank_aware_path
from determined.util import is_numerical_scalar, make_timing_log

logger = logging.getLogger("determined.pytorch")

THROUGHPUT = "throughput"  # the group of rates of what `context.count` counts

_SHOWN_AS = {"checkpointing": "saving"}


def checkpoint_address(context: PyTorchTrialContext, storage_id: str) -> str:
    """Return the path of a checkpoint where the storage is local, else its id."""
    base = context._core.checkpoint.storage_base
    return str(base / storage_id) if base is not None else storage_id


class Reporter:
    """Reports on behalf of the loop."""

    def __init__(
        self,
        context: PyTorchTrialContext,
        averages_weights: bool = False,
        profile: TimeProfile | None = None,
    ) -> None:
        self._context = context
        self._averages_weights = averages_weights
        self._profile = profile
        self._train = context._core.train
        self._is_chief = context.distributed.rank == 0
        self._events: ScalarEvents | None = None
        self.latest_checkpoint: str | None = None
        self._display = Progress(enabled=False)
        self._state: _TrialState | None = None
        self._samples_per_batch: int | None = None
        self._began = time.monotonic()
        self._has_warned = self._has_summary = False

    def start(
        self,
        plan: FitPlan,
        state: _TrialState,
        continues: str | None,
        data: TrainingData,
        is_saving: Callable[[], bool],
    ) -> None:
        """Begin to show progress, from the checkpoint on that the run continues, if any."""
        self._plan, self._state = plan, state
        if continues is not None:
            self.latest_checkpoint = checkpoint_address(self._context, continues)
        self._began = time.monotonic()
        self._samples_per_batch = data.samples_per_batch
        length: int | None = plan.length or None
        if isinstance(plan.max_length, Epoch):
            length = plan.length * data.epoch_length if data.epoch_length else None
        if self._is_chief:
            self._display = Progress(
                plan.progress,
                max_length_batches=length,
                start=state.batches_trained,
                epoch_length=data.epoch_length,
                samples_per_batch=self._samples_per_batch,
                best=(plan.metric, self._train._get_own_best()),
                is_saving=is_saving,
                position=lambda: state.batches_trained,
            )
            if continues is not None and not plan.test_mode and plan.is_finished(state):
                self._warn_of_nothing_left()

    def _warn_of_nothing_left(self) -> None:
        assert self._state is not None
        logger.warning(
            f"Run {self._context._run_id} has already reached max_length="
            f"{self._plan.max_length}, with {self._state.batches_trained} batches trained: nothing "
            "is left to train. Pass a larger `max_length` to continue, or "
            'pytorch.init(run_id="...") to start over.'
        )

    def status(self, text: str) -> None:
        """Say what the run is doing now."""
        if self._is_chief:
            self._train.set_status(text)
            self._display.status(_SHOWN_AS.get(text, text))

    def training(
        self,
        state: _TrialState,
        avg_metrics: dict[str, Any],
        columns: Mapping[str, Column],
        length: int,
        seconds: float,
        counted: Counted | None = None,
    ) -> Rows | None:
        """Report a segment; `avg_metrics` gains the counters. Returns the metrics per batch."""
        if not self._is_chief:
            return None
        self._warn_of_nan(avg_metrics, columns, state.batches_trained - length)
        rates = {} if counted is None else counted.rates(seconds, self._context.device)
        batch_metrics = Rows(columns, length)
        if self._context.get_enable_tensorboard_logging():
            # Whole columns are quicker to write, but metrics that are no tensors have none.
            is_tabular = all(isinstance(column, np.ndarray) for column in columns.values())
            per_batch = columns if is_tabular else batch_metrics
            _log_tb_metrics(self._scalars(), "train", state.batches_trained, avg_metrics, per_batch)
            scalars = self._run_scalars(length / max(seconds, 1e-9))
            scalars |= {f"throughput/{name}": rate for name, rate in rates.items()}
            for tag, value in scalars.items():
                self._scalars().add_scalar(tag, value, state.batches_trained)
        _add_counters(avg_metrics, state)
        if counted is not None:
            avg_metrics.setdefault("tokens", counted.total_tokens)
        self._train.report_training_metrics(
            steps_completed=state.batches_trained, metrics=avg_metrics, batch_metrics=batch_metrics
        )
        if rates:  # apart from metrics, which a run that is repeated has again
            self._train.report_metrics(THROUGHPUT, state.batches_trained, dict(rates))
        self._display.training(state.batches_trained, avg_metrics, rates)
        return batch_metrics

    def add_to_training(
        self, state: _TrialState, avg_metrics: dict[str, Any], reported: set[str]
    ) -> None:
        """Report the numbers that callbacks have added to a segment."""
        added = {
            name: value
            for name, value in avg_metrics.items()
            if name not in reported and is_numerical_scalar(value)
        }
        if self._is_chief and added:
            self._train.report_training_metrics(state.batches_trained, added)

    def validation(self, state: _TrialState, metrics: dict[str, Any], is_best: bool) -> None:
        """Report a validation; `metrics` gains the counters."""
        if not self._is_chief:
            return
        if self._context.get_enable_tensorboard_logging():
            _log_tb_metrics(self._scalars(), "val", state.batches_trained, metrics)
        _add_counters(metrics, state)
        self._train.report_validation_metrics(
            steps_completed=state.batches_trained, metrics=metrics
        )
        self._display.validated(metrics, best=is_best)

    def validation_speed(self, began: float, num_records: int, num_batches: int) -> None:
        """Log how fast a validation was."""
        if self._is_chief:
            seconds = time.monotonic() - began
            logger.info(make_timing_log("validated", seconds, num_records, num_batches))

    def progress(self, fraction: float) -> None:
        """Report how much of the training is done."""
        if self._is_chief:
            self._train.report_progress(min(fraction, 1.0))

    def sync(self) -> None:
        """Bring event files to where others see them. Every rank calls it after each boundary."""
        if self._context.get_enable_tensorboard_logging():
            self._context._maybe_reset_tbd_writer()
            self._train.upload_tensorboard_files(
                _everything if self._is_chief else _no_event_files, get_rank_aware_path
            )

    def before_save(self) -> None:
        """Bring to disk what was reported: a run that resumes does not report it again."""
        if self._events is not None:
            self._events.write_soon()

    def saved(self, storage_id: str, batches_trained: int) -> None:
        """Show that the checkpoint of a batch is safe."""
        self.latest_checkpoint = checkpoint_address(self._context, storage_id)
        self._display.checkpointed(storage_id, batches_trained)

    def finish(self, is_finished: bool) -> None:
        """End the display with lines that say what came of it; every rank gets to know."""
        distributed = self._context.distributed
        # The others leave when the last checkpoint is safe.
        self.latest_checkpoint = distributed.broadcast(self.latest_checkpoint)
        if not self._is_chief:
            return
        self._summarize("finished" if is_finished else "stopped")
        if self._profile is not None:
            self._show_profile(self._profile)

    def only_validated(self, metrics: dict[str, Any]) -> None:
        """End the display of a validation that is no part of training."""
        if self._is_chief:
            self._has_summary = True
            self._display.validated(metrics)
            self._display.finish()

    def _summarize(self, status: str) -> None:
        assert self._state is not None
        self._has_summary = True
        seconds = time.monotonic() - self._began
        batches = counted(self._state.batches_trained, "batch")
        length = f"{batches} ({counted(self._state.epochs_trained, 'epoch')})"
        if status == "finished":
            lines = [("Trained", f"{length} in {seconds:.1f} s")]
        else:
            lines = [(status.capitalize(), f"after {length}, {seconds:.1f} s in this process")]
        best = self._train._get_own_best()
        if best is not None:
            lines.append(("Best", f"{self._plan.metric} {best:.6g}"))
        if self._averages_weights:
            lines.append(("Measured", "the averaged weights; load them with ema=True"))
        if self.latest_checkpoint is not None:
            longer = "max_length=..." if status == "finished" else "..."
            lines.append(("Checkpoint", str(self.latest_checkpoint)))
            call = f'fit(latest_checkpoint="latest", {longer})'
            lines.append(("Continue", f"{call} in run {self._context._run_id}"))
        self._display.finish("\n".join(f"{name:<11} {text}" for name, text in lines), status)

    def _show_profile(self, profile: TimeProfile) -> None:
        from rich.console import Console

        profile.stop()
        system = self._context._core._backend.recent_system_metrics()
        path = self._context.get_tensorboard_path() / "profile.json"
        profile.write(path, system)
        console = Console(stderr=True)
        if not console.is_terminal:  # a file has no width that names would have to fit into
            console.width = max(console.width, 120)
        console.print(profile.table())
        for line in [*profile.advice(), machine_line(system), f"Details: {path}"]:
            if line:
                console.print(line, highlight=False, soft_wrap=True)

    def directories(self) -> list[pathlib.Path]:
        """Return where this run writes, none of which is user code."""
        written = [self._context._core.checkpoint.storage_base]
        if self._context.get_enable_tensorboard_logging() or self._context._tbd_writer is not None:
            written.append(self._train._tensorboard_root())
        return [path for path in written if path is not None]

    def close(self) -> None:
        """Write out what is left. A run that has no summary yet ends with an error."""
        if self._is_chief and self._state is not None and not self._has_summary:
            self._summarize("failed")
        if self._events is not None:
            self._events.close()
        self.sync()

    def _run_scalars(self, batches_per_second: float) -> dict[str, float]:
        """Return what TensorBoard shows besides metrics, once per report."""
        scalars = {
            **learning_rates(self._context),
            "throughput/batches_per_second": batches_per_second,
        }
        if self._samples_per_batch is not None:
            samples = batches_per_second * self._samples_per_batch
            scalars["throughput/samples_per_second"] = samples
        if self._profile is not None:
            shares = self._profile.shares()
            scalars.update({f"Profile/{part}": share for part, share in shares.items()})
        return scalars

    def _warn_of_nan(
        self, averages: Mapping[str, Any], columns: Mapping[str, Column], first_batch: int
    ) -> None:
        """Name the first batch with a metric that is not finite, once: looked for in reports."""
        for name, average in averages.items():
            if self._has_warned or name not in columns or not isinstance(average, float):
                continue
            if not math.isfinite(average):
                self._has_warned = True
                bad = (i for i, value in enumerate(columns[name]) if not _is_finite(value))
                offset = next(bad, 0)
                logger.warning(
                    f"The training metric {name!r} is {average} since batch "
                    f"{first_batch + offset}. Usual causes: the data of that batch, a learning "
                    "rate that is too high, a division or logarithm of zero. callbacks.LossGuard "
                    "keeps such updates out of the weights; "
                    "torch.autograd.set_detect_anomaly(True) finds the operation. This is shown "
                    "once."
                )

    def _scalars(self) -> ScalarEvents:
        if self._events is None:
            self._events = ScalarEvents(self._context.get_tensorboard_path())
        return self._events


def _log_tb_metrics(
    writer: ScalarEvents,
    metric_type: str,
    steps_completed: int,
    metrics: Mapping[str, Any],
    batch_metrics: BatchMetrics | None = None,
) -> None:
    """Write one report: `train` with its metrics per batch, or `val`."""
    if metric_type == "val":
        log_validation(writer, steps_completed, metrics)
    else:
        log_training(writer, steps_completed, metrics, batch_metrics)


def _is_finite(value: Any) -> bool:
    return value is None or bool(np.isfinite(value).all())


def _add_counters(metrics: dict[str, Any], state: _TrialState) -> None:
    metrics.setdefault("batches", state.batches_trained)
    metrics.setdefault("epochs", state.epochs_trained)


def _everything(path: pathlib.Path) -> bool:
    return True


def _no_event_files(path: pathlib.Path) -> bool:
    return "tfevents" not in path.name
