"""Run a user's search method in a process of its own, so that its crash is its own.

The only module here that touches the world. Restoring is repeating: a new process hears all
recorded events again, and its answers must be those on record.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

from determined.platform.search.custom import CustomMethodError
from determined.platform.search.events import dump

_LONGEST_TAIL = 4000


class CustomProcess:
    """A child process with a user's method; an `Oracle`.

    Args:
        searcher: the `searcher` section, with `class: module:Class`.
        hyperparameters: the `hyperparameters` section.
        seed: the experiment's seed.
        directory: where the module is found: the experiment's code.
        timeout_seconds: how long the method may think about one event.
        python: the interpreter of the experiment.
    """

    def __init__(
        self,
        searcher: dict[str, Any],
        hyperparameters: dict[str, Any],
        seed: int,
        directory: Path,
        timeout_seconds: float = 60.0,
        python: str = sys.executable,
    ) -> None:
        self._timeout = timeout_seconds
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        self._process = subprocess.Popen(
            [python, "-m", "determined.platform.search.custom_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=directory,
            start_new_session=True,  # a Ctrl-C in a terminal is for the supervisor
        )
        self._unread = b""
        opening = {
            "directory": str(directory),
            "config": searcher,
            "hyperparameters": hyperparameters,
            "seed": seed,
        }
        self._send(opening)

    def ask(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """Tell the method of an event and return its orders.

        Raises:
            CustomMethodError: with the traceback of the method, or with how its process ended.
        """
        self._send(message)
        answer = json.loads(self._receive())
        if "error" in answer:
            raise CustomMethodError(answer["error"])
        return list(answer["orders"])

    def repeat(self, message: dict[str, Any], orders: list[dict[str, Any]]) -> None:
        """Tell a new process of an event for which these orders are on record.

        Raises:
            CustomMethodError: if the method answers otherwise than it did.
        """
        answer = self.ask(message)
        if dump(answer) != dump(orders):
            raise CustomMethodError(
                f"the method cannot be restored: it answered {message['kind']} with {answer!r}, "
                f"but had answered {orders!r} before. A method must take chance from "
                "`search.random` and must not look at the time."
            )

    def close(self) -> None:
        """End the process; calling again does nothing."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None and not stream.closed:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(dump(message).encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise CustomMethodError(self._how_it_ended()) from None

    def _receive(self) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        poll = select.poll()  # unlike select(), it takes any descriptor
        poll.register(descriptor, select.POLLIN)
        deadline = time.monotonic() + self._timeout
        while b"\n" not in self._unread:
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                self.close()
                raise CustomMethodError(
                    f"the method took more than {self._timeout:g} s for one event, and was ended."
                )
            part = os.read(descriptor, 65536)
            if not part:
                raise CustomMethodError(self._how_it_ended())
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _how_it_ended(self) -> str:
        status = self._process.wait(timeout=10)
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _LONGEST_TAIL))
        said = self._errors.read().decode(errors="replace").strip()
        return f"the process of the method ended with status {status}.\n{said}".strip()
