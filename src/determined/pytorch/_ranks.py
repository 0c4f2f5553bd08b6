"""The ranks of a job, as the launcher announces them."""

from __future__ import annotations

import contextlib
import os

import torch
import torch.distributed as dist

from determined import core
from determined._distributed_backend import _DistributedBackend


def start_ranks(
    stack: contextlib.ExitStack, given: core.DistributedContext | None = None
) -> core.DistributedContext | None:
    """Return the ranks of this job; start torch's process group if a launcher expects it."""
    if _DistributedBackend().use_horovod():
        raise ValueError(
            "USE_HOROVOD is set, but training over horovod is not supported: start the script "
            "with torchrun."
        )
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    has_launcher = world_size > 1 and "RANK" in os.environ
    is_wanted = has_launcher or (given is not None and given.size > 1)
    if not is_wanted:
        return given
    if not dist.is_initialized():
        if "MASTER_ADDR" not in os.environ:
            raise ValueError(
                "`distributed` has several ranks, but torch.distributed is not initialised: "
                "start the script with torchrun, or call torch.distributed.init_process_group "
                "first."
            )
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        if torch.cuda.is_available():
            torch.cuda.set_device(local_rank)
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        stack.callback(dist.destroy_process_group)
    return given or core.DistributedContext.from_torch_distributed()
