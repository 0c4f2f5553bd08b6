"""Children of this process that may be killed: fork, watch, and collect what they return.

For worker processes of `run_workers` only, which have one thread and so can fork safely. A child
starts in milliseconds, because everything is imported already.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class Child:
    """A forked process that runs `fn(*args)`; its result or traceback is in a file."""

    def __init__(self, fn: Callable[..., T], *args: Any) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._status: int | None = None
        self._ready, told = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._ready)
            self._work(fn, args, told)
        os.close(told)

    def _work(self, fn: Callable[..., Any], args: tuple[Any, ...], told: int) -> None:
        status = 1
        try:
            value = fn(*args, tell=lambda: os.write(told, b"."))
            (Path(self._folder.name) / "value").write_bytes(pickle.dumps(value))
            status = 0
        except BaseException:
            (Path(self._folder.name) / "error").write_text(traceback.format_exc())
        finally:
            os._exit(status)

    def wait_until_told(self, seconds: float) -> None:
        """Wait until `fn` calls its argument `tell`, or the child is gone."""
        ready, _, _ = select.select([self._ready], [], [], seconds)
        assert ready, f"the child said nothing within {seconds} s"

    def kill(self) -> bool:
        """Kill at once; say whether the child was still at work."""
        os.kill(self.pid, signal.SIGKILL)
        return self.join() == -signal.SIGKILL

    def join(self) -> int:
        """Wait for the end and return the exit status, negative for a signal."""
        if self._status is None:
            _, status = os.waitpid(self.pid, 0)
            os.close(self._ready)
            self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def result(self) -> Any:
        """Wait for the end and return the value; raise if there is none."""
        status = self.join()
        folder = Path(self._folder.name)
        if status != 0:
            error = folder / "error"
            raise AssertionError(error.read_text() if error.exists() else f"died by {status}")
        return pickle.loads((folder / "value").read_bytes())
