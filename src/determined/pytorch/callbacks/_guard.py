"""Keep NaN, infinity and spikes out of the weights and out of checkpoints."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from determined._contracts.checkpoint_layout import MODELS
from determined.core import EarlyExitReason
from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._checkpoint.files.decoding import from_plain
from determined.pytorch._checkpoint.files.encoding import Living, living_in, to_plain
from determined.pytorch._checkpoint.files.trust import Trust
from determined.pytorch._checkpoint.state.copying import copy_state
from determined.pytorch._checkpoint.state.snapshot import Snapshot
from determined.pytorch._checkpoint.state.training_state import collect, restore
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._schedule import _ShouldExit, is_whole_number
from determined.pytorch.callbacks._batch_files import BatchFiles
from determined.pytorch.callbacks._gradients import are_finite, gradients_of, norm_of
from determined.pytorch.callbacks._module_tensors import BufferCopy, ModuleTensor, tensors_of

logger = logging.getLogger("determined.pytorch")

_ACTIONS = ("stop", "skip", "rollback")
_MAX_SKIPS_IN_A_ROW = 10
_MEAN_LENGTH = 20
_NOT_FINITE = "weights, buffers or optimizer state are not finite, although every gradient was."


class LossGuard(PyTorchCallback):
    """Skips updates whose gradients are NaN, infinite or, with `spike_factor`, far too large.

    The gradients of each update are checked just before the optimizer would use them, so a bad loss
    never reaches the weights, and no checkpoint with NaN or infinite weights is written. Changes of
    the bad batch to buffers (such as batch norm statistics) are undone. After that:

    - `"stop"`: training ends after this batch with a checkpoint, as after
      `context.set_stop_requested(True)`.
    - `"skip"`: training continues with the next batch; ten skipped updates in a row stop it.
    - `"rollback"`: models, optimizers, schedulers and scaler go back to the last training report,
      and training continues with the next batch; the data is not rewound. When `max_rollbacks` are
      used up, it stops. The state to go back to is copied to main memory at every report.

    Steps that a gradient scaler skips because of its scale are left to the scaler.
    Each update waits for the device once, as with a gradient scaler. All ranks act alike.

    Args:
        context: The trial's context.
        action: What to do after a skipped update.
        spike_factor: Also skip an update whose gradient norm (after any clipping) is more than
            this many times the running mean of its optimizer.
        max_rollbacks: Rollbacks in one run, resumed or not, before it stops.
        callbacks: Callbacks that are rolled back as well, such as a moving average.
        save_batch_to: Directory for the batches of skipped updates, at most 20 files of
            `torch.save` on each rank.

    Attributes:
        refused: Updates skipped so far.
        rollbacks: Rollbacks so far.
    """

    def __init__(
        self,
        context: PyTorchTrialContext,
        action: Literal["stop", "skip", "rollback"] = "stop",
        *,
        spike_factor: float | None = None,
        max_rollbacks: int = 3,
        callbacks: Sequence[PyTorchCallback] = (),
        save_batch_to: str | os.PathLike[str] | None = None,
    ) -> None:
        if action not in _ACTIONS:
            raise ValueError(f"`action` must be one of {_ACTIONS}, got {action!r}.")
        if spike_factor is not None and not spike_factor > 1:
            raise ValueError(f"`spike_factor` must be above 1, got {spike_factor!r}.")
        if not is_whole_number(max_rollbacks) or max_rollbacks < 0:
            raise ValueError(
                f"`max_rollbacks` must be an integer of at least 0, got {max_rollbacks!r}."
            )
        self._context = context
        self._action = action
        self._spike_factor = spike_factor
        self._max_rollbacks = max_rollbacks
        self._callbacks = {str(index): callback for index, callback in enumerate(callbacks)}
        self._batches = BatchFiles(save_batch_to, context.distributed.rank)
        self._watched: list[ModuleTensor] = []
        self._buffers = BufferCopy([])
        self._memory = Snapshot()
        self._good: dict[str, Any] | None = None
        self._good_after: int | None = None
        self._saved: dict[str, Any] = {}
        self._hooks: list[RemovableHandle] = []
        self._norms: list[RunningMean] = []
        self._problem: str | None = None
        self._refused_in_a_row = 0
        self._is_stopping = False
        self.refused = 0
        self.rollbacks = 0

    # Judging.

    def on_training_start(self) -> None:
        """Begin to watch the optimizers."""
        optimizers, entries = self._context.optimizers, list(tensors_of(self._context.models))
        # Some are infinite by design, such as attention masks.
        self._watched = [entry for entry in entries if are_finite([entry.tensor])]
        self._buffers = BufferCopy([entry for entry in entries if entry.is_buffer])
        self._is_stopping = False
        self._norms = self._norms or [RunningMean() for _ in optimizers]
        for optimizer, norms in zip(optimizers, self._norms, strict=True):
            self._hooks.append(optimizer.register_step_pre_hook(self._before_step(norms)))
        saved, self._saved = self._saved, {}
        if "buffers" in saved:
            self._buffers.make()
            self._buffers.put_back(saved["buffers"])
        self._remember()
        if self._good is not None and "good" in saved:
            self._good, self._good_after = saved["good"], None

    def on_training_batch_start(self, epoch_idx: int, batch_idx: int, batch: Any) -> None:
        """Keep what the batch could corrupt, and the batch itself."""
        if self._is_stopping:
            raise _ShouldExit
        is_window_start = batch_idx % self._context._aggregation_frequency == 0
        if is_window_start or not self._buffers.is_made:
            self._buffers.make()
        self._batches.hold(epoch_idx, batch_idx, batch)

    def on_training_batch_end(
        self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
    ) -> None:
        """Act on what was refused during the batch."""
        if not self._context._should_communicate_and_update():
            return
        if self._problem is not None:
            problem, self._problem = self._problem, None
            self.refused += 1
            self._refused_in_a_row += 1
            self._buffers.put_back()
            self._batches.write(metrics)
            self._act(f"Batch {batch_idx}: {problem}")
        else:
            self._refused_in_a_row = 0
            if self._context._scaler is not None and not self._are_finite(buffers_only=True):
                # The scaler left out the update, but not the forward pass before it.
                self._buffers.put_back()
        self._batches.let_go()

    def on_training_workload_end(
        self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]
    ) -> None:
        """Check that nothing else corrupted the state before it is saved."""
        if all(self._context.distributed.allgather(self._are_finite())):
            self._remember()
        elif self._can_roll_back():
            self._roll_back(f"After batch {self._context.current_train_batch()}: {_NOT_FINITE}")
        else:
            raise FloatingPointError(
                f"After batch {self._context.current_train_batch()}: {_NOT_FINITE} No checkpoint "
                "of this state was written. Resume from the last one, for example with a "
                "smaller learning rate."
            )

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        """Refuse to save a state that is not finite.

        Inside an accumulation window, buffers are saved as they were before it: whether they are
        kept as they are now, and can be, is only known at its end.
        """
        if not self._are_finite():
            raise FloatingPointError(f"No checkpoint was written: {_NOT_FINITE}")
        for entry, tensor in self._buffers.kept() if self._is_in_window else ():
            if entry.is_saved:
                checkpoint[MODELS][entry.model_index][entry.key] = tensor

    def on_trial_shutdown(self) -> None:
        """Leave the optimizers as they were."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def state_dict(self) -> dict[str, Any]:
        """Return the counts and the running means; the state to go back to, unless it is the
        current one; and buffers inside an accumulation window.
        """
        state = {
            "refused": self.refused,
            "refused_in_a_row": self._refused_in_a_row,
            "rollbacks": self.rollbacks,
            "norms": [[norms.mean, norms.count] for norms in self._norms],
        }
        if self._is_in_window and self._buffers.is_made:
            state["buffers"] = self._buffers.tensors()
        if self._good is not None and self._good_after != self._context._current_batch_idx:
            state["good"] = self._good
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue to count."""
        self.refused = state_dict["refused"]
        self._refused_in_a_row = state_dict["refused_in_a_row"]
        self.rollbacks = state_dict["rollbacks"]
        self._norms = [RunningMean(mean, count) for mean, count in state_dict["norms"]]
        self._saved = state_dict

    def _before_step(self, norms: RunningMean) -> Any:
        def judge(optimizer: Optimizer, *_: Any) -> None:
            problem = self._agree(self._problem_of(optimizer, norms))
            if problem is not None:
                self._problem = self._problem or problem
                # An optimizer leaves a parameter without gradient alone, state and all.
                for group in optimizer.param_groups:
                    for parameter in group["params"]:
                        parameter.grad = None

        return judge

    def _problem_of(self, optimizer: Optimizer, norms: RunningMean) -> str | None:
        name = type(optimizer).__name__
        if getattr(optimizer, "found_inf", None) is not None:
            return None  # a fused step under a scaler: it leaves out bad updates itself
        if self._spike_factor is None:
            is_finite = are_finite(gradients_of(optimizer))
            return None if is_finite else f"the gradients of {name} are not finite."
        tensor = norm_of(optimizer)
        if tensor is None:
            return None
        norm = float(tensor)
        if not math.isfinite(norm):
            return f"the gradients of {name} are not finite."
        if norms.is_settled and norm > norms.mean * self._spike_factor:
            return (
                f"the gradient norm of {name} is {norm:.4g}, more than {self._spike_factor:g} "
                f"times the mean of {norms.mean:.4g}."
            )
        norms.add(norm)
        return None

    def _agree(self, problem: str | None) -> str | None:
        """Have all ranks refuse what one of them refuses, or their weights would drift apart."""
        if self._context.distributed.size == 1:
            return problem
        flag = torch.tensor(float(problem is not None), device=self._context.device)
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        return problem or ("another rank rejected its gradients." if flag.item() else None)

    def _are_finite(self, buffers_only: bool = False) -> bool:
        watched = {id(entry) for entry in self._watched}
        # What a batch did to buffers inside a window is undone at its end, if need be.
        now = self._buffers.kept() if self._is_in_window else self._buffers.current()
        tensors = [tensor for entry, tensor in now if id(entry) in watched]
        if not buffers_only:
            tensors += [entry.tensor for entry in self._watched if not entry.is_buffer]
            for optimizer in self._context.optimizers:
                for state in optimizer.state.values():
                    tensors += [v for v in state.values() if isinstance(v, torch.Tensor)]
        return are_finite(tensors)

    @property
    def _is_in_window(self) -> bool:
        """Whether the last batch left gradients for later ones to be added to."""
        batch_idx = self._context._current_batch_idx
        return batch_idx is not None and not self._context._should_communicate_and_update()

    # Acting.

    def _act(self, problem: str) -> None:
        if self._can_roll_back():
            self._roll_back(problem)
        elif self._action == "skip" and self._refused_in_a_row < _MAX_SKIPS_IN_A_ROW:
            self._log(f"{problem} The update was skipped.")
        else:
            self._log(f"{problem} Training stops with the weights before this update.")
            self._is_stopping = True
            self._context.set_stop_requested(True)
            if self._context.distributed.rank == 0:
                self._context._core.train.report_early_exit(EarlyExitReason.INVALID_HP)

    def _can_roll_back(self) -> bool:
        return self._good is not None and self.rollbacks < self._max_rollbacks

    def _roll_back(self, problem: str) -> None:
        assert self._good is not None
        self.rollbacks += 1
        state = from_plain(copy_state(self._good), Trust(anything=True), self._living)
        restore(self._context, self._callbacks, state)
        self._log(
            f"{problem} Rolled back to the state of the last report: rollback {self.rollbacks} of "
            f"{self._max_rollbacks}."
        )

    def _remember(self) -> None:
        if self._action == "rollback":
            self._good = self._memory.copy(to_plain(collect(self._context, self._callbacks)))
            self._good_after = self._context._current_batch_idx

    def _living(self) -> Living:
        return living_in(collect(self._context, self._callbacks))

    def _log(self, message: str) -> None:
        if self._context.distributed.rank == 0:
            logger.warning(message)


class RunningMean:
    """The mean of all numbers at first, of about the last twenty later."""

    def __init__(self, mean: float = 0.0, count: int = 0) -> None:
        self.mean = mean
        self.count = count

    @property
    def is_settled(self) -> bool:
        """Whether there were enough numbers to compare others with."""
        return self.count >= _MEAN_LENGTH

    def add(self, value: float) -> None:
        """Take in one more number."""
        self.count += 1
        self.mean += (value - self.mean) / min(self.count, _MEAN_LENGTH)
