"""A client without a screen that follows a page's stream of events."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import httpx

from benchmarks.dashboard.served import Dashboard


@dataclass(frozen=True)
class Message:
    """One event: when it came, its name, and how long it was."""

    time: float
    event: str
    num_bytes: int


class Follower:
    """Reads `/api/events` in a thread, as fast as it comes, until it is closed."""

    def __init__(self, dashboard: Dashboard, **params: Any) -> None:
        self.messages: list[Message] = []
        self._is_closed = False
        self._connected = threading.Event()
        self._client = httpx.Client(
            base_url=dashboard.root, cookies=dashboard.client.cookies, timeout=60
        )
        self._thread = threading.Thread(target=self._read, args=(params,))
        self._thread.start()
        assert self._connected.wait(60), "the stream did not begin"

    def _read(self, params: dict[str, Any]) -> None:
        event, size = "", 0
        with self._client.stream("GET", "/api/events", params=params) as answer:
            for line in answer.iter_lines():
                size += len(line) + 1
                if line.startswith("event: "):
                    event = line[7:]
                elif not line and event:
                    self.messages.append(Message(time.perf_counter(), event, size))
                    event, size = "", 0
                    self._connected.set()
                if self._is_closed:
                    return

    def points(self) -> list[Message]:
        """The messages that brought points."""
        return [message for message in self.messages if message.event == "points"]

    def close(self) -> None:
        """Stop with the next line that comes; the end of the server is one as well."""
        self._is_closed = True

    def join(self) -> None:
        """Wait for the thread, once the stream has ended."""
        self._thread.join(60)
        self._client.close()
