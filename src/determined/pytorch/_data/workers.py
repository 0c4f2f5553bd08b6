"""The worker processes of torch's loaders: what each does when it starts, and how they end."""

from __future__ import annotations

import multiprocessing.queues
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import get_worker_info

from determined.core.hangs.watchdog import prepare_loader_worker


def start_worker(user_init: Callable[[int], None] | None, worker_id: int) -> None:
    """Show users their own dataset in `get_worker_info()`, then run their `worker_init_fn`."""
    info = get_worker_info()
    assert info is not None
    ours: Any = info.dataset
    shown_id, shown_count = ours.shown_worker(info.id, info.num_workers)
    # The class is frozen for users; what it shows is ours to set, as we replaced the dataset.
    object.__setattr__(info, "dataset", ours.user_dataset)
    object.__setattr__(info, "id", shown_id)
    object.__setattr__(info, "num_workers", shown_count)
    prepare_loader_worker()
    _end_if_results_cannot_be_sent()
    if user_init is not None:
        user_init(shown_id)


def _end_if_results_cannot_be_sent() -> None:
    """Let this worker die of a batch that cannot be pickled: torch would wait for it forever.

    Python only prints such an error, in the thread that sends, and drops the batch.
    """

    def die(error: Exception, batch: object) -> None:
        traceback.print_exception(error)
        os._exit(1)

    multiprocessing.queues.Queue._on_queue_feeder_error = staticmethod(die)  # type: ignore[attr-defined]  # a hook for subclasses


def end_workers(iterator: Iterator[Any], grace_seconds: float = 1.0) -> None:
    """Ask the worker processes of a torch loader's iterator to end; kill those that do not.

    Torch alone waits five seconds for each busy worker.
    """
    shut_down = getattr(iterator, "_shutdown_workers", None)
    if shut_down is None:
        return
    killer = threading.Timer(grace_seconds, _kill_workers, (iterator,))
    killer.daemon = True
    killer.start()
    try:
        shut_down()
    finally:
        killer.cancel()


def end_pass(loader: Any, iterator: Iterator[Any]) -> None:
    """End the workers of a pass, persistent ones too: what they drew must not reach the next."""
    end_workers(iterator)
    if getattr(loader, "_iterator", None) is iterator:  # where torch keeps persistent workers
        loader._iterator = None


def _kill_workers(iterator: Any) -> None:
    # Forgotten first: torch raises in the main thread when a worker it knows dies by a signal.
    if iterator._worker_pids_set:
        iterator._worker_pids_set = False
        torch._C._remove_worker_pids(id(iterator))
    for worker in iterator._workers:
        if worker.is_alive():
            worker.kill()
