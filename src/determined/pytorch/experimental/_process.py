"""Process a dataset once, batch by batch, over all ranks; stop and continue anywhere."""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Iterator
from typing import Any

import torch

from determined._os.notebook import in_ipython
from determined.core import Context, DistributedContext, PreemptMode, TensorboardMode, init
from determined.pytorch._data.batches import DataLoader
from determined.pytorch._metrics.reducer_state import dump_reducers, load_reducers, slot_values
from determined.pytorch._ranks.process_group import start_ranks
from determined.pytorch.experimental._checkpoint import BatchCheckpoints, Position
from determined.pytorch.experimental._plan import BatchPlan, check_arguments
from determined.pytorch.experimental._processor import (
    TorchBatchProcessor,
    TorchBatchProcessorContext,
)

logger = logging.getLogger("determined.pytorch")

_NOTHING = object()


def torch_batch_process(
    batch_processor_cls: type[TorchBatchProcessor],
    dataset: Any,
    batch_size: int | None = None,
    max_batches: int | None = None,
    checkpoint_interval: int = 5,
    dataloader_kwargs: dict[str, Any] | None = None,
    distributed_context: DistributedContext | None = None,
    *,
    latest_checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_storage: str | os.PathLike[str] | dict[str, Any] | None = None,
    inference_mode: bool = False,
) -> None:
    """Pass every batch of a dataset to a processor, sharded over all ranks.

    Call it on every rank; under torchrun the ranks are found automatically. The order of events:

        make the processor; continue from the checkpoint
        for each batch of this rank:
            process_batch
            every checkpoint_interval batches:
                on_checkpoint_start, checkpoint; stop here if asked to
        on_checkpoint_start, checkpoint (unless just done)
        report the reducers' metrics as validation metrics
        on_finish

    SIGTERM, SIGHUP or Ctrl-C stop it at the next checkpoint, a single rank after its batch; the
    process then exits with 128 + the signal's number. What reducers hold is kept in checkpoints
    if it is plain data (see `MetricReducer`; a reducer may also have `state_dict` and
    `load_state_dict`), so the metrics are those of the whole dataset and reported once. Otherwise a
    warning says so, and each part of the run reports its own.

    Gradients are recorded as anywhere in torch, unless `inference_mode` is set.

    Args:
        batch_processor_cls: The class that processes batches.
        dataset: A dataset with a length.
        batch_size: Records per batch; by default from `dataloader_kwargs`, else 1.
        max_batches: How many batches each rank processes at most.
        checkpoint_interval: Batches of a rank between checkpoints.
        dataloader_kwargs: Further arguments for the loader. The order of the dataset stays.
        distributed_context: The ranks of this job; by default those that torchrun announces.
        latest_checkpoint: Where to continue: a checkpoint's id or path, or `latest` of this script
            and processor with this many records (the beginning if there is none). By default the
            one that the platform names. The number of ranks may differ.
        checkpoint_storage: Path, URL or configuration of the storage for checkpoints and output; by
            default `DET_STORAGE`, else the user's data directory.
        inference_mode: Run `process_batch` under `torch.inference_mode()`.
    """
    if not isinstance(batch_processor_cls, type) or not issubclass(
        batch_processor_cls, TorchBatchProcessor
    ):
        raise TypeError(
            "`batch_processor_cls` must be a subclass of TorchBatchProcessor, got "
            f"{batch_processor_cls!r}."
        )
    plan = check_arguments(
        dataset, batch_size, max_batches, checkpoint_interval, dataloader_kwargs, inference_mode
    )
    with contextlib.ExitStack() as stack:
        core_context = stack.enter_context(
            init(
                distributed=distributed_context or start_ranks(stack),
                checkpoint_storage=checkpoint_storage,
                preempt_mode=PreemptMode.WorkersAskChief,
                tensorboard_mode=TensorboardMode.MANUAL,
            )
        )
        stack.enter_context(core_context.preempt.catch_signals())
        run = _Run(batch_processor_cls, plan, core_context, latest_checkpoint)
        is_finished = run.go()
        stopped_by = core_context.preempt.signal_received
    if not is_finished and stopped_by is not None and not in_ipython():
        # Stopped, not finished: what the script would do next must not take one for the other.
        raise SystemExit(128 + stopped_by)


class _Run:
    """One pass over the dataset, or what is left of it."""

    def __init__(
        self,
        processor_class: type[TorchBatchProcessor],
        plan: BatchPlan,
        core_context: Context,
        latest_checkpoint: str | os.PathLike[str] | None,
    ) -> None:
        self._plan = plan
        self._core = core_context
        self._ranks = core_context.distributed
        run_id = self._ranks.broadcast(plan.identity(processor_class))
        self._checkpoints = BatchCheckpoints(core_context, run_id, plan.batch_size)
        found = self._checkpoints.find(latest_checkpoint)
        self._start = found or Position(self._ranks.broadcast(str(uuid.uuid4())))
        self._saved_steps = None if found is None else found.steps_completed
        self._iterations = plan.iterations(
            self._ranks.size, self._start.steps_completed, self._start.batches_completed
        )
        self._lost_values = False

        self._context = TorchBatchProcessorContext(
            core_context, f"{self._start.output_uuid}/rank_{self._ranks.rank}"
        )
        self._processor = processor_class(self._context)
        self._context.reset_reducers()
        if self._ranks.rank < len(self._start.slots):
            state = self._start.slots[self._ranks.rank]
            load_reducers(self._context._reducers, state, self._context.device)

    # Working.

    def go(self) -> bool:
        """Process what is left; return whether all was processed."""
        batches = self._batches()
        for batch_idx in range(self._start.steps_completed, self._iterations):
            self._process(next(batches, _NOTHING), batch_idx)
            steps = batch_idx + 1
            if self._is_checkpoint_due(steps):
                self._checkpoint(steps)
                if steps < self._iterations and self._core.preempt.should_preempt():
                    self._stop(steps)
                    return False
        self._finish()
        return True

    def _batches(self) -> Iterator[Any]:
        loader = DataLoader(
            self._plan.dataset, self._plan.batch_size, shuffle=False, **self._plan.loader_options
        )
        # Ranks take turns from the first batch that is left, however many there were before.
        skip, rank = divmod(self._start.batches_completed + self._ranks.rank, self._ranks.size)
        return iter(loader.get_data_loader(False, skip, num_replicas=self._ranks.size, rank=rank))

    def _process(self, batch: Any, batch_idx: int) -> None:
        if batch is _NOTHING:
            return  # the last round need not have a batch for every rank
        with torch.inference_mode() if self._plan.inference_mode else contextlib.nullcontext():
            self._processor.process_batch(batch, batch_idx)

    def _is_checkpoint_due(self, steps: int) -> bool:
        if steps % self._plan.checkpoint_interval == 0:
            return True
        return self._ranks.size == 1 and self._core.preempt.preempt_requested_locally()

    def _stop(self, steps: int) -> None:
        if self._ranks.broadcast(self._lost_values):
            self._report_metrics(steps)
        if self._ranks.rank == 0:
            logger.info(
                f"Stopped after {steps} of {self._iterations} batches per rank; to continue, pass "
                f"latest_checkpoint={self._checkpoints.latest!r}."
            )

    def _finish(self) -> None:
        if self._saved_steps is None or self._saved_steps < self._iterations:
            self._checkpoint(self._iterations)
        self._report_metrics(max(self._iterations, self._start.steps_completed))
        self._sync_tensorboard()
        self._processor.on_finish()
        self._ranks.gather(None)
        if self._ranks.rank == 0:
            logger.info(
                f"Finished after {self._iterations} batches per rank. Output, if any, is in "
                f"{self._core.checkpoint._storage.location}/{self._start.output_uuid}."
            )

    # Reporting.

    def _report_metrics(self, steps: int) -> None:
        chosen = [r for r in self._context._wrapped_reducers if r.for_validation]
        if not chosen:
            return
        gathered = self._ranks.gather([r.call("per_slot_reduce") for r in chosen])
        if gathered is None:
            return
        reducers = self._context._reducers
        for state in self._other_slots:
            values = slot_values(reducers, state, self._context.device)
            gathered.append([values[reducers.index(r.reducer)] for r in chosen])
        metrics = self._context.run_cross_slot_reduction(chosen, gathered)
        self._core.train.report_validation_metrics(steps, metrics)

    def _sync_tensorboard(self) -> None:
        if self._ranks.local_rank == 0:
            self._core.train.upload_tensorboard_files()

    # Saving.

    def _checkpoint(self, steps: int) -> None:
        self._processor.on_checkpoint_start()
        self._sync_tensorboard()
        gathered = self._ranks.gather((steps, self._dump_reducers()))
        self._saved_steps = steps
        if gathered is None:
            return
        completed = min(finished for finished, _ in gathered)
        self._checkpoints.save(
            Position(
                self._start.output_uuid,
                completed,
                self._start.batches_completed
                + (completed - self._start.steps_completed) * self._ranks.size,
                self._slots_to_keep([state for _, state in gathered]),
            )
        )
        self._core.train.report_progress(steps / self._iterations if self._iterations else 1.0)

    def _dump_reducers(self) -> bytes | str:
        """Return what this rank's reducers hold, or why that cannot be kept."""
        try:
            return dump_reducers(self._context._reducers)
        except TypeError as error:
            return str(error)

    def _slots_to_keep(self, states: list[bytes | str]) -> tuple[bytes, ...]:
        if not self._context._reducers:
            return ()
        problem = next((state for state in states if isinstance(state, str)), None)
        if problem is None:
            self._lost_values = False
            return (*(state for state in states if isinstance(state, bytes)), *self._other_slots)
        if not self._lost_values:
            self._lost_values = True
            logger.warning(
                f"The values of reducers are not saved in checkpoints: {problem}. After an "
                "interruption, metrics cover only what is processed from then on. Keep only "
                "tensors, arrays, numbers and plain containers in a reducer, or give it "
                "state_dict() and "
                "load_state_dict()."
            )
        return ()

    @property
    def _other_slots(self) -> tuple[bytes, ...]:
        """The slots of an earlier part of the run that had more ranks than this one."""
        return self._start.slots[self._ranks.size :]
