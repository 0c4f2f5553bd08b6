"""All ranks do the same, and end together: soon, and with the first error on screen."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator

from determined.core import DistributedContext
from determined.core._group import PeerFailedError
from determined.errors import DistributedError, InvalidExperimentException

# How torch's backends word it when another rank is gone. The news who that was may come later.
_TRANSPORT = re.compile(r"gloo|NCCL|Connection (closed|reset)|Broken pipe|[Ss]ocket|TCPStore")
_NEWS_SECONDS = 3.0
# So long a rank may take to notice that another one has failed.
_GRACE_SECONDS = 10.0


def agree(distributed: DistributedContext, step: str, value: str) -> None:
    """Raise on every rank if ranks take different steps, or the same one with different values.

    Without this they would wait for each other in torch's collectives, which cannot tell.
    """
    if distributed.size == 1:
        return
    answers: list[tuple[str, str]] = distributed.allgather((step, value))
    for rank, answer in enumerate(answers):
        if answer != answers[0]:
            raise InvalidExperimentException(
                f"All ranks must do the same, but rank 0 does {' of '.join(answers[0])} while "
                f"rank {rank} does {' of '.join(answer)}."
            )


@contextlib.contextmanager
def naming_the_culprit(distributed: DistributedContext) -> Iterator[None]:
    """Tell the other ranks of an exception; raise theirs if this one only follows from it."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            raise
        culprit = _culprit_behind(error, distributed)
        if culprit is not None:
            raise culprit from error
        distributed.fail(error)
        raise


@contextlib.contextmanager
def ending_together(
    distributed: DistributedContext, is_saving: Callable[[], bool]
) -> Iterator[None]:
    """Like `naming_the_culprit`, and end this process if it does not notice another's failure.

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
        with naming_the_culprit(distributed):
            yield
    finally:
        noticed.set()


def _culprit_behind(
    error: BaseException, distributed: DistributedContext
) -> PeerFailedError | None:
    if isinstance(error, DistributedError) or not isinstance(error, RuntimeError):
        return None
    if not _TRANSPORT.search(str(error)):
        return None
    failure = distributed.wait_for_failure(_NEWS_SECONDS)
    return None if failure is None or failure.rank == distributed.rank else failure


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
        f"failed (its stacks are above), so it ends here.\n{words}".encode(),
    )
    os._exit(1)
