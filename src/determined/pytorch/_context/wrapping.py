"""What a trial trains with: the models, optimizers, schedulers and scaler that it wraps."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from determined.core import DistributedContext
from determined.errors import InvalidExperimentException
from determined.pytorch._checks.arguments import check_flag, check_kind, check_methods
from determined.pytorch._context.amp import autocast_forward
from determined.pytorch._context.experimental import PyTorchExperimentalContext
from determined.pytorch._context.lr_scheduler import LRScheduler
from determined.pytorch._metrics.wrapped_reducers import _PyTorchReducerContext
from determined.pytorch._ranks.ddp import (
    check_options,
    compress_gradients,
    describe_model,
    distribute,
    refuse_static_windows,
)
from determined.pytorch._ranks.fsdp import ShardModules, shard
from determined.pytorch._ranks.together import agree

_OF_SCHEDULERS = ("step", "state_dict", "load_state_dict")
_OF_SCALERS = ("scale", "step", "update", "state_dict", "load_state_dict")


class WrappedParts(_PyTorchReducerContext):
    """The `wrap_` methods of `PyTorchTrialContext`, and what they have wrapped."""

    def __init__(
        self,
        distributed: DistributedContext,
        device: torch.device,
        managed_training: bool,
        aggregation_frequency: int,
    ) -> None:
        super().__init__(distributed.allgather)
        self.distributed = distributed
        self.device = device
        self._aggregation_frequency = aggregation_frequency
        self._managed_training = managed_training
        self.experimental = PyTorchExperimentalContext(self)
        self.models: list[nn.Module] = []
        self.optimizers: list[Optimizer] = []
        self.lr_schedulers: list[LRScheduler] = []
        self._main_model = nn.Module()
        self._averages_gradients: dict[int, bool] = {}
        self._split_parameters: list[weakref.ref[nn.Parameter]] = []
        self._default_gradient_compression = False
        self._default_average_aggregated_gradients = True
        self._scaler: Any = None
        self._constructed: Any = None  # the settings that the script gave to these
        self._use_apex = False

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
            self._split_parameters += [weakref.ref(p) for p in model.parameters()]
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
        if not isinstance(getattr(optimizer, "param_groups", None), list):
            raise TypeError(f"`optimizer` must be a torch optimizer, got {optimizer!r}.")
        check_kind(
            "backward_passes_per_step",
            backward_passes_per_step,
            int,
            "an integer",
            optional=False,
        )
        check_flag("fp16_compression", fp16_compression)
        check_flag("average_aggregated_gradients", average_aggregated_gradients)
        if self._managed_training:
            self._refuse_after_apex("wrap_optimizer")
            self._refuse_split_parameters(optimizer)
            self._refuse_split_states(optimizer)
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
        check_methods("lr_scheduler", lr_scheduler, _OF_SCHEDULERS, "a learning-rate scheduler")
        if step_mode is None:
            raise TypeError(
                "wrap_lr_scheduler needs `step_mode`, which says when the trainer steps the "
                "scheduler: write context.wrap_lr_scheduler(scheduler, "
                "pytorch.LRScheduler.StepMode.STEP_EVERY_EPOCH), or STEP_EVERY_BATCH."
            )
        if isinstance(lr_scheduler, ReduceLROnPlateau) and (
            step_mode != LRScheduler.StepMode.MANUAL_STEP
        ):
            raise InvalidExperimentException(
                "ReduceLROnPlateau needs a metric for each step: wrap it with "
                "StepMode.MANUAL_STEP and call its step(metric) yourself, for example in "
                "on_validation_end."
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
        check_methods("scaler", scaler, _OF_SCALERS, "a gradient scaler")
        self._scaler = scaler
        return scaler

    def _refuse_after_apex(self, method: str) -> None:
        if self._use_apex:
            raise InvalidExperimentException(f"Call {method} before configure_apex_amp.")

    def _refuse_split_parameters(self, optimizer: Optimizer) -> None:
        """Refuse an optimizer that was built before its model was split: it would do nothing."""
        split = {id(reference()) for reference in self._split_parameters} - {id(None)}
        if any(id(parameter) in split for parameter in parameters_of(optimizer)):
            raise InvalidExperimentException(
                f"This {type(optimizer).__name__} was built before context.wrap_model(model, "
                "parallel='fsdp') sharded the weights: build it from the wrapped model's "
                "parameters."
            )

    def _refuse_split_states(self, optimizer: Optimizer) -> None:
        """Refuse torch's ZeroRedundancyOptimizer: a rank cannot save the state that others hold."""
        if self.distributed.size > 1 and hasattr(optimizer, "consolidate_state_dict"):
            raise InvalidExperimentException(
                f"{type(optimizer).__name__} keeps a part of its state on each rank, which "
                "checkpoints do not support: use context.wrap_model(model, parallel='fsdp') and a "
                "plain optimizer, which shards weights and gradients as well."
            )

    # Set by the launcher of `module:Class` entrypoints.

    def _set_default_gradient_compression(self, gradient_compression: bool) -> None:
        self._default_gradient_compression = gradient_compression

    def _set_default_average_aggregated_gradients(self, averaging: bool) -> None:
        self._default_average_aggregated_gradients = averaging


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """Return all parameters that an optimizer updates."""
    return [p for group in optimizer.param_groups for p in group["params"]]
