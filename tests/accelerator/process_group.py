"""A process group for the simulated device: collectives go through gloo, over host copies."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import simulated_device as _library  # type: ignore[import-not-found]  # `load` puts it there
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d
from torch.futures import Future

_AS_GLOO = (
    *("allreduce_coalesced", "broadcast", "allgather", "_allgather_base", "gather"),
    *("scatter", "send", "recv", "recv_anysource", "alltoall", "alltoall_base", "reduce"),
)


_c10d: Any = _distributed_c10d
_Base: Any = dist.ProcessGroup  # torch calls its methods by position, whatever their signatures say


class _ProcessGroup(_Base):  # type: ignore[misc]
    """Takes tensors of the host as well; collectives are done when they return."""

    def __init__(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> None:
        super().__init__(rank, size)
        self._name = ""
        self._gloo: Any = dist.ProcessGroupGloo(store, rank, size, timeout)

    def getBackendName(self) -> str:  # torch calls it so
        return "simulated"

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    @property
    def group_name(self) -> str:
        return self._name

    def barrier(self, *arguments: Any, **options: Any) -> Any:
        return self._gloo.barrier(*arguments, **options)

    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> Any:
        is_average = options.reduceOp == dist.ReduceOp.AVG  # unknown to gloo
        if is_average:
            options.reduceOp = dist.ReduceOp.SUM
        work = self._through_host("allreduce", tensors, options)
        if is_average:
            for tensor in tensors:
                tensor.div_(self.size())
        return work

    def _reduce_scatter_base(self, output: torch.Tensor, source: torch.Tensor, options: Any) -> Any:
        summed = dist.AllreduceOptions()
        summed.reduceOp = options.reduceOp
        whole = source.clone()
        self.allreduce([whole], summed)
        output.copy_(whole.chunk(self.size())[self.rank()].view_as(output))
        return _done([output])

    def reduce_scatter_tensor_coalesced(
        self, outputs: list[torch.Tensor], sources: list[torch.Tensor], options: Any
    ) -> Any:
        for output, source in zip(outputs, sources, strict=True):
            self._reduce_scatter_base(output, source, options)
        return _done(outputs)

    def allgather_into_tensor_coalesced(
        self, outputs: list[torch.Tensor], sources: list[torch.Tensor], options: Any
    ) -> Any:
        for output, source in zip(outputs, sources, strict=True):
            self._through_host("_allgather_base", output, source, options)
        return _done(outputs)

    def all_gather_single(self, output: torch.Tensor, source: torch.Tensor, options: Any) -> Any:
        return self._through_host("_allgather_base", output, source, options)

    # Older and newer names of the same.
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def _through_host(self, name: str, *arguments: Any) -> Any:
        """Call gloo with host copies of all tensors, and copy back what it made of them."""
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

        def on_host(value: Any) -> Any:
            if isinstance(value, list):
                return [on_host(entry) for entry in value]
            if not isinstance(value, torch.Tensor) or value.is_cpu:
                return value
            pairs.append((value.detach(), value.detach().cpu()))
            return pairs[-1][1]

        _library.pause_counting(True)  # a real one needs no wait of the host
        try:
            getattr(self._gloo, name)(*map(on_host, arguments)).wait()
            for tensor, host in pairs:
                tensor.copy_(host)
        finally:
            _library.pause_counting(False)
        return _done(arguments[0])


def _done(result: Any) -> Any:
    future: Future[Any] = Future()
    future.set_result(result)
    return _c10d._create_work_from_future(future)


def _passed_on(name: str) -> Callable[..., Any]:
    def method(self: _ProcessGroup, *arguments: Any) -> Any:
        return self._through_host(name, *arguments)

    return method


for _name in _AS_GLOO:
    setattr(_ProcessGroup, _name, _passed_on(_name))


def register() -> None:
    """Let `init_process_group` use it for tensors of the device."""
    if dist.is_available():
        dist.Backend.register_backend("simulated", _ProcessGroup, devices=["simulated"])
