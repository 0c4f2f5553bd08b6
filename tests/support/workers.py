"""Run a function on several ranks: as real processes, or as threads of this one.

Processes are forked from a small server that has imported torch once, so a rank starts in
milliseconds. The server stays as a child of the test process until that ends. Odd ranks have a
server of their own: ranks that a launcher starts order their sets differently, and so must these.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

import pytest

from determined.core._distributed import DistributedContext

T = TypeVar("T")

# What tests import at their top, and torch._dynamo, which the first optimizer of a process imports
# and which takes longer than torch itself.
_MODULES = ["torch._dynamo", "determined.pytorch", "hypothesis", "pytest", "sklearn.datasets"]
# multiprocessing has one server, and the last list of modules that it gets before it starts is the
# one that counts: whoever wants processes from it takes this object.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(_MODULES)
_SERVER_OF_ODD_RANKS = forkserver.ForkServer()
_SERVER_OF_ODD_RANKS.set_forkserver_preload(_MODULES)


@dataclass(frozen=True)
class Outcome:
    """What became of one rank: its result, or its traceback; always its exit code and output."""

    rank: int
    value: Any
    error: str | None
    exit_code: int
    output: str

    def __str__(self) -> str:
        return f"--- rank {self.rank}, exit code {self.exit_code}\n{self.output}{self.error or ''}"


def run_workers(
    n: int,
    fn: Callable[..., T],
    *args: Any,
    deadline_seconds: float = 60,
    process_group: bool = True,
    environment: Mapping[str, str] | None = None,
) -> list[T]:
    """Return `fn(*args)` of each of `n` processes on one machine, in the order of ranks.

    `fn` is a top-level function. It finds torchrun's variables in its environment and a gloo
    process group that met through a file; with `process_group=False` it finds MASTER_ADDR and
    MASTER_PORT of a free port instead. Fails with every rank's output and traceback if one fails or
    the deadline passes; no process is left behind.
    """
    outcomes = collect_workers(
        n,
        fn,
        *args,
        deadline_seconds=deadline_seconds,
        process_group=process_group,
        environment=environment,
    )
    if any(outcome.exit_code != 0 for outcome in outcomes):
        raise AssertionError("\n".join(["a rank failed", *map(str, outcomes)]))
    return [outcome.value for outcome in outcomes]


def collect_workers(
    n: int,
    fn: Callable[..., Any],
    *args: Any,
    deadline_seconds: float = 60,
    process_group: bool = True,
    environment: Mapping[str, str] | None = None,
) -> list[Outcome]:
    """Like `run_workers`, for tests about ranks that fail: return each rank's outcome."""
    with tempfile.TemporaryDirectory(prefix="workers-") as name:
        directory = Path(name)
        processes = []
        port = free_port()
        for rank in range(n):
            variables = {
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(n),
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(n),
                "GROUP_RANK": "0",
                "GROUP_WORLD_SIZE": "1",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
                **(environment or {}),
            }
            process = SERVER.Process(
                target=_work, args=(directory, variables, process_group, list(sys.path), fn, args)
            )
            _start(process, is_odd=rank % 2 == 1)
            processes.append(process)
        deadline = time.monotonic() + deadline_seconds
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
        late = [process for process in processes if process.is_alive()]
        for process in late:
            os.kill(process.pid or 0, signal.SIGKILL)
            process.join()
        outcomes = [
            _outcome(directory, rank, process.exitcode or 0)
            for rank, process in enumerate(processes)
        ]
    if late:
        message = f"{len(late)} of {n} ranks did not end within {deadline_seconds} s"
        raise AssertionError("\n".join([message, *map(str, outcomes)]))
    return outcomes


def run_threads(
    layout: tuple[int, int],
    fn: Callable[[DistributedContext], T],
    *,
    deadline_seconds: float = 60,
    **options: Any,
) -> list[T]:
    """Return `fn(context)` of each rank of `layout` (machines, ranks on each), run as threads.

    `options` go to DistributedContext; `chief_ip` is localhost unless given. Every thread is
    joined, and the first failure (by rank) is raised with the others attached as notes.
    """
    machines, local_size = layout
    size = machines * local_size
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    def work(rank: int) -> None:
        try:
            with DistributedContext(
                rank=rank,
                size=size,
                local_rank=rank % local_size,
                local_size=local_size,
                cross_rank=rank // local_size,
                cross_size=machines,
                **{"chief_ip": "localhost", **options},
            ) as context:
                results[rank] = fn(context)
        except BaseException as error:
            errors[rank] = error

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + deadline_seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    stuck = [rank for rank, thread in enumerate(threads) if thread.is_alive()]
    assert not stuck, f"ranks {stuck} did not end within {deadline_seconds} s; errors: {errors}"
    if errors:
        rank, first = min(errors.items())
        others = {other: repr(error) for other, error in errors.items() if other != rank}
        raise AssertionError(f"rank {rank} failed: {first!r}; other ranks: {others}") from first
    return [results[rank] for rank in range(size)]


def leave_the_server() -> None:
    """Make a process of the server one like others."""
    multiprocessing.set_start_method("fork", force=True)  # else it would start a server of its own
    gc.freeze()  # a collection would copy all that is shared with the server


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _start(process: BaseProcess, *, is_odd: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "2" if is_odd else "1")  # counts when a server starts
        if is_odd:
            connect = _SERVER_OF_ODD_RANKS.connect_to_new_process
            patch.setattr(forkserver, "connect_to_new_process", connect)
        process.start()


def _work(
    directory: Path,
    variables: dict[str, str],
    process_group: bool,
    path: list[str],
    fn: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    rank = variables["RANK"]
    output = os.open(directory / f"output-{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:] = path
    leave_the_server()
    try:
        if process_group:
            import torch.distributed

            torch.distributed.init_process_group(
                None if torch.accelerator.is_available() else "gloo",
                init_method=f"file://{directory / 'process-group'}",
                rank=int(rank),
                world_size=int(variables["WORLD_SIZE"]),
            )
            torch.distributed.barrier()  # one that left at once would break the others' meeting
        value = fn(*args)
        (directory / f"value-{rank}").write_bytes(pickle.dumps(value))
        if process_group and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    except BaseException as error:
        (directory / f"error-{rank}").write_text(traceback.format_exc())
        sys.last_value = error  # as the interpreter does for a script
        if isinstance(error, SystemExit):
            raise
        sys.exit(1)


def _outcome(directory: Path, rank: int, exit_code: int) -> Outcome:
    value, error, output = (directory / f"{kind}-{rank}" for kind in ("value", "error", "output"))
    return Outcome(
        rank,
        pickle.loads(value.read_bytes()) if value.exists() else None,
        error.read_text() if error.exists() else None,
        exit_code,
        output.read_text(errors="replace") if output.exists() else "",
    )
