"""The trial's interface to its run: gradients, data, TensorBoard; the rest comes from bases."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import LBFGS, Optimizer

from determined.core import Context, DistributedContext
from determined.errors import InternalException, InvalidExperimentException
from determined.pytorch._checkpoint.state.modules import AsBuilt
from determined.pytorch._checks.arguments import check_number
from determined.pytorch._context import apex
from determined.pytorch._context.run_facts import RunFacts
from determined.pytorch._context.wrapping import WrappedParts, parameters_of
from determined.pytorch._data.batches import TorchData, to_device
from determined.pytorch._observer import UNOBSERVED, Observer
from determined.pytorch._ranks.ddp import set_gradient_sync
from determined.pytorch._ranks.fsdp import is_sharded, reshard

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class PyTorchTrialContext(RunFacts, WrappedParts):
    """Gives a trial access to its run; created by `pytorch.init()`.

    In the trial's `__init__`, wrap models, optimizers and schedulers. In `train_batch`, call
    `backward` and `step_optimizer` instead of torch's own methods: they take care of gradient
    accumulation, mixed precision and ranks.

    Attributes:
        distributed: Ranks and collectives of this job.
        device: The device of models and batches.
        models, optimizers, lr_schedulers: What was wrapped, in order.
        profiler: The torch profiler, once `set_profiler` was called.
        experimental: Settings that may still change.
    """

    def __init__(
        self,
        core_context: Context,
        trial_seed: int | None,
        hparams: dict[str, Any] | None,
        slots_per_trial: int,
        num_gpus: int,
        exp_conf: dict[str, Any] | None,
        aggregation_frequency: int,
        steps_completed: int,
        managed_training: bool,
        debug_enabled: bool,
        enable_tensorboard_logging: bool = True,
        device: torch.device | str | None = None,
    ) -> None:
        RunFacts.__init__(
            self,
            core_context,
            trial_seed,
            hparams,
            slots_per_trial,
            exp_conf,
            steps_completed,
            enable_tensorboard_logging,
        )
        distributed = core_context.distributed
        WrappedParts.__init__(
            self,
            distributed,
            _choose_device(device, num_gpus, distributed),
            managed_training,
            aggregation_frequency,
        )
        self._debug_enabled = debug_enabled
        self._last_backward_batch_idx: int | None = None
        self._num_updates = 0
        self._on_step: Callable[[Optimizer], None] | None = None  # during the first updates only
        self._warned_types: set[type] = set()
        self._tbd_writer: SummaryWriter | None = None
        self.profiler: torch.profiler.profile | None = None

        self._run_id: str | None = None
        self._given_seed: int | None = None
        self._run_facts: dict[str, Any] = {}
        self._storage_section: dict[str, Any] = {}
        self._allow_pickle = False
        self._save_frozen: str | None = None
        self._exact = False
        self._as_built: AsBuilt | None = None
        self._is_pre_trainer = False
        self._be_watched(UNOBSERVED)

    def _be_watched(self, observer: Observer) -> None:
        """Have an observer see what the trial asks for."""
        self._copy = observer.watch("copy", to_device)
        self._differentiate = observer.watch("backward", _differentiate)
        self._differentiate_with_apex = observer.watch("backward", apex.backward)
        self._update = observer.watch("optimizer", PyTorchTrialContext._update_weights)

    # Gradients.

    def backward(
        self,
        loss: torch.Tensor,
        gradient: torch.Tensor | None = None,
        retain_graph: bool = False,
        create_graph: bool = False,
        *,
        only: Optimizer | None = None,
    ) -> None:
        """Compute gradients; call it instead of `loss.backward()`, as often as needed.

        Args:
            loss: What to differentiate.
            gradient, retain_graph, create_graph: As in torch.
            only: Add gradients to the parameters of this optimizer and to no others, so that a loss
                that runs through several models, as a generator's through its discriminator, leaves
                none in those of another optimizer.
        """
        if not isinstance(loss, torch.Tensor):
            raise TypeError(f"`loss` must be a tensor, got {loss!r}.")
        if gradient is not None and not isinstance(gradient, torch.Tensor):
            raise TypeError(f"`gradient` must be a tensor, got {gradient!r}.")
        if self._use_apex:
            if only is not None:
                raise InvalidExperimentException("backward(only=...) does not work with apex.")
            self._differentiate_with_apex(self, loss, gradient, retain_graph, create_graph)
            return
        if self._scaler is not None and self.experimental._auto_amp:
            loss = self._scaler.scale(loss)
        if only is None:
            self._differentiate(loss, gradient, retain_graph, create_graph)
        else:
            with self._other_gradients_kept(only):
                self._differentiate(loss, gradient, retain_graph, create_graph)

    @contextlib.contextmanager
    def _other_gradients_kept(self, only: Optimizer) -> Iterator[None]:
        """Set the gradients of other parameters aside, and put them back.

        The backward pass computes them all: DDP waits until each of a model's parameters has one.
        """
        if id(only) not in self._averages_gradients:
            raise InvalidExperimentException(
                f"`only` must be a wrapped optimizer, got a {type(only).__name__} that is not "
                "wrapped: use context.wrap_optimizer(...)."
            )
        if self._aggregation_frequency > 1 and any(map(is_sharded, self.models)):
            raise InvalidExperimentException(
                "backward(only=...) cannot be combined with gradient accumulation on a model "
                "wrapped with parallel='fsdp', which accumulates its gradients elsewhere: clear "
                "them by hand."
            )
        chosen = {id(p) for p in parameters_of(only)}
        parameters = {id(p): p for o in self.optimizers for p in parameters_of(o)}
        parameters |= {id(p): p for model in self.models for p in model.parameters()}
        others = [(p, p.grad) for key, p in parameters.items() if key not in chosen]
        for parameter, _ in others:
            parameter.grad = None
        try:
            yield
        finally:
            for parameter, gradient in others:
                parameter.grad = gradient

    def step_optimizer(
        self,
        optimizer: Optimizer,
        clip_grads: Callable[[Iterator[torch.Tensor]], None] | None = None,
        auto_zero_grads: bool = True,
        scaler: Any = None,
        *,
        closure: Callable[[], Any] | None = None,
        clip_grad_norm: float | None = None,
    ) -> None:
        """Update the weights; call it instead of `optimizer.step()`.

        Inside an accumulation window it does nothing, so that gradients accumulate.

        Args:
            optimizer: A wrapped one.
            clip_grads: Called with the list of parameters before the step, after averaging (and,
                under `use_amp`, after unscaling).
            auto_zero_grads: Clear the gradients after the step. Required with gradient
                accumulation.
            scaler: The scaler of manual mixed precision; call its `update()` yourself.
            closure: For optimizers such as LBFGS that evaluate the loss themselves: clears the
                gradients, calls `context.backward(loss)` and returns the loss. On one rank only,
                without gradient accumulation or a gradient scaler.
            clip_grad_norm: Scale the gradients of this optimizer down so that their norm, over all
                of its parameters, is at most this; replaces `clip_grads`. Scaled gradients are
                unscaled first.
        """
        if clip_grad_norm is not None:
            clip_grads = _clipping_to(clip_grad_norm, clip_grads)
        key = id(optimizer)
        if key not in self._averages_gradients:
            raise InvalidExperimentException(
                f"This {type(optimizer).__name__} is not wrapped: use context.wrap_optimizer(...)."
            )
        if self._aggregation_frequency > 1 and not auto_zero_grads:
            raise InvalidExperimentException(
                "auto_zero_grads=False cannot be combined with an aggregation_frequency above 1: "
                "the trainer must clear gradients after each window."
            )
        if closure is not None:
            self._check_closure(scaler)
        elif isinstance(optimizer, LBFGS):
            raise InvalidExperimentException(
                "LBFGS evaluates the loss itself: pass context.step_optimizer(optimizer, "
                "closure=...), a function that calls optimizer.zero_grad() and "
                "context.backward(loss) and returns the loss."
            )
        in_windows = self._aggregation_frequency > 1 or self._current_batch_idx is None
        if in_windows and not self._should_communicate_and_update():
            return
        self._num_updates += 1
        if self._on_step is not None:
            self._on_step(optimizer)
        unscaler = scaler if clip_grad_norm is not None else None
        if self._scaler is not None and self.experimental._auto_amp:
            unscaler = self._scaler
            scaler = self._scaler if scaler is None else scaler
        self._update(self, optimizer, clip_grads, unscaler, scaler, closure, auto_zero_grads)

    def _update_weights(
        self,
        optimizer: Optimizer,
        clip_grads: Callable[[Iterator[torch.Tensor]], None] | None,
        unscaler: Any,
        scaler: Any,
        closure: Callable[[], Any] | None,
        auto_zero_grads: bool,
    ) -> None:
        """Take the step, with gradients averaged, unscaled and clipped."""
        if self.distributed.size > 1:  # one rank holds its models whole
            reshard(self.models)
        if self._aggregation_frequency > 1 and self._averages_gradients[id(optimizer)]:
            self._average_gradients(self._parameters_of(optimizer), self._aggregation_frequency)
        if clip_grads is not None:
            if unscaler is not None:
                unscaler.unscale_(optimizer)
            clip_grads(self._parameters_of(optimizer))  # type: ignore[arg-type]  # a list iterates as well
        if scaler is not None:
            scaler.step(optimizer)
        elif closure is not None:
            optimizer.step(closure)
        else:
            optimizer.step()
        if auto_zero_grads:
            optimizer.zero_grad()

    def _check_closure(self, scaler: Any) -> None:
        """Refuse what does not go with an optimizer that evaluates the loss itself."""
        for is_so, what in (
            (
                self.distributed.size > 1,
                "several ranks, which may evaluate it a different number of times",
            ),
            (self._aggregation_frequency > 1, "an aggregation_frequency above 1"),
            (scaler is not None or self._scaler is not None, "a gradient scaler"),
            (self._use_apex, "apex"),
        ):
            if is_so:
                raise InvalidExperimentException(
                    f"step_optimizer(closure=...) cannot be combined with {what}."
                )

    def _parameters_of(self, optimizer: Optimizer) -> list[torch.Tensor]:
        return apex.master_params(optimizer) if self._use_apex else parameters_of(optimizer)

    @staticmethod
    def _average_gradients(parameters: Any, divisor: int) -> None:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.data.div_(divisor)

    def _should_communicate_and_update(self) -> bool:
        """Say whether this batch ends an aggregation window."""
        if not self._managed_training:
            return True
        if self._current_batch_idx is None:
            raise InternalException("No batch is being trained yet: call this from train_batch.")
        return (self._current_batch_idx + 1) % self._aggregation_frequency == 0

    def _begin_batch(self, batch_idx: int) -> bool:
        """Note the batch about to be trained and say whether it ends an aggregation window."""
        self._current_batch_idx = batch_idx
        if self._aggregation_frequency == 1:
            return True
        is_update = (batch_idx + 1) % self._aggregation_frequency == 0
        if self.distributed.size > 1:
            set_gradient_sync(self.models, is_update)
        return is_update

    # Mixed precision of older trials.

    def configure_apex_amp(
        self,
        models: Any,
        optimizers: Any,
        enabled: bool | None = True,
        opt_level: str | None = "O1",
        cast_model_type: torch.dtype | None = None,
        patch_torch_functions: bool | None = None,
        keep_batchnorm_fp32: bool | str | None = None,
        master_weights: bool | None = None,
        loss_scale: float | str | None = None,
        cast_model_outputs: torch.dtype | None = None,
        num_losses: int | None = 1,
        verbosity: int | None = 1,
        min_loss_scale: float | None = None,
        max_loss_scale: float | None = 2.0**24,
    ) -> tuple[Any, Any]:
        """Set up mixed precision for trials written for apex. New trials: `experimental.use_amp`.

        Call it after models and optimizers are wrapped. Where apex is not installed, `O0` and `O1`
        run through torch's own autocast.
        """
        if not enabled or not self._managed_training:
            return models, optimizers
        options = {
            "opt_level": opt_level,
            "cast_model_type": cast_model_type,
            "patch_torch_functions": patch_torch_functions,
            "keep_batchnorm_fp32": keep_batchnorm_fp32,
            "master_weights": master_weights,
            "loss_scale": loss_scale,
            "cast_model_outputs": cast_model_outputs,
            "num_losses": num_losses,
            "verbosity": verbosity if self.distributed.rank == 0 or self._debug_enabled else 0,
            "min_loss_scale": min_loss_scale,
            "max_loss_scale": max_loss_scale,
        }
        return apex.configure(self, models, optimizers, options)

    # Data and devices.

    def to_device(self, data: Any) -> TorchData:
        """Copy a nested structure of tensors and arrays to the device."""
        return self._copy(data, self.device, self._warned_types)

    # TensorBoard and profiling.

    def get_tensorboard_path(self) -> pathlib.Path:
        """Return the directory of this rank's event files."""
        return self._core.train.get_tensorboard_path()

    def get_tensorboard_writer(self) -> SummaryWriter:
        """Return a `SummaryWriter` for this run's directory; every call returns the same one."""
        if self._tbd_writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._tbd_writer = SummaryWriter(_utf8_name(self.get_tensorboard_path()))
        return self._tbd_writer

    def _maybe_reset_tbd_writer(self) -> None:
        """Bring what the user's writer holds to disk."""
        if self._tbd_writer is not None:
            self._tbd_writer.flush()

    def set_profiler(self, *args: Any, **kwargs: Any) -> None:
        """Profile training with `torch.profiler.profile(*args, **kwargs)`.

        Traces go to the run's TensorBoard directory. The profiler is stepped once per batch.
        """
        path = str(self.get_tensorboard_path())
        self.profiler = torch.profiler.profile(
            *args, on_trace_ready=torch.profiler.tensorboard_trace_handler(path), **kwargs
        )

    def _set_is_pre_trainer(self) -> None:
        """Note that the launcher of `module:Class` entrypoints made this context."""
        self._is_pre_trainer = True


def _differentiate(
    loss: torch.Tensor, gradient: torch.Tensor | None, retain_graph: bool, create_graph: bool
) -> None:
    loss.backward(gradient=gradient, retain_graph=retain_graph, create_graph=create_graph)  # type: ignore[no-untyped-call]  # untyped in torch


def _clipping_to(max_norm: float, clip_grads: Any) -> Callable[[Any], None]:
    check_number("clip_grad_norm", max_norm)
    if max_norm == 0 or clip_grads is not None:
        raise ValueError(
            "`clip_grad_norm` must be above 0 and replaces `clip_grads`: give one of the two, got "
            f"clip_grad_norm={max_norm!r} and clip_grads={clip_grads!r}."
        )

    def clip(parameters: Any) -> None:
        torch.nn.utils.clip_grad_norm_(parameters, max_norm)

    return clip


def _choose_device(
    asked: torch.device | str | None, num_gpus: int, distributed: DistributedContext
) -> torch.device:
    if asked is not None:
        try:
            return torch.device(asked)
        except (RuntimeError, TypeError, ValueError) as e:
            raise ValueError(
                f"`device` must be a torch.device or the name of one, such as 'cuda:1', got "
                f"{asked!r}."
            ) from e
    accelerator = torch.accelerator.current_accelerator() if num_gpus > 0 else None
    if accelerator is None:
        return torch.device("cpu")
    if accelerator.type == "mps":
        return torch.device("mps")
    if distributed.size == 1:
        return torch.device(accelerator.type, 0)
    device = torch.device(accelerator.type, distributed.local_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def _utf8_name(directory: pathlib.Path) -> str:
    """Return a name of a directory for TensorBoard, which takes UTF-8 only."""
    try:
        str(directory).encode()
    except UnicodeEncodeError:
        return f"/proc/self/fd/{os.open(directory, os.O_RDONLY)}"  # open as long as the process
    return str(directory)
