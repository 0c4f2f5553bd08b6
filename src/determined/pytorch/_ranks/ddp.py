"""Models on many ranks: torch's DDP, behaving as trials expect."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from determined.errors import InvalidExperimentException
from determined.pytorch._ranks.fsdp import FSDP_OPTIONS, broadcast_from_chief, is_sharded

logger = logging.getLogger("determined.pytorch")


class _DDP(DistributedDataParallel):
    """DDP whose attributes fall through to the module, so that `self.model.fc` keeps working.

    Its buckets are the same from the first batch on, whatever that batch is. torch arranges them
    anew after the first backward pass of a process; sums over three ranks or more depend on them,
    so a resumed run would not be exact.
    """

    _is_validating = False
    _is_called = False
    _compresses = False

    def __init__(self, module: nn.Module, **options: Any) -> None:
        is_static = bool(options.get("static_graph"))
        self._arranges_buckets = is_static or not options.get("find_unused_parameters")
        super().__init__(module, **options)
        if self._arranges_buckets and "reducer" in self.__dict__:
            self.reducer._push_all_rebuilt_params()  # as if all gradients had come, in this order
            self.reducer._rebuild_buckets()

    def _build_params_for_reducer(self) -> Any:
        """Return the weights in the order in which their gradients usually come: last ones first.

        Where torch never arranges buckets, it turns their order round itself.
        """
        parameters, is_sparse = super()._build_params_for_reducer()  # type: ignore[no-untyped-call]  # untyped in torch
        if self._arranges_buckets:
            parameters, is_sparse = parameters[::-1], is_sparse[::-1]
        return parameters, is_sparse

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def __getitem__(self, index: Any) -> Any:
        return self.module[index]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        # A validation may run on one rank only, or for longer on some: no rank may wait.
        if self._is_validating:
            return self.module(*args, **kwargs)
        self.__dict__["_is_called"] = True  # a Module's own way to set attributes is slow
        return super().forward(*args, **kwargs)  # type: ignore[no-untyped-call]  # untyped in torch


def check_options(parallel: str, shard_modules: object, options: dict[str, Any]) -> None:
    """Refuse what no way to distribute a model knows, on one rank as on many."""
    if parallel not in ("ddp", "fsdp"):
        raise ValueError(f"`parallel` must be 'ddp' or 'fsdp', got {parallel!r}.")
    if parallel == "ddp" and shard_modules is not None:
        raise ValueError("`shard_modules` is for parallel='fsdp': DDP does not shard models.")
    known = list(FSDP_OPTIONS)
    if parallel == "ddp":
        known = list(inspect.signature(DistributedDataParallel).parameters)
        known = [name for name in known if name not in ("module", "device_ids")]
    for name in options:
        if name not in known:
            raise TypeError(
                f"wrap_model(parallel={parallel!r}) has no option {name!r}; it has "
                f"{', '.join(sorted(known))}."
            )


def distribute(model: nn.Module, device: torch.device, options: dict[str, Any]) -> nn.Module:
    """Wrap a model for training on all ranks; a frozen one is only made equal on them."""
    if any(p.requires_grad for p in model.parameters()):
        device_ids = None if device.type == "cpu" else [device]
        return _DDP(model, device_ids=device_ids, **options)
    broadcast_from_chief([*model.parameters(), *model.buffers()])
    return model


def refuse_static_windows(options: dict[str, Any], aggregation_frequency: int) -> None:
    """Refuse what torch cannot do: it counts the uses of weights in a window as those of a batch.

    It would end in an internal error or, worse, leave gradients of later windows as they are.
    """
    if options.get("static_graph") and aggregation_frequency > 1:
        raise InvalidExperimentException(
            "wrap_model(static_graph=True) cannot be combined with "
            f"aggregation_frequency={aggregation_frequency}: torch's DDP would not average all "
            "gradients. Leave static_graph out; if some weights get no gradient, pass "
            "find_unused_parameters=True."
        )


def describe_model(model: nn.Module) -> str:
    """Return what must be the same on all ranks."""
    shapes = [
        f"{name}{tuple(p.shape)}{'' if p.requires_grad else ' frozen'}"
        for name, p in model.named_parameters()
    ]
    return f"{type(model).__name__}({', '.join(shapes)})"


def set_gradient_sync(models: list[nn.Module], enabled: bool) -> None:
    """Choose whether the next forward and backward passes average gradients over ranks.

    DDP decides at forward time, so this must be called before it.
    """
    for model in models:
        if isinstance(model, DistributedDataParallel):
            model.require_backward_grad_sync = enabled
        elif is_sharded(model):
            model.set_requires_gradient_sync(enabled)


@contextlib.contextmanager
def validating(models: list[nn.Module]) -> Iterator[None]:
    """Give all ranks the chief's buffers, and let them run forward passes without each other.

    So every rank validates the model that a checkpoint would hold. Every rank must enter it, and
    has its own buffers again afterwards.
    """
    distributed = [model for model in models if isinstance(model, _DDP)]
    buffers = [b for m in distributed if m.broadcast_buffers for b in m.module.buffers()]
    own = [] if not buffers or dist.get_rank() == 0 else [buffer.clone() for buffer in buffers]
    broadcast_from_chief(buffers)
    for model in distributed:
        model._is_validating = True
    try:
        yield
    finally:
        for model in distributed:
            model._is_validating = False
        for buffer, value in zip(buffers, own, strict=False):
            buffer.copy_(value)


def continue_window(models: list[nn.Module]) -> None:
    """Go on inside an accumulation window, where DDP does not hand out the chief's buffers."""
    for model in models:
        if isinstance(model, DistributedDataParallel):
            model.require_forward_param_sync = False


def count_as_used(model: nn.Module) -> None:
    """Tell DDP that weights with gradients were used in this accumulation window.

    With `find_unused_parameters` it leaves gradients alone that no rank has used in a window, and a
    new process does not know of those that it was given.
    """
    if isinstance(model, DistributedDataParallel) and model.find_unused_parameters:
        parameters, _ = model._build_params_for_reducer()  # type: ignore[no-untyped-call]  # untyped in torch
        for index, parameter in enumerate(parameters):
            if parameter.grad is not None:
                model.reducer._autograd_hook(index)  # type: ignore[attr-defined]  # not in torch's stub


def own_buffers(model: nn.Module, in_window: bool) -> dict[str, torch.Tensor]:
    """Return the buffers of a rank that are not the chief's.

    DDP hands out the chief's before each forward pass, but not within an accumulation window.
    """
    if not isinstance(model, _DDP) or (model.broadcast_buffers and not in_window):
        return {}
    return dict(model.module.named_buffers())


def replicas(models: list[nn.Module]) -> Iterator[tuple[int, str, torch.Tensor]]:
    """Return the weights that all ranks hold and update alike: model, name, tensor."""
    for index, model in enumerate(models):
        if isinstance(model, _DDP) and model.process_group is dist.group.WORLD:
            for name, parameter in model.module.named_parameters():
                is_ignored = name in model.parameters_to_ignore
                if parameter.requires_grad and not is_ignored and parameter.layout is torch.strided:
                    yield index, name, parameter


def has_own_communication(model: nn.Module) -> bool:
    """Say whether gradients are averaged by a hook that the trial registered."""
    return isinstance(model, _DDP) and len(model._comm_hooks) > model._compresses


def is_bypassed(model: nn.Module) -> bool:
    """Say whether DDP, which averages gradients over ranks, has never seen a forward pass."""
    return isinstance(model, _DDP) and not model._is_called


def inner_module(model: nn.Module) -> nn.Module:
    """Return the user's own module."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def compress_gradients(models: list[nn.Module], parameters: list[torch.Tensor]) -> None:
    """Send the gradients of these parameters between ranks as float16."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    wanted = {id(p) for p in parameters}
    for model in models:
        if not any(id(p) in wanted for p in model.parameters()):
            continue
        if is_sharded(model) and dist.get_rank() == 0:
            logger.warning(
                "fp16_compression has no effect on a model wrapped with parallel='fsdp': pass "
                "mp_policy=MixedPrecisionPolicy(reduce_dtype=...) to wrap_model instead."
            )
        if isinstance(model, _DDP) and not model._compresses:
            model.register_comm_hook(None, fp16_compress_hook)
            model._compresses = True
