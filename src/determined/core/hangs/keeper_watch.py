"""End this process when the keeper of its run is gone: nothing else could collect or stop it.

Standard library only, so that any process of a run can afford it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time

_GRACE_SECONDS = 60.0


def end_with_keeper(
    alive: str | os.PathLike[str], grace_seconds: float = _GRACE_SECONDS
) -> threading.Thread:
    """Watch the lock file `alive` of a run, which its keeper holds for as long as it lives.

    When the lock is free this process gets SIGTERM, as if asked to stop, and SIGKILL if it is
    still there after `grace_seconds`. The thread sleeps in the kernel and ends with the process.
    A process that forks watches in the parent only.
    """
    descriptor = os.open(alive, os.O_RDONLY | os.O_CLOEXEC)
    thread = threading.Thread(
        target=_wait_and_end, args=(descriptor, grace_seconds), name="det-keeper-watch", daemon=True
    )
    thread.start()
    return thread


def _wait_and_end(descriptor: int, grace_seconds: float) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_SH)  # granted when the keeper ends, however it does
    os.close(descriptor)  # whoever declares the run dead needs the lock
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_seconds)
    os.kill(os.getpid(), signal.SIGKILL)
