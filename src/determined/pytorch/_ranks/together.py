"""All ranks do the same, and end together: soon, and with the first error on screen."""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping

from determined.core import Context
from determined.core._distributed import DistributedContext
from determined.core.hangs.watchdog import Watchdog
from determined.errors import DistributedError, InvalidExperimentException

# How torch's backends word it when another rank is gone. The news who that was may come later.
_TRANSPORT = re.compile(
    r"gloo|NCCL|pair closure|Connection (closed|reset) by|Broken pipe|TCPStore|ProcessGroup"
)
_NEWS_SECONDS = 3.0
# How long a rank may take to notice that another one has failed.
_GRACE_SECONDS = 10.0


def agree(distributed: DistributedContext, step: str, details: Mapping[str, str]) -> None:
    """Raise on every rank if ranks take different steps, or the same one with different details.

    Without this they would wait for each other in torch's collectives, which cannot tell.
    """
    if distributed.size == 1:
        return
    answers: list[tuple[str, Mapping[str, str]]] = distributed.allgather((step, dict(details)))
    first_step, first_details = answers[0]
    for rank, (other_step, other_details) in enumerate(answers):
        if other_step != first_step:
            raise InvalidExperimentException(
                f"All ranks must run the same steps, but rank 0 is at {first_step} while rank "
                f"{rank} is "
                f"at {other_step}."
            )
        for name, value in other_details.items():
            if value != first_details[name]:
                raise InvalidExperimentException(
                    f"All ranks must run the same steps, but {name} of {step} is "
                    f"{first_details[name]} on "
                    f"rank 0 and {value} on rank {rank}."
                )


@contextlib.contextmanager
def naming_the_failed_rank(distributed: DistributedContext) -> Iterator[None]:
    """Tell the other ranks of an exception; raise theirs if this one only follows from it."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            raise
        cause = _cause_of(error, distributed)
        distributed.fail(cause or error)  # unless the others know of a failure already
        if cause is not None:
            raise cause from error
        raise


@contextlib.contextmanager
def ending_together(
    distributed: DistributedContext, is_saving: Callable[[], bool]
) -> Iterator[None]:
    """Like `naming_the_failed_rank`, and end this process if it does not notice another's failure.

    It may wait in a collective of torch that nobody will ever complete. A checkpoint that is being
    saved is finished first.
    """
    if distributed.size == 1:
        yield
        return
    noticed = threading.Event()
    threading.Thread(
        target=_watch,
        args=(distributed, noticed, is_saving),
        name="determined-peers",
        daemon=True,
    ).start()
    try:
        with naming_the_failed_rank(distributed):
            yield
    finally:
        noticed.set()


def start_watchdog(stack: contextlib.ExitStack, core_context: Context) -> Watchdog:
    """Have a report written next to the checkpoints when training hangs; `stack` ends it."""
    distributed = core_context.distributed
    base = core_context.checkpoint.storage_base or core_context.train._tensorboard_root()
    now = datetime.datetime.now().strftime("%Y-%m-%dT%H-%M-%S")
    directory = distributed.broadcast(str(base / "hang-reports" / f"{now}-{os.getpid()}"))
    watchdog = Watchdog(
        directory,
        distributed.rank,
        distributed.size,
        last_collective=lambda: distributed.last_collective,
    )
    watchdog.start()
    stack.callback(watchdog.stop)
    return watchdog


def _cause_of(error: BaseException, distributed: DistributedContext) -> DistributedError | None:
    """Return what is behind an error of torch's collectives, which know no ranks."""
    if distributed.size == 1 or isinstance(error, DistributedError):
        return None
    if not isinstance(error, RuntimeError):
        return None
    if not _TRANSPORT.search(str(error)):
        return None
    failure = distributed.wait_for_failure(_NEWS_SECONDS)
    if failure is not None and failure.rank != distributed.rank:
        return failure
    return DistributedError(
        f"A collective of torch failed on rank {distributed.rank} ({error}), and no other rank "
        "has reported a failure. If it timed out, another rank may be stuck or late: look for a "
        "hang "
        "report above. DET_COLLECTIVE_TIMEOUT sets the seconds to wait."
    )


def _watch(
    distributed: DistributedContext, noticed: threading.Event, is_saving: Callable[[], bool]
) -> None:
    failure = None
    while failure is None:
        failure = distributed.wait_for_failure(1.0)
        if noticed.is_set():
            return
    if noticed.wait(_GRACE_SECONDS):
        return
    while is_saving():
        if noticed.wait(0.2):
            return
    faulthandler.dump_traceback(sys.__stderr__ or 2)
    words = "".join(traceback.format_exception_only(failure))
    os.write(
        2,
        f"rank {distributed.rank} did not notice within {_GRACE_SECONDS:g} s that another rank "
        f"failed (its stacks are above), so it is terminated.\n{words}".encode(),
    )
    os._exit(1)
