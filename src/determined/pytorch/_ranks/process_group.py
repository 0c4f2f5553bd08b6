"""The ranks of a job: as the launcher announces them, or as the script made them."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import os
import secrets
import socket
import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore

from determined._legacy.distributed_backend import _DistributedBackend
from determined.core import DistributedContext
from determined.pytorch._context.device import use_device

_LEAVE_SECONDS = 5.0


def start_ranks(
    stack: contextlib.ExitStack, given: DistributedContext | None = None
) -> DistributedContext | None:
    """Return the ranks of this job; start torch's process group unless it is running.

    `stack` ends what was started here.
    """
    if _DistributedBackend().use_horovod():
        raise ValueError(
            "USE_HOROVOD is set, but training with Horovod is not supported: start the script "
            "with torchrun."
        )
    is_launched = int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ
    is_started = dist.is_initialized() and dist.get_world_size() > 1
    if not (is_launched or is_started or (given is not None and given.size > 1)):
        return given
    atexit.unregister(_leave_after_failure)
    atexit.register(_leave_after_failure)
    if given is not None:
        ranks = given
    elif "LOCAL_WORLD_SIZE" in os.environ:
        ranks = DistributedContext.from_torch_distributed()
    elif is_started:
        ranks = _ranks_of_group()
    else:
        raise ValueError(
            "RANK and WORLD_SIZE are set, but not LOCAL_RANK and the others: start the script with "
            "torchrun, or call torch.distributed.init_process_group first."
        )
    if not dist.is_initialized():
        _start_group(stack, ranks)
    elif dist.get_world_size() != ranks.size:
        raise ValueError(
            f"`distributed` has {ranks.size} ranks, but torch's process group has "
            f"{dist.get_world_size()}."
        )
    return ranks


def _ranks_of_group() -> DistributedContext:
    """Number the ranks of a group that the script made without a launcher's variables."""
    machines: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(machines, socket.gethostname())
    rank, mine = dist.get_rank(), machines[dist.get_rank()]
    order = list(dict.fromkeys(machines))
    address = os.environ.get("DET_CHIEF_IP") or os.environ.get("MASTER_ADDR") or machines[0]
    return DistributedContext(
        rank=rank,
        size=len(machines),
        local_rank=machines[:rank].count(mine),
        local_size=machines.count(mine),
        cross_rank=order.index(mine),
        cross_size=len(order),
        chief_ip=address,
    )


def _start_group(stack: contextlib.ExitStack, ranks: DistributedContext) -> None:
    if "MASTER_ADDR" not in os.environ:
        raise ValueError(
            "`distributed` has several ranks, but torch.distributed is not initialised: start the "
            "script with torchrun, or call torch.distributed.init_process_group first."
        )
    timeout = datetime.timedelta(seconds=ranks.timeout_seconds)
    # Told apart by a word of this attempt: torchrun may keep one store for all its restarts, and
    # ranks would find the addresses of those that died.
    attempt = ranks.broadcast(secrets.token_hex(8))
    folder = os.environ.get("DET_LAUNCH_DIR")
    store: Store
    if folder and ranks.cross_size == 1:  # private, whereas any user can connect to a port
        store = FileStore(str(Path(folder, f"meeting-{attempt}")), ranks.size)
        store.set_timeout(timeout)
    else:
        store = _open_store(ranks, timeout)
    dist.init_process_group(
        _backend(ranks.local_rank),
        store=PrefixStore(attempt, store),
        rank=ranks.rank,
        world_size=ranks.size,
        timeout=timeout,
    )
    stack.push(_leave_group)


def _backend(local_rank: int) -> str:
    """Return the backend for this machine's kind of device, and make a rank's own the current."""
    if not torch.accelerator.is_available():
        return "gloo"
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator is not None
    use_device(torch.device(accelerator.type, local_rank))
    return dist.get_default_backend_for_device(accelerator)


def _open_store(ranks: DistributedContext, timeout: datetime.timedelta) -> TCPStore:
    """Return the store through which the ranks meet: the launcher's, or one that the chief has."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return TCPStore(host, port, is_master=False, timeout=timeout)
    store = None
    if ranks.rank == 0:
        try:
            store = _host_store(port, timeout)
        except dist.DistNetworkError:  # taken since the launcher found it free
            store = _host_store(0, timeout)
        port = store.port
    port = ranks.broadcast(port)
    return store or TCPStore(host, port, is_master=False, timeout=timeout)


def _host_store(port: int, timeout: datetime.timedelta) -> TCPStore:
    # It listens everywhere and is reached at MASTER_ADDR, which may be a name of another network.
    return TCPStore("localhost", port, is_master=True, timeout=timeout, wait_for_workers=False)


def _leave_group(kind: object, error: BaseException | None, trace: object) -> None:
    if error is None:
        dist.destroy_process_group()
    else:
        _try_to_leave_group()


def _try_to_leave_group() -> bool:
    """Leave, unless an operation is under way that the others will never finish."""
    leaving = threading.Thread(target=dist.destroy_process_group, daemon=True)
    leaving.start()
    leaving.join(_LEAVE_SECONDS)
    return not leaving.is_alive()


def _leave_after_failure() -> None:
    """End this process even if its group cannot be left: the others may wait for its end."""
    has_failed = getattr(sys, "last_value", None) is not None  # printed by now
    if has_failed and dist.is_initialized() and not _try_to_leave_group():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
