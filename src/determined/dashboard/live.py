"""Live updates for open pages: one watcher for all of them, and only what is new is sent.

The watcher checks twice a second, and only while there are listeners. Listeners never delay each
other: what a slow one has not read yet is merged into its next message.

    event: change   ids of experiments and trials that changed; whether a supervisor is running
    event: points   new points of the curves that the listener subscribed to
    event: log      new lines of the log that the listener subscribed to
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from determined.dashboard.api.logs import line_json, log_of
from determined.dashboard.api.series import text_of
from determined.dashboard.endpoints.encoding import dump
from determined.dashboard.endpoints.endpoints import ApiError
from determined.dashboard.logs.pages import Wanted
from determined.dashboard.view import View
from determined.errors import DeterminedError
from determined.store import Changed, ChangeWatch, CurveKey, Position

logger = logging.getLogger("determined.dashboard")

INTERVAL_SECONDS = 0.5
HEARTBEAT_SECONDS = 15.0
MOST_LISTENERS = 100
_MOST_LINES = 500


@dataclass
class Listener:
    """An open page: its subscriptions, its position, and its pending messages."""

    curves: list[CurveKey] = field(default_factory=list)
    log_trial: int | None = None
    position: Position = field(default_factory=Position)
    log_line: int = 0
    pending: Changed = field(default_factory=Changed)
    is_alive: bool | None = None
    rung: asyncio.Event = field(default_factory=asyncio.Event)


class Live:
    """The watcher and its listeners; belongs to one event loop."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._listeners: list[Listener] = []
        self._task: asyncio.Task[None] | None = None
        # One thread that stays: the watch and its connection belong to it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="watcher")
        self._watch: ChangeWatch | None = None
        self._alive: bool | None = None
        self._closing = threading.Event()

    @property
    def num_listeners(self) -> int:
        return len(self._listeners)

    async def close(self) -> None:
        """End the watcher and all streams."""
        self._closing.set()
        for listener in self._listeners:
            listener.rung.set()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._thread.shutdown()

    async def stream(self, listener: Listener, since: Position | None) -> AsyncIterator[bytes]:
        """The messages for one listener, while it stays connected."""
        self._listeners.append(listener)
        try:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._run())
            news, missed = await self._call(self._begin, listener, since)
            self._spread(news)
            listener.pending, listener.is_alive = missed, self._alive
            yield b"retry: 2000\n\n"
            yield self._change(listener)
            while not self._closing.is_set():
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(listener.rung.wait(), HEARTBEAT_SECONDS)
                if not listener.rung.is_set():
                    yield b": alive\n\n"
                    continue
                listener.rung.clear()
                for message in await self._messages(listener):
                    yield message
                await asyncio.sleep(INTERVAL_SECONDS)
        finally:
            self._listeners.remove(listener)

    async def _messages(self, listener: Listener) -> list[bytes]:
        messages = []
        if listener.pending or listener.is_alive != self._alive:
            listener.is_alive = self._alive
            messages.append(self._change(listener))
        if listener.curves:
            messages += await self._call(self._points, listener)
        if listener.log_trial is not None:
            messages += await self._call(self._lines, listener)
        return messages

    async def _call(self, function: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    async def _run(self) -> None:
        """Look for changes while there are listeners."""
        while self._listeners:
            try:
                changed, is_alive = await self._call(self._look)
            except (DeterminedError, ApiError, OSError, sqlite3.Error) as error:
                logger.error("Changes cannot be read: %s", error)
                await asyncio.sleep(10 * INTERVAL_SECONDS)
                continue
            has_turned, self._alive = is_alive != self._alive, is_alive
            self._spread(changed)
            for listener in self._listeners:
                if has_turned or listener.log_trial is not None:
                    listener.rung.set()
            await asyncio.sleep(INTERVAL_SECONDS)

    def _spread(self, changed: Changed) -> None:
        for listener in self._listeners:
            if changed.is_another_store and self._watch is not None:
                listener.position = self._watch.position
            listener.pending.add(changed)
            if changed:
                listener.rung.set()

    # What follows runs in the watcher's thread.

    def _look(self) -> tuple[Changed, bool]:
        is_alive = self._view.supervisor() is not None
        if self._watch is None:
            if self._view.has_store:
                self._watch = self._view.reader.watch()
            return Changed(), is_alive
        return self._watch.look(), is_alive

    def _begin(self, listener: Listener, since: Position | None) -> tuple[Changed, Changed]:
        """Start a listener; return what is new to the others, and what it missed itself.

        The last check may be long ago; the answers to a new page's own requests cover that time.
        """
        self._alive = self._view.supervisor() is not None
        if self._watch is None and self._view.has_store:
            self._watch = self._view.reader.watch()
        if self._watch is None:
            return Changed(), Changed()
        news = self._watch.look()
        listener.position = since or self._watch.position
        if listener.log_trial is not None and not listener.log_line:
            listener.log_line = log_of(self._view, listener.log_trial).total
        return news, Changed() if since is None else self._view.reader.changed_since(since)

    def _points(self, listener: Listener) -> list[bytes]:
        if not self._view.has_store:
            return []
        found, last = self._view.reader.metrics.new_points(
            listener.curves, listener.position.report
        )
        listener.position = Position(last, listener.position.event, listener.position.command)
        if not found:
            return []
        series = [
            {"key": text_of(key), "steps": p.steps, "times": p.times, "values": p.values}
            for key, p in found.items()
        ]
        return [_message("points", {"series": series}, self._mark(listener))]

    def _lines(self, listener: Listener) -> list[bytes]:
        assert listener.log_trial is not None
        log = log_of(self._view, listener.log_trial)
        page = log.forwards(listener.log_line + 1, _MOST_LINES, Wanted())
        if not page.lines:
            return []
        listener.log_line = page.lines[-1].number
        if page.next is not None:
            listener.rung.set()
        lines = [line_json(listener.log_trial, line) for line in page.lines]
        content = {"trial_id": listener.log_trial, "lines": lines, "total": page.total}
        return [_message("log", content, self._mark(listener))]

    def _change(self, listener: Listener) -> bytes:
        position = self._watch.position if self._watch is not None else Position()
        report = listener.position.report if listener.curves else position.report
        listener.position = Position(report, position.event, position.command)
        content = {
            "experiments": sorted(listener.pending.experiments),
            "trials": sorted(listener.pending.trials),
            "reports": position.report,
            "supervisor": {"alive": bool(self._alive)},
        }
        listener.pending = Changed()
        return _message("change", content, self._mark(listener))

    @staticmethod
    def _mark(listener: Listener) -> str:
        at = listener.position
        return f"{at.report}.{at.event}.{at.command}.{listener.log_line}"


def _message(event: str, content: Any, mark: str) -> bytes:
    return b"".join((f"id: {mark}\nevent: {event}\ndata: ".encode(), dump(content), b"\n\n"))


def read_mark(mark: str) -> tuple[Position, int] | None:
    """The position encoded in a message id; None if it is not one of ours."""
    parts = mark.split(".")
    if len(parts) != 4 or not all(part.isdecimal() and len(part) < 17 for part in parts):
        return None
    report, event, command, line = map(int, parts)
    return Position(report, event, command), line
