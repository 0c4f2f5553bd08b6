"""DetCallback: what a trial does, at the hooks of Lightning's `Trainer`."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from determined._loops.resuming import LATEST, describe_run, find_checkpoint, metadata_of, run_id_of
from determined._loops.stopping import StopRequests
from determined.core import Context, DistributedContext, DownloadMode, init
from determined.lightning._data import DataPosition

logger = logging.getLogger("determined.lightning")

_FILE = "lightning.ckpt"

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer

    class _Base:
        """Stands for the two classes that a callback may have to be."""
else:

    def _callback_classes() -> tuple[type, ...]:
        """The callback classes of `lightning` and of `pytorch_lightning`, which are two."""
        found, errors = [], []
        for name in ("lightning.pytorch", "pytorch_lightning"):
            try:
                found.append(importlib.import_module(name).Callback)
            except ImportError as error:
                errors.append(str(error))
        if not found:
            raise ImportError(
                f"determined.lightning needs Lightning, which cannot be imported ({errors[0]}): "
                'install it with `pip install "determined-pytorch[lightning]"`.'
            )
        return tuple(found)

    _Base = type("_Base", _callback_classes(), {})


class _Latest:
    """`callback.latest()`; and `DetCallback.latest()`, which asks the callback made last."""

    def __get__(self, callback: DetCallback | None, owner: type) -> Callable[[], str | None]:
        callback = callback or DetCallback._newest
        if callback is None:
            raise RuntimeError("Make the callback before you ask for its `latest()` checkpoint.")
        return callback._find_latest


class DetCallback(_Base):
    """Reports, saves and stops a training by Lightning's `Trainer`.

    Pass it to the trainer, and what `latest()` returns as `ckpt_path` to `trainer.fit`. On several
    ranks each has one; a launcher starts them (`torchrun`, `determined.launch.torch_distributed`).

    A checkpoint is saved after each epoch and each validation, when Lightning saves one, and where
    training stops; with `accumulate_grad_batches`, after the next update.

    Args:
        core_context: what `core.init()` returned. Without it the callback makes its own, and closes
            it at the end of `fit`.
    """

    latest = _Latest()
    """Returns the path of the checkpoint to continue from, None if there is none. In a trial that
    is the trial's newest; in a script that you start yourself, the newest of this very run."""

    _newest: DetCallback | None = None

    def __init__(self, core_context: Context | None = None) -> None:
        super().__init__()
        self._is_own_context = core_context is None
        self._core = core_context or _make_context()
        self._held = contextlib.ExitStack()
        self._is_closed = False
        self._continues: str | None = None
        self._data = DataPosition()
        self._last_save = 0
        self._last_percent = 0
        self._is_save_due = False
        self._is_saving = False
        self._stops_after_validation = False
        self._reported: dict[str, set[str]] = {}
        self._validation_names: set[str] = set()
        self._before_validation: dict[str, Any] = {}
        self._known: dict[str, Any] = {}
        self._stop = StopRequests(self._core)
        self._run_id = run_id_of(self._core, type(self))
        DetCallback._newest = self

    @property
    def core_context(self) -> Context:
        """The services of this process."""
        return self._core

    def _find_latest(self) -> str | None:
        self._continues = find_checkpoint(self._core, LATEST, self._run_id)
        if self._continues is None:
            return None
        path = self._held.enter_context(
            self._core.checkpoint.restore_path(self._continues, DownloadMode.NoSharedDownload)
        )
        if not (path / _FILE).exists():
            raise ValueError(
                f"Checkpoint {self._continues} has no `{_FILE}`: it was not saved by "
                "`determined.lightning.DetCallback`, and Lightning cannot read it."
            )
        self._data.load(path, self._core.distributed.rank)
        return str(path / _FILE)

    # Hooks of Lightning.

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Check the ranks, and describe the run."""
        if stage != "fit":
            return
        self._reopen()
        if trainer.world_size != self._core.distributed.size:
            raise ValueError(
                f"The trainer has {trainer.world_size} process(es) and `core_context` has "
                f"{self._core.distributed.size}: start them with a launcher (`torchrun`, or "
                "`python -m determined.launch.torch_distributed`), and give `core.init` a "
                "`distributed` context if you call it yourself."
            )
        hparams = {name: value for name, value in pl_module.hparams.items() if _is_plain(value)}
        describe_run(self._core, self._run_id, self._continues, hparams=hparams)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin to look for requests to stop; find the position in the data again."""
        self._last_save = _batches(trainer)
        self._last_percent = 0
        self._stops_after_validation = False
        self._stop.begin(_batches(trainer))
        self._data.resume(trainer.fit_loop)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note what the order of the data is drawn from, and what is known of the last epoch."""
        self._known = dict(trainer.callback_metrics)
        self._data.begin_epoch(trainer.current_epoch)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Report, and look for a request to stop."""
        batches = _batches(trainer)
        self._data.batches_in_epoch = batch_idx + 1
        if _is_multiple(batches, getattr(trainer, "log_every_n_steps", None)):
            self._report_training(trainer)
        self._report_progress(trainer, batch_idx)
        loop = trainer.fit_loop.epoch_loop
        if loop._should_accumulate():
            return  # gradients are in no checkpoint
        fetcher = trainer.fit_loop._data_fetcher
        assert fetcher is not None, "it fetched this batch"
        is_validation_next = trainer.is_last_batch or loop._should_check_val_fx(fetcher)
        if self._stop.after(batches):
            self._stops_after_validation = is_validation_next
            if not is_validation_next:
                self._save(trainer)
                self._end_training(trainer)
                # Lightning likes to end with one, which would take time that we may not have.
                loop._skip_next_val = True
        elif (self._is_save_due or loop._is_training_done) and not is_validation_next:
            self._save(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note what is known before, to tell the metrics of the validation from others."""
        self._before_validation = dict(trainer.callback_metrics)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report a validation that is part of training."""
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        before = self._before_validation
        metrics = {
            name: value
            for name, value in trainer.callback_metrics.items()
            if value is not before.get(name)
        }
        self._validation_names |= metrics.keys()
        self._report(trainer, "validation", metrics)
        if trainer.fit_loop.epoch_loop._should_accumulate():
            self._is_save_due = True
        elif not trainer.is_last_batch:
            self._save(trainer)
            if self._stops_after_validation:
                self._end_training(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report what is known of the epoch, and save."""
        if self._stop.is_stopping and not self._stops_after_validation:
            return  # within an epoch, and saved
        self._report_training(trainer)
        if trainer.is_last_batch:  # and not the end of `max_steps` within an epoch
            self._data.batches_in_epoch = 0
        self._save(trainer)
        if self._stops_after_validation:
            self._end_training(trainer)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Lightning saves for other reasons: so do we, at the next good moment."""
        if not self._is_saving and self._last_save != _batches(trainer):
            self._is_save_due = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the end, unless it is saved."""
        if not self._stop.is_stopping:
            self._save(trainer)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Tell the other ranks and the record."""
        self._close(exception)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Let go of the checkpoint that training continued from, and of a context of our own."""
        if stage == "fit":
            self._close(None)

    # Parts of the above.

    def _save(self, trainer: Trainer) -> None:
        """Save a checkpoint, once per batch; every rank is here."""
        batches = _batches(trainer)
        self._is_save_due = False
        if batches == self._last_save:
            return
        metadata = metadata_of(self._core, batches, self._run_id)
        self._is_saving = True
        try:
            with self._core.checkpoint.store_path(metadata, shard=True) as (path, _):
                trainer.save_checkpoint(path / _FILE)
                self._data.save(path, self._core.distributed.rank)
        finally:
            self._is_saving = False
        self._last_save = batches

    def _end_training(self, trainer: Trainer) -> None:
        """Have Lightning leave its loops, whatever the least is that it is to train."""
        trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None
        trainer.should_stop = True

    def _report_training(self, trainer: Trainer) -> None:
        known, self._known = self._known, dict(trainer.callback_metrics)
        new = {
            name: value
            for name, value in self._known.items()
            if name not in self._validation_names and value is not known.get(name)
        }
        self._report(trainer, "training", new)

    def _report(self, trainer: Trainer, group: str, metrics: Mapping[str, Any]) -> None:
        """Report metrics, each once per batch."""
        batches = _batches(trainer)
        key = f"{group} {batches}"
        if key not in self._reported:
            self._reported = {k: v for k, v in self._reported.items() if k.endswith(f" {batches}")}
        known = self._reported.setdefault(key, set())
        new = {name: float(value) for name, value in metrics.items() if name not in known}
        known.update(new)
        if new and trainer.is_global_zero:
            epochs = batches / trainer.num_training_batches if trainer.num_training_batches else 0.0
            self._core.train.report_metrics(
                group, batches, {"batches": batches, "epochs": epochs, **new}
            )

    def _report_progress(self, trainer: Trainer, batch_idx: int) -> None:
        if trainer.max_steps > 0:
            done = trainer.global_step / trainer.max_steps
        elif trainer.max_epochs and trainer.max_epochs > 0:
            of_epoch = (batch_idx + 1) / trainer.num_training_batches
            done = (trainer.current_epoch + of_epoch) / trainer.max_epochs
        else:
            return
        if int(100 * done) > self._last_percent and trainer.is_global_zero:
            self._last_percent = int(100 * done)
            self._core.train.report_progress(min(done, 1.0))

    def _reopen(self) -> None:
        """Make another context of our own, if an earlier `fit` has closed it."""
        if self._is_closed and self._is_own_context:
            self._core = _make_context()
            self._stop = StopRequests(self._core)
        self._is_closed = False

    def _close(self, error: BaseException | None) -> None:
        self._held.close()
        if not self._is_closed and self._is_own_context:
            self._core.__exit__(None if error is None else type(error), error, None)
        self._is_closed = True


def _make_context() -> Context:
    distributed = None
    if "RANK" in os.environ and "GROUP_RANK" in os.environ:
        distributed = DistributedContext.from_torch_distributed()
    return init(distributed=distributed).__enter__()


def _batches(trainer: Trainer) -> int:
    """How many batches were trained."""
    return int(trainer.fit_loop.total_batch_idx) + 1


def _is_multiple(batches: int, interval: Any) -> bool:
    return isinstance(interval, int) and interval > 0 and batches % interval == 0


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))
