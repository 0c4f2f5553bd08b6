"""`PyTorchTrialContext`, the one class between a trial and its run.

It holds what the trial wraps, computes gradients and updates weights, and tells where training is.
"""

from __future__ import annotations

import dataclasses
import logging
import pathlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import LBFGS, Optimizer

from determined.core import Context
from determined.errors import InternalException, InvalidExperimentException
from determined.pytorch._checkpoint.state.modules import AsBuilt
from determined.pytorch._checks.arguments import check_flag, check_kind
from determined.pytorch._checks.wrapping import (
    check_holds_whole_state,
    check_lr_scheduler,
    check_not_built_before_sharding,
    check_optimizer,
    check_scaler,
)
from determined.pytorch._context import apex
from determined.pytorch._context.amp import autocast_forward
from determined.pytorch._context.device import choose_device
from determined.pytorch._context.experimental import PyTorchExperimentalContext
from determined.pytorch._context.gradients import (
    average_gradients,
    check_closure,
    clipping_to_norm,
    differentiate,
    keeping_other_gradients,
    parameters_of,
)
from determined.pytorch._context.lr_scheduler import LRScheduler
from determined.pytorch._context.summary_writer import open_summary_writer
from determined.pytorch._data.batches import TorchData, to_device
from determined.pytorch._instrumentation.observer import UNOBSERVED, Observer
from determined.pytorch._metrics.wrapped_reducers import _PyTorchReducerContext
from determined.pytorch._ranks.ddp import (
    check_options,
    compress_gradients,
    describe_model,
    distribute,
    refuse_static_windows,
    set_gradient_sync,
)
from determined.pytorch._ranks.fsdp import ShardModules, reshard, shard
from determined.pytorch._ranks.together import agree
from determined.util import calculate_batch_sizes

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

logger = logging.getLogger("determined.pytorch")


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """What `pytorch.init()` was given that a run needs later, and a trial never asks for."""

    run_id: str | None = None
    given_seed: int | None = None  # None if the trial's seed derives from torch's
    storage_section: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    allow_pickle: bool = False
    exact: bool = False
    save_frozen: str | None = None


class PyTorchTrialContext(_PyTorchReducerContext):
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
        *,
        options: RunOptions | None = None,
    ) -> None:
        distributed = core_context.distributed
        super().__init__(distributed.allgather)
        self.distributed = distributed
        self.device = choose_device(device, num_gpus, distributed)
        self._core = core_context
        self._managed_training = managed_training
        self._debug_enabled = debug_enabled
        self._is_pre_trainer = False

        self._hparams = hparams
        self._exp_conf = exp_conf
        self._per_slot_batch_size: int | None = None
        self._global_batch_size: int | None = None
        if hparams and hparams.get("global_batch_size"):
            self._per_slot_batch_size, self._global_batch_size = calculate_batch_sizes(
                hparams, slots_per_trial, "PyTorchTrial"
            )
        self._enable_tensorboard_logging = enable_tensorboard_logging
        self._tbd_writer: SummaryWriter | None = None
        self.profiler: torch.profiler.profile | None = None

        options = options or RunOptions()
        self._run_id = options.run_id
        self._run_facts: dict[str, Any] = {}
        self._given_seed = options.given_seed
        self._storage_section = options.storage_section
        self._allow_pickle = options.allow_pickle
        self._exact = options.exact
        self._save_frozen = options.save_frozen

        self.models: list[nn.Module] = []
        self.optimizers: list[Optimizer] = []
        self.lr_schedulers: list[LRScheduler] = []
        self.experimental = PyTorchExperimentalContext(self)
        self._main_model = nn.Module()
        self._scaler: Any = None
        self._use_apex = False
        self._unsharded_parameters: list[weakref.ref[nn.Parameter]] = []
        self._as_built: AsBuilt | None = None
        self._constructed: Any = None  # the settings that the script gave to optimizers

        self._aggregation_frequency = aggregation_frequency
        self._averages_gradients: dict[int, bool] = {}  # by the id of an optimizer
        self._default_gradient_compression = False
        self._default_average_aggregated_gradients = True
        self._num_updates = 0
        self._on_step: Callable[[Optimizer], None] | None = None  # during the first updates only
        self._last_backward_batch_idx: int | None = None
        self._warned_types: set[type] = set()

        self._trial_seed = trial_seed
        self._steps_completed = steps_completed
        self._epoch_len: int | None = None
        self._current_batch_idx: int | None = None
        self._stop_requested = False
        self._set_observer(UNOBSERVED)

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
        hparams = self.get_hparams()
        if name not in hparams:
            raise ValueError(
                f"There is no hyperparameter {name!r}; the hyperparameters are "
                f"{sorted(map(str, hparams))}."
            )
        if name == "global_batch_size":
            logger.warning(
                "Use context.get_per_slot_batch_size() or get_global_batch_size() rather than the "
                "hyperparameter global_batch_size: they account for the number of slots."
            )
        return hparams[name]

    def get_experiment_config(self) -> dict[str, Any]:
        """Return the experiment configuration given to `pytorch.init`."""
        if self._exp_conf is None:
            raise ValueError("There is no experiment config: pass pytorch.init(exp_conf={...}).")
        return self._exp_conf

    def get_data_config(self) -> dict[str, Any]:
        """Return the free-form `data` section of the experiment configuration."""
        return self.get_experiment_config().get("data") or {}

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

    # Models, optimizers, schedulers.

    def wrap_model(
        self,
        model: nn.Module,
        *,
        parallel: str = "ddp",
        shard_modules: ShardModules | None = None,
        compile: bool | dict[str, Any] = False,
        **options: Any,
    ) -> nn.Module:
        """Move a model to the device, distribute and register it. Build optimizers from the result.

        Args:
            model: Any module. One without trainable parameters is registered, but not wrapped in
                DDP.
            parallel: What to do when there are several ranks. `"ddp"`: each rank has the whole
                model. `"fsdp"`: each rank has a shard of it, for models that do not fit on one
                device; weights are gathered unit by unit while they are needed.
            shard_modules: With `"fsdp"`, the submodules that are such units, or a function that
                decides for each submodule. By default the members of the outermost lists of layers;
                the rest is one more unit.
            compile: True, or the arguments of `torch.compile`; checkpoints are the same either way.
            **options: Passed to torch's DistributedDataParallel, or to its `fully_shard`
                (`reshard_after_forward`, `mp_policy`, `offload_policy`).
        """
        check_kind("model", model, nn.Module, "a torch.nn.Module", optional=False)
        check_kind("parallel", parallel, str, "a string", optional=False)
        check_kind("compile", compile, (bool, dict), "True, False or a dictionary", optional=False)
        check_options(parallel, shard_modules, options)
        is_distributed = self._managed_training and self.distributed.size > 1
        splits = is_distributed and parallel == "fsdp"
        if self._managed_training:
            self._refuse_after_apex("wrap_model")
            if not splits:
                model = model.to(self.device)
        if self.experimental._autocast is not None:
            autocast_forward(model, *self.experimental._autocast)
        if is_distributed:
            step = f"wrap_model {len(self.models)} with {parallel}"
            agree(self.distributed, step, {"the model": describe_model(model)})
        if splits:
            self._unsharded_parameters += [weakref.ref(p) for p in model.parameters()]
            model = shard(model, self.device, shard_modules, options)
        elif is_distributed:
            refuse_static_windows(options, self._aggregation_frequency)
            model = distribute(model, self.device, options)
        if compile and self._managed_training:
            model.compile(**(compile if isinstance(compile, dict) else {}))
        self._main_model.add_module(f"model_{len(self.models)}", model)
        self.models.append(model)
        return model

    def autocast_forward_pass(self, to_wrap: nn.Module) -> nn.Module:
        """Make a model's forward pass run under autocast, as `experimental.use_amp` does."""
        device_type, dtype = self.experimental._autocast or (
            self.device.type,
            torch.get_autocast_dtype(self.device.type),
        )
        return autocast_forward(to_wrap, device_type, dtype)

    def wrap_optimizer(
        self,
        optimizer: Optimizer,
        backward_passes_per_step: int = 1,
        fp16_compression: bool | None = None,
        average_aggregated_gradients: bool | None = None,
    ) -> Optimizer:
        """Register an optimizer, so that it is checkpointed and can be stepped.

        Args:
            optimizer: Built from the parameters of wrapped models.
            backward_passes_per_step: Accepted for older trials; torch does not need it.
            fp16_compression: Send gradients between ranks as float16.
            average_aggregated_gradients: Divide gradients by the aggregation frequency before a
                step (the default), instead of summing them.
        """
        check_optimizer(optimizer)
        check_kind("backward_passes_per_step", backward_passes_per_step, int, "an integer", False)
        check_flag("fp16_compression", fp16_compression)
        check_flag("average_aggregated_gradients", average_aggregated_gradients)
        if self._managed_training:
            self._refuse_after_apex("wrap_optimizer")
            check_not_built_before_sharding(optimizer, self._unsharded_parameters)
            check_holds_whole_state(optimizer, self.distributed.size)
            if backward_passes_per_step < 1:
                raise InvalidExperimentException(
                    "`backward_passes_per_step` must be at least 1, got "
                    f"{backward_passes_per_step}."
                )
            if fp16_compression is None:
                fp16_compression = self._default_gradient_compression
            if fp16_compression:
                compress_gradients(self.models, parameters_of(optimizer))
        if average_aggregated_gradients is None:
            average_aggregated_gradients = self._default_average_aggregated_gradients
        self._averages_gradients[id(optimizer)] = average_aggregated_gradients
        self.optimizers.append(optimizer)
        return optimizer

    def wrap_lr_scheduler(
        self, lr_scheduler: Any, step_mode: LRScheduler.StepMode | None = None, frequency: int = 1
    ) -> Any:
        """Register a scheduler, step it as `step_mode` says, and return it.

        Args:
            lr_scheduler: A torch scheduler of a wrapped optimizer, or any object with the same
                methods.
            step_mode: When the trainer steps it; required. `ReduceLROnPlateau` can only be stepped
                by hand.
            frequency: Step only every `frequency`-th time.
        """
        step_mode = check_lr_scheduler(lr_scheduler, step_mode, self.optimizers)
        wrapped = LRScheduler(lr_scheduler, step_mode, frequency)
        if not isinstance(frequency, int) or frequency < 1:
            raise InvalidExperimentException(
                f"`frequency` must be an integer of at least 1, got {frequency!r}."
            )
        self.lr_schedulers.append(wrapped)
        return lr_scheduler

    def wrap_scaler(self, scaler: Any) -> Any:
        """Register a gradient scaler of your own for manual mixed precision, before any model."""
        if self._use_apex:
            raise InvalidExperimentException("A scaler cannot be combined with apex.")
        if self._scaler is not None:
            raise InvalidExperimentException(
                "A scaler is wrapped already (use_amp wraps one too); there can be only one."
            )
        if self.models:
            raise InvalidExperimentException("Wrap the scaler (or call use_amp) before any model.")
        check_scaler(scaler)
        self._scaler = scaler
        return scaler

    def _refuse_after_apex(self, method: str) -> None:
        if self._use_apex:
            raise InvalidExperimentException(f"Call {method} before configure_apex_amp.")

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
            apex.check_once_per_batch(self._last_backward_batch_idx, self._current_batch_idx)
            self._last_backward_batch_idx = self._current_batch_idx
            self._differentiate_with_apex(
                self.optimizers, loss, gradient, retain_graph, create_graph
            )
            return
        if self._scaler is not None and self.experimental._auto_amp:
            loss = self._scaler.scale(loss)
        if only is None:
            self._differentiate(loss, gradient, retain_graph, create_graph)
        else:
            with keeping_other_gradients(self, only):
                self._differentiate(loss, gradient, retain_graph, create_graph)

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
            clip_grads = clipping_to_norm(clip_grad_norm, clip_grads)
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
            check_closure(self, scaler)
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
            # It may have left the step out; torch would warn of a scheduler that came first.
            optimizer._opt_called = True  # type: ignore[attr-defined]  # of torch's schedulers
        elif closure is not None:
            optimizer.step(closure)
        else:
            optimizer.step()
        if auto_zero_grads:
            optimizer.zero_grad()

    def _parameters_of(self, optimizer: Optimizer) -> list[torch.Tensor]:
        return apex.master_params(optimizer) if self._use_apex else parameters_of(optimizer)

    _average_gradients = staticmethod(average_gradients)

    def _should_communicate_and_update(self) -> bool:
        """Say whether this batch ends an aggregation window."""
        if not self._managed_training:
            return True
        if self._current_batch_idx is None:
            raise InternalException("No batch is being trained yet: call this from train_batch.")
        return (self._current_batch_idx + 1) % self._aggregation_frequency == 0

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
        models, optimizers, self._use_apex = apex.configure(self, models, optimizers, options)
        if self._use_apex:
            self.models = self.models if isinstance(models, list) else [models]
            self.optimizers = self.optimizers if isinstance(optimizers, list) else [optimizers]
        return models, optimizers

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

    # Data, TensorBoard, profiling, stopping.

    def to_device(self, data: Any) -> TorchData:
        """Copy a nested structure of tensors and arrays to the device."""
        return self._copy(data, self.device, self._warned_types)

    def get_tensorboard_path(self) -> pathlib.Path:
        """Return the directory of this rank's event files."""
        return self._core.train.get_tensorboard_path()

    def get_tensorboard_writer(self) -> SummaryWriter:
        """Return a `SummaryWriter` for this run's directory; every call returns the same one."""
        if self._tbd_writer is None:
            self._tbd_writer = open_summary_writer(self.get_tensorboard_path())
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

    def get_stop_requested(self) -> bool:
        """Return whether `set_stop_requested(True)` was called on this rank."""
        return self._stop_requested

    def set_stop_requested(self, stop_requested: bool) -> None:
        """Request a stop, with a checkpoint, at the next boundary or within 100 batches.

        One rank asking is enough.
        """
        assert isinstance(stop_requested, bool), (
            f"`stop_requested` must be True or False, got {stop_requested!r}."
        )
        if stop_requested:
            logger.info("The trial requested a stop; training ends at the next boundary.")
        self._stop_requested = stop_requested

    # What the trainer sets, and the launcher of `module:Class` entrypoints.

    def _set_observer(self, observer: Observer) -> None:
        """Have an observer see what the trial asks for; until then nothing is in between."""
        self._copy = observer.watch("copy", to_device)
        self._differentiate = observer.watch("backward", differentiate)
        self._differentiate_with_apex = observer.watch("backward", apex.backward)
        self._update = observer.watch("optimizer", PyTorchTrialContext._update_weights)

    def _name_run(self, run_id: str, facts: dict[str, Any]) -> None:
        """Note which run is trained, and what its checkpoints say about it."""
        self._run_id, self._run_facts = run_id, facts

    def _start_at(self, batches_trained: int, seed: int) -> None:
        """Note where training starts, before callbacks and data loaders ask for it."""
        self._steps_completed, self._trial_seed = batches_trained, seed

    def _set_epoch_length(self, epoch_length: int) -> None:
        """Note how many batches an epoch has, as soon as the data loaders tell."""
        self._epoch_len = epoch_length

    def _set_batches_trained(self, batches_trained: int) -> None:
        """Make the last trained batch the current one: a validation may come before the next."""
        self._current_batch_idx = batches_trained - 1 if batches_trained else None

    def _begin_batch(self, batch_idx: int) -> bool:
        """Note the batch about to be trained and say whether it ends an aggregation window."""
        self._current_batch_idx = batch_idx
        if self._aggregation_frequency == 1:
            return True
        is_update = (batch_idx + 1) % self._aggregation_frequency == 0
        if self.distributed.size > 1:
            set_gradient_sync(self.models, is_update)
        return is_update

    def _remember_models_as_built(self) -> None:
        """Keep what the trial built, to tell later what training changed; the first call counts."""
        if self._as_built is None:
            self._as_built = AsBuilt(self.models)

    def _notify_of_steps(self, on_step: Callable[[Optimizer], None] | None) -> None:
        """Have a function called before each update of weights, or no more."""
        self._on_step = on_step

    def _scale_losses_with(self, scaler: torch.amp.GradScaler) -> None:
        """Scale losses automatically, also after models are wrapped."""
        self._scaler, self.experimental._auto_amp = scaler, True

    def _set_is_pre_trainer(self) -> None:
        self._is_pre_trainer = True

    def _set_default_gradient_compression(self, gradient_compression: bool) -> None:
        self._default_gradient_compression = gradient_compression

    def _set_default_average_aggregated_gradients(self, averaging: bool) -> None:
        self._default_average_aggregated_gradients = averaging
