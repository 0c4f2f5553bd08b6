"""What a trial sees of the run: device, wrapped parts, gradients, settings."""

from __future__ import annotations

import logging
import pathlib
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from determined import core, util
from determined.errors import InternalException, InvalidExperimentException
from determined.pytorch import _apex
from determined.pytorch._amp import autocast_forward
from determined.pytorch._arguments import check_flag, check_kind, check_methods
from determined.pytorch._data import TorchData, to_device
from determined.pytorch._experimental import PyTorchExperimentalContext
from determined.pytorch._fsdp import ShardModules, reshard, shard
from determined.pytorch._lr_scheduler import LRScheduler
from determined.pytorch._parallel import (
    check_options,
    compress_gradients,
    describe_model,
    distribute,
    set_gradient_sync,
)
from determined.pytorch._reducer import _PyTorchReducerContext
from determined.pytorch._together import agree

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

logger = logging.getLogger("determined.pytorch")

_OF_SCHEDULERS = ("step", "state_dict", "load_state_dict")
_OF_SCALERS = ("scale", "step", "update", "state_dict", "load_state_dict")


class PyTorchTrialContext(_PyTorchReducerContext):
    """The trial's door to the run; `pytorch.init()` makes it.

    In the trial's `__init__`, wrap models, optimizers and schedulers. In `train_batch`, call
    `backward` and `step_optimizer` instead of their torch namesakes: they know of aggregation,
    mixed precision and ranks.

    Attributes:
        distributed: Ranks and collectives of this job.
        device: Where models and batches live.
        models, optimizers, lr_schedulers: What was wrapped, in order.
        profiler: The torch profiler, once `set_profiler` was called.
        experimental: Settings that may still change.
    """

    def __init__(
        self,
        core_context: core.Context,
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
        super().__init__(core_context.distributed.allgather)
        self._core = core_context
        self.distributed = core_context.distributed
        self.experimental = PyTorchExperimentalContext(self)

        self._trial_seed = trial_seed
        self._hparams = hparams
        self._exp_conf = exp_conf
        self._num_gpus = num_gpus
        self._aggregation_frequency = aggregation_frequency
        self._steps_completed = steps_completed
        self._managed_training = managed_training
        self._debug_enabled = debug_enabled
        self._enable_tensorboard_logging = enable_tensorboard_logging
        self._per_slot_batch_size: int | None = None
        self._global_batch_size: int | None = None
        if hparams and hparams.get("global_batch_size"):
            self._per_slot_batch_size, self._global_batch_size = util.calculate_batch_sizes(
                hparams, slots_per_trial, "PyTorchTrial"
            )

        self.device = self._choose_device(device)
        self.models: list[nn.Module] = []
        self.optimizers: list[Optimizer] = []
        self.lr_schedulers: list[LRScheduler] = []
        self.profiler: torch.profiler.profile | None = None
        self._main_model = nn.Module()
        self._averages_gradients: dict[int, bool] = {}
        self._split_parameters: list[weakref.ref[nn.Parameter]] = []
        self._default_gradient_compression = False
        self._default_average_aggregated_gradients = True
        self._is_pre_trainer = False
        self._stop_requested = False

        self._epoch_len: int | None = None
        self._current_batch_idx: int | None = None
        self._warned_types: set[type] = set()

        self._scaler: Any = None
        self._use_apex = False
        self._last_backward_batch_idx: int | None = None

        self._run_id: str | None = None
        self._storage_section: dict[str, Any] = {}
        self._allow_pickle = False
        self._tbd_writer: SummaryWriter | None = None

    def _choose_device(self, asked: torch.device | str | None) -> torch.device:
        if asked is not None:
            try:
                return torch.device(asked)
            except (RuntimeError, TypeError, ValueError) as e:
                raise ValueError(
                    f"`device` must be a torch.device or the name of one, such as 'cuda:1', got "
                    f"{asked!r}."
                ) from e
        accelerator = torch.accelerator.current_accelerator() if self._num_gpus > 0 else None
        if accelerator is None:
            return torch.device("cpu")
        if accelerator.type == "mps":
            return torch.device("mps")
        if self.distributed.size == 1:
            return torch.device(accelerator.type, 0)
        device = torch.device(accelerator.type, self.distributed.local_rank)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        return device

    # Settings and facts of the run.

    def get_global_batch_size(self) -> int:
        """Return the batch size over all slots, a multiple of the number of slots."""
        if self._global_batch_size is None:
            raise ValueError(
                "The batch size is unknown: pass pytorch.init(hparams={'global_batch_size': ...})."
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
        hparams = self.get_hparams()
        check_kind("name", name, str, "a string", optional=False)
        if name not in hparams:
            raise ValueError(
                f"There is no hyperparameter {name!r}; there are {sorted(map(str, hparams))}."
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
        """Return the `data` part of the experiment configuration."""
        return self.get_experiment_config().get("data", {})  # type: ignore[no-any-return]  # user's YAML

    def get_experiment_id(self) -> int:
        """Return the experiment's number; 0 outside the platform."""
        info = self._core.info
        return info.trial.experiment_id if info and info.task_type == "TRIAL" else 0

    def get_trial_id(self) -> int:
        """Return the trial's number; 0 outside the platform."""
        info = self._core.info
        return info.trial.trial_id if info and info.task_type == "TRIAL" else 0

    def get_trial_seed(self) -> int:
        """Return the seed from which data order and augmentation derive."""
        if self._trial_seed is None:
            raise InternalException(
                "This context has no seed; make it with pytorch.init(seed=...)."
            )
        return self._trial_seed

    def get_initial_batch(self) -> int:
        """Return how many batches were trained before this process, 0 for a fresh start."""
        return self._steps_completed

    def get_stop_requested(self) -> bool:
        """Say whether `set_stop_requested(True)` was called on this rank."""
        return self._stop_requested

    def set_stop_requested(self, stop_requested: bool) -> None:
        """Ask to stop, with a checkpoint, at the next boundary or within 100 batches.

        One rank asking is enough.
        """
        assert isinstance(stop_requested, bool), (
            f"`stop_requested` must be True or False, got {stop_requested!r}."
        )
        logger.info("The trial asked to stop; training ends at the next boundary.")
        self._stop_requested = stop_requested

    def get_enable_tensorboard_logging(self) -> bool:
        """Say whether metrics go to TensorBoard by themselves."""
        return self._enable_tensorboard_logging

    def set_enable_tensorboard_logging(self, enable_tensorboard_logging: bool) -> None:
        """Choose whether metrics go to TensorBoard by themselves."""
        assert isinstance(enable_tensorboard_logging, bool), (
            "`enable_tensorboard_logging` must be True or False, got "
            f"{enable_tensorboard_logging!r}."
        )
        self._enable_tensorboard_logging = enable_tensorboard_logging

    # Where training is.

    def is_epoch_start(self) -> bool:
        """Say whether the current batch is the first of its epoch."""
        return self.current_train_batch() % self._epoch_length() == 0

    def is_epoch_end(self) -> bool:
        """Say whether the current batch is the last of its epoch."""
        return self.current_train_batch() % self._epoch_length() == self._epoch_length() - 1

    def current_train_epoch(self) -> int:
        """Return the index of the epoch of the current batch."""
        return self.current_train_batch() // self._epoch_length()

    def current_train_batch(self) -> int:
        """Return the index of the current batch since the start of the trial."""
        if self._current_batch_idx is None:
            raise InternalException("No batch is being trained yet: ask from train_batch or later.")
        return self._current_batch_idx

    def _epoch_length(self) -> int:
        if self._epoch_len is None:
            raise InternalException(
                "The data loaders do not exist yet: ask from train_batch or later."
            )
        return self._epoch_len

    # Wrapping.

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
            model: Any module. One without trainable parameters is registered and left
                undistributed by DDP.
            parallel: What to do when there are several ranks. `"ddp"`: each has the whole model.
                `"fsdp"`: each has a part of it, for models that do not fit a device; weights are
                gathered unit by unit while they are needed.
            shard_modules: With `"fsdp"`, the submodules that are such units, or a function that
                says so of a submodule. By default the members of the outermost lists of layers;
                what is left is one more unit.
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
            self._split_parameters += [weakref.ref(p) for p in model.parameters()]
            model = shard(model, self.device, shard_modules, options)
        elif is_distributed:
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
            backward_passes_per_step: Kept for older trials; torch needs no such hint.
            fp16_compression: Send gradients between ranks as float16.
            average_aggregated_gradients: Divide gradients by the aggregation frequency before a
                step (the default), instead of summing them.
        """
        if not isinstance(getattr(optimizer, "param_groups", None), list):
            raise TypeError(f"`optimizer` must be a torch optimizer, got {optimizer!r}.")
        check_kind(
            "backward_passes_per_step",
            backward_passes_per_step,
            int,
            "a whole number",
            optional=False,
        )
        check_flag("fp16_compression", fp16_compression)
        check_flag("average_aggregated_gradients", average_aggregated_gradients)
        if self._managed_training:
            self._refuse_after_apex("wrap_optimizer")
            self._refuse_split_parameters(optimizer)
            if backward_passes_per_step < 1:
                raise InvalidExperimentException(
                    "`backward_passes_per_step` must be at least 1, got "
                    f"{backward_passes_per_step}."
                )
            if fp16_compression is None:
                fp16_compression = self._default_gradient_compression
            if fp16_compression:
                compress_gradients(self.models, _parameters(optimizer))
        if average_aggregated_gradients is None:
            average_aggregated_gradients = self._default_average_aggregated_gradients
        self._averages_gradients[id(optimizer)] = average_aggregated_gradients
        self.optimizers.append(optimizer)
        return optimizer

    def wrap_lr_scheduler(
        self, lr_scheduler: Any, step_mode: LRScheduler.StepMode, frequency: int = 1
    ) -> Any:
        """Register a scheduler, step it as `step_mode` says, and return it.

        Args:
            lr_scheduler: A torch scheduler of a wrapped optimizer, or any object with its methods.
            step_mode: When the trainer steps it. `ReduceLROnPlateau` can only be stepped by hand.
            frequency: Step at every `frequency`-th occasion.
        """
        check_methods("lr_scheduler", lr_scheduler, _OF_SCHEDULERS, "a learning-rate scheduler")
        if isinstance(lr_scheduler, ReduceLROnPlateau) and (
            step_mode != LRScheduler.StepMode.MANUAL_STEP
        ):
            raise InvalidExperimentException(
                "ReduceLROnPlateau needs a metric for each step: wrap it with "
                "StepMode.MANUAL_STEP and call "
                "its step(metric) yourself, for example in on_validation_end."
            )
        optimizer = getattr(lr_scheduler, "optimizer", None)
        if optimizer is not None and all(optimizer is not o for o in self.optimizers):
            raise InvalidExperimentException(
                "The scheduler's optimizer is not wrapped: pass it through "
                "context.wrap_optimizer first."
            )
        wrapped = LRScheduler(lr_scheduler, step_mode, frequency)
        if not isinstance(frequency, int) or frequency < 1:
            raise InvalidExperimentException(
                f"`frequency` must be a whole number of at least 1, got {frequency!r}."
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
        check_methods("scaler", scaler, _OF_SCALERS, "a gradient scaler")
        self._scaler = scaler
        return scaler

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
        return _apex.configure(self, models, optimizers, options)

    def _refuse_after_apex(self, method: str) -> None:
        if self._use_apex:
            raise InvalidExperimentException(f"Call {method} before configure_apex_amp.")

    def _refuse_split_parameters(self, optimizer: Optimizer) -> None:
        """Refuse an optimizer that was built before its model was split: it would do nothing."""
        split = {id(reference()) for reference in self._split_parameters} - {id(None)}
        if any(id(parameter) in split for parameter in _parameters(optimizer)):
            raise InvalidExperimentException(
                f"This {type(optimizer).__name__} was built before context.wrap_model(model, "
                "parallel='fsdp') split the weights: build it from the wrapped model's parameters."
            )

    # Gradients.

    def backward(
        self,
        loss: torch.Tensor,
        gradient: torch.Tensor | None = None,
        retain_graph: bool = False,
        create_graph: bool = False,
    ) -> None:
        """Compute gradients; call it instead of `loss.backward()`, as often as needed."""
        if not isinstance(loss, torch.Tensor):
            raise TypeError(f"`loss` must be a tensor, got {loss!r}.")
        if gradient is not None and not isinstance(gradient, torch.Tensor):
            raise TypeError(f"`gradient` must be a tensor, got {gradient!r}.")
        if self._use_apex:
            _apex.backward(self, loss, gradient, retain_graph, create_graph)
            return
        if self._scaler is not None and self.experimental._auto_amp:
            loss = self._scaler.scale(loss)
        loss.backward(gradient=gradient, retain_graph=retain_graph, create_graph=create_graph)  # type: ignore[no-untyped-call]  # untyped in torch

    def step_optimizer(
        self,
        optimizer: Optimizer,
        clip_grads: Callable[[Iterator[torch.Tensor]], None] | None = None,
        auto_zero_grads: bool = True,
        scaler: Any = None,
    ) -> None:
        """Update the weights; call it instead of `optimizer.step()`.

        Between the updates of an aggregation window it does nothing, so that gradients add up.

        Args:
            optimizer: A wrapped one.
            clip_grads: Called with the list of parameters before the step, after averaging (and,
                under `use_amp`, after unscaling).
            auto_zero_grads: Clear the gradients after the step. Needed with aggregation.
            scaler: The scaler of manual mixed precision; call its `update()` yourself.
        """
        averages = self._averages_gradients.get(id(optimizer))
        if averages is None:
            raise InvalidExperimentException(
                f"This {type(optimizer).__name__} is not wrapped: make it with "
                "context.wrap_optimizer(...)."
            )
        if self._aggregation_frequency > 1 and not auto_zero_grads:
            raise InvalidExperimentException(
                "auto_zero_grads=False cannot be combined with an aggregation_frequency above 1: "
                "the trainer "
                "must clear gradients after each window."
            )
        if not self._should_communicate_and_update():
            return
        if self.distributed.size > 1:  # one rank holds its models whole
            reshard(self.models)
        if averages and self._aggregation_frequency > 1:
            self._average_gradients(self._parameters_of(optimizer), self._aggregation_frequency)
        auto_amp = self.experimental._auto_amp and self._scaler is not None
        if clip_grads is not None:
            if auto_amp:
                self._scaler.unscale_(optimizer)
            clip_grads(self._parameters_of(optimizer))  # type: ignore[arg-type]  # a list iterates as well
        if scaler is None and auto_amp:
            scaler = self._scaler
        if scaler is not None:
            scaler.step(optimizer)
        else:
            optimizer.step()
        if auto_zero_grads:
            optimizer.zero_grad()

    def _parameters_of(self, optimizer: Optimizer) -> list[torch.Tensor]:
        return _apex.master_params(optimizer) if self._use_apex else _parameters(optimizer)

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

    # Data and devices.

    def to_device(self, data: Any) -> TorchData:
        """Copy a nest of tensors and arrays to the device."""
        return to_device(data, self.device, self._warned_types)

    # TensorBoard and profiling.

    def get_tensorboard_path(self) -> pathlib.Path:
        """Return the directory of this rank's event files."""
        return self._core.train.get_tensorboard_path()

    def get_tensorboard_writer(self) -> SummaryWriter:
        """Return a `SummaryWriter` on this run's directory, the same one each time."""
        if self._tbd_writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._tbd_writer = SummaryWriter(str(self.get_tensorboard_path()))
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

    # Set by the launcher of `module:Class` entrypoints.

    def _set_default_gradient_compression(self, gradient_compression: bool) -> None:
        self._default_gradient_compression = gradient_compression

    def _set_default_average_aggregated_gradients(self, averaging: bool) -> None:
        self._default_average_aggregated_gradients = averaging

    def _set_is_pre_trainer(self) -> None:
        self._is_pre_trainer = True


def _parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]
