"""Sharded models: torch's `fully_shard`, behaving as trials expect.

The modules of torch that do the work take seconds to import, so they are imported when a model is
split, and until then nothing can be split.
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeGuard

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.utils import _sync_params_and_buffers

from determined.errors import InvalidExperimentException

FSDP_OPTIONS = ("reshard_after_forward", "mp_policy", "offload_policy")

_CONTAINERS = (nn.ModuleList, nn.ModuleDict)
_BUCKET_BYTES = 25 * 2**20

ShardModules = Callable[[nn.Module], bool] | Iterable[nn.Module]


def is_dtensor(value: object) -> TypeGuard[Any]:
    """Say whether a value is a tensor of which this rank holds a part."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def is_sharded(model: nn.Module) -> TypeGuard[Any]:
    """Say whether a model was split by `shard`."""
    module = sys.modules.get("torch.distributed.fsdp")
    return module is not None and isinstance(model, module.FSDPModule)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return what this rank holds of a tensor: a view of a part, or all of it."""
    if is_dtensor(tensor):
        part: torch.Tensor = tensor.to_local()
        return part
    return tensor


def shard(
    model: nn.Module,
    device: torch.device,
    shard_modules: ShardModules | None,
    options: Mapping[str, Any],
) -> nn.Module:
    """Split the weights of a model over all ranks, in place; all get those of the chief.

    One unit after the other goes to the device and is split there, so that the device never holds
    the whole model.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if any(tensor.is_meta for tensor in _tensors(model)):
        raise InvalidExperimentException(
            f"{type(model).__name__} has weights on the meta device, so there is nothing to "
            "shard: build it on the CPU. Each unit is moved to the device when it is sharded."
        )
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for unit in [*_units(model, shard_modules), model]:
        _move(unit, device)
        whole = [tensor for tensor in _tensors(unit) if not is_dtensor(tensor)]
        broadcast_from_chief(whole)
        fully_shard(unit, mesh=mesh, **options)
    _share_buffers(model)
    return model


def _move(module: nn.Module, device: torch.device) -> None:
    """Move what is not split yet; what is shared stays shared."""
    moved: dict[int, torch.Tensor] = {}
    for part in module.modules():
        for holder in (part._parameters, part._buffers):
            for name, tensor in holder.items():
                if tensor is not None and not is_dtensor(tensor):
                    if id(tensor) not in moved:
                        moved[id(tensor)] = _moved(tensor, device)
                    holder[name] = moved[id(tensor)]  # type: ignore[assignment]  # of its kind


def _moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    new = tensor.data.to(device).contiguous()
    if torch._has_compatible_shallow_copy_type(tensor, new):
        tensor.data = new
        return tensor
    # Devices that torch does not know by name have tensors of another kind.
    return nn.Parameter(new, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else new


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def broadcast_from_chief(tensors: list[torch.Tensor]) -> None:
    """Give all ranks the chief's values."""
    if tensors:
        assert dist.group.WORLD is not None, "start_ranks comes first"
        # Through `data`: passes whose gradients are still to come must not mind.
        values = [tensor.data for tensor in tensors]
        _sync_params_and_buffers(dist.group.WORLD, values, _BUCKET_BYTES, 0)


def _share_buffers(model: nn.Module) -> None:
    """Give all ranks the chief's buffers before each forward pass, as DDP does.

    So a checkpoint, which holds the chief's, holds what any rank would go on with. Buffers that are
    not in checkpoints are taken for constants.
    """
    # In the order in which they were registered: that of a set is another one on each rank.
    buffers_of_modules = [
        (module._buffers, name)
        for module in model.modules()
        for name in module._buffers
        if name not in module._non_persistent_buffers_set
    ]
    if not buffers_of_modules:
        return

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # untyped in torch
    def share(model: nn.Module, inputs: object) -> None:
        buffers = [holder[name] for holder, name in buffers_of_modules]
        broadcast_from_chief([buffer for buffer in buffers if buffer is not None])

    model.register_forward_pre_hook(share)


# What to split, and into what.


def _units(model: nn.Module, shard_modules: ShardModules | None) -> list[nn.Module]:
    """Return the submodules to split on their own, inner ones first."""
    if shard_modules is None:
        chosen = [block for block in _blocks(model) if _has_own_weights(block, model)]
    else:
        chosen = _chosen(model, shard_modules)
    identities = {id(module) for module in chosen if module is not model}
    inner_first = reversed(list(model.modules()))
    return [
        module
        for module in inner_first
        if id(module) in identities and any(True for _ in module.parameters())
    ]


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    """Return the members of the outermost lists of layers: the blocks of most large models."""
    for child in module.children():
        if isinstance(module, (*_CONTAINERS, nn.Sequential)) and not isinstance(child, _CONTAINERS):
            yield child
        else:
            yield from _blocks(child)


def _chosen(model: nn.Module, shard_modules: ShardModules) -> list[nn.Module]:
    if callable(shard_modules) and not isinstance(shard_modules, nn.Module):
        return [m for m in model.modules() if shard_modules(m) and not isinstance(m, _CONTAINERS)]
    given: Any = shard_modules
    chosen = list(given) if isinstance(given, Iterable) else [given]
    known = {id(module) for module in model.modules()}
    for module in chosen:
        if not isinstance(module, nn.Module) or id(module) not in known:
            raise ValueError(
                "`shard_modules` must be submodules of the model, or a function that says "
                f"whether to shard a given submodule on its own, got {str(module)[:80]!r}."
            )
        if not _has_own_weights(module, model):
            raise ValueError(
                f"`shard_modules` has a {type(module).__name__} that shares weights with another "
                "part of the model: leave it out, or choose a module that holds both."
            )
    return chosen


def _has_own_weights(module: nn.Module, model: nn.Module) -> bool:
    """Say whether no weight of the module has a second place outside of it."""
    inside, everywhere = _places(module), _places(model)
    return all(everywhere[weight] == count for weight, count in inside.items())


def _places(module: nn.Module) -> collections.Counter[int]:
    parameters = module.named_parameters(remove_duplicate=False)
    return collections.Counter(id(parameter) for _, parameter in parameters)


# While training.


def reshard(models: Iterable[nn.Module]) -> None:
    """Forget gathered weights.

    torch keeps those of the outermost part until the next backward pass. If there is none before
    the weights change, the next forward pass would run with the old ones.
    """
    for model in models:
        if is_sharded(model):
            for module in model.modules():
                if is_sharded(module):
                    module.reshard()


def accumulated_gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the gradients that an accumulation window has added up on this rank, not yet sent."""
    found = {}
    for name, parameter in _parts(model):
        gradient = parameter.unsharded_accumulated_grad
        if gradient is None and hasattr(parameter, "_unsharded_param"):
            gradient = parameter._unsharded_param.grad
        if gradient is not None:
            found[name] = gradient
    return found


def restore_accumulated_gradients(model: nn.Module, gradients: Mapping[str, torch.Tensor]) -> None:
    """Restore what `accumulated_gradients` returned; the window continues adding to it."""
    for name, parameter in _parts(model):
        if name in gradients:
            device = parameter.sharded_param.to_local().device
            parameter.unsharded_accumulated_grad = gradients[name].to(device, copy=True)


def _parts(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Return torch's own record of each split parameter: nothing public has these gradients."""
    reshard([model])
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for module in model.modules():
        if is_sharded(module):
            group = module._get_fsdp_state()._fsdp_param_group
            for parameter in [] if group is None else group.fsdp_params:
                yield names[id(parameter.sharded_param)], parameter
