"""Two runs in step: one shows each stage to the other, which says where they part.

They are processes of their own, each with its own code, and meet at a socket. The leader sends a
stage and waits for an answer; the follower compares it with its own, asks for the values that
differ, and writes down the verdict. Where one of them does what the other does not, such as a step
of an optimizer, both go on to the next stage that every batch has: it shows what that changed.
"""

from __future__ import annotations

import io
import json
import pathlib
import time
from collections.abc import Mapping
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import torch

from determined._contracts.replay_span import ReplaySpan, verdict_path
from determined.pytorch.replay._parting import (
    Parting,
    describe,
    is_within,
    only_one,
    size_of,
    stage_of,
)
from determined.pytorch.replay._stages import Partner
from determined.pytorch.verify_resume._trace import Event

_SECONDS = 120.0  # until the other process has come to its first batch
_GO, _STOP = "go", "stop"
_MEETING = ("before", "train_batch", "end")  # stages that every batch, or run, has once


def meet(span: ReplaySpan, rank: int) -> Partner:
    """Wait for the other run: each rank for its own counterpart."""
    assert span.socket is not None
    socket = f"{span.socket}.{rank}"
    if span.is_leader:
        with Listener(socket, "AF_UNIX") as listener:
            return _Leader(listener.accept())
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            connection = Client(socket, "AF_UNIX")
            break
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    assert span.verdict is not None
    return _Follower(connection, verdict_path(span.verdict, rank), rank)


class _Leader:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def compare(self, event: Event, values: Mapping[str, Any]) -> bool:
        """Show a stage, and the values that are asked for; False when told to stop."""
        try:
            _send(self._connection, event)
            while (answer := _receive(self._connection)) not in (_GO, _STOP):
                kept = {name: values[name] for name in answer if name in values}
                self._connection.send_bytes(_packed(kept))
        except (EOFError, OSError):  # the other has ended
            return False
        return bool(answer == _GO)


class _Follower:
    def __init__(self, connection: Connection, verdict: pathlib.Path, rank: int) -> None:
        self._connection = connection
        self._verdict = verdict
        self._rank = rank
        self._stages = 0
        self._aside: dict[str, str] = {}  # settings that differ from the start
        self._place: tuple[int, str] | None = None  # of these
        self._is_first = True
        self._alone: tuple[Event, Event] | None = None  # where the stages of both were not the same
        self._ahead: Event | None = None  # the leader's stage that this run has yet to reach

    def compare(self, event: Event, values: Mapping[str, Any]) -> bool:
        """Compare a stage with the leader's; False if they differ, or the leader has ended."""
        if self._alone is not None and event["stage"] not in _MEETING:
            return True
        try:
            other = self._next(event)
        except EOFError:
            self._write(Parting(event["batch"], "end", "the first run has ended", "", []))
            return False
        if other is None:
            return True
        self._stages += 1
        if self._is_first:
            self._set_aside(other, event, values)
        parting = self._parting(self._without_aside(other), self._without_aside(event), values)
        self._alone = None
        if parting is None and event["stage"] == "end":
            parting = self._settings(event["batch"])
            self._write(parting)
        elif parting is not None:
            self._write(parting)
            _send(self._connection, _STOP)
            return False
        _send(self._connection, _GO)
        return True

    def _next(self, event: Event) -> Event | None:
        """Return the leader's stage to compare with; None if this run has first to go on."""
        other, self._ahead = self._ahead or _receive(self._connection), None
        if self._alone is None and _place(other) != _place(event):
            self._alone = (other, event)
        if self._alone is None:
            return other
        while other["stage"] not in _MEETING:
            _send(self._connection, _GO)
            other = _receive(self._connection)
        if event["stage"] in _MEETING:
            return other
        self._ahead = other
        return None

    def _set_aside(self, other: Event, event: Event, values: Mapping[str, Any]) -> None:
        """Note which settings differ already where both start; what follows from them counts."""
        self._is_first = False
        names = _differing(other, event)
        theirs = self._ask(names)
        for name in names:
            mine, their = values.get(name), theirs.get(name)
            is_tensor = isinstance(mine, torch.Tensor) or isinstance(their, torch.Tensor)
            if not is_tensor and not name.startswith("the random state"):
                was = repr(their) if name in theirs else "nothing"
                self._aside[name] = f"{was} and {repr(mine) if name in values else 'nothing'}"
        self._place = (event["batch"], next(iter(self._aside), ""))

    def _without_aside(self, event: Event) -> Event:
        kept = {n: v for n, v in event["digests"].items() if n not in self._aside}
        return {**event, "digests": kept}

    def _settings(self, batch: int) -> Parting | None:
        """What is left to say of runs that train the same with different settings."""
        if not self._aside or self._place is None:
            return None
        start, name = self._place
        return Parting(start, stage_of("before", name), "from the start", name, [])

    def _parting(self, one: Event, two: Event, values: Mapping[str, Any]) -> Parting | None:
        """Return how a stage of both differs; None if it does not."""
        names = _differing(one, two)
        if self._alone is not None:
            mine, text = only_one(*self._alone)
            if not names and _place(one) == _place(two) and not is_within(mine["stage"]):
                return None  # a validation more or less leaves training as it is
            stage = stage_of(mine["stage"], "")
            return self._measured(mine["batch"], stage, text, names, values)
        if one["samples"] != two["samples"]:
            names = [name for name in names if name.startswith("batch")]
            return self._measured(one["batch"], "data", describe(one, two, names), names, values)
        if not names:
            return None
        text, stage = describe(one, two, names), stage_of(one["stage"], names[0])
        return self._measured(one["batch"], stage, text, names, values)

    def _measured(
        self, batch: int, stage: str, text: str, names: list[str], values: Mapping[str, Any]
    ) -> Parting:
        name = names[0] if names else ""
        theirs = self._ask([name]) if name else {}
        size = size_of(theirs.get(name), values.get(name)) if name else ""
        return Parting(batch, stage, text, name, names[1:], size)

    def _ask(self, names: list[str]) -> dict[str, Any]:
        if not names:
            return {}
        _send(self._connection, names)
        found: dict[str, Any] = torch.load(
            io.BytesIO(self._connection.recv_bytes()), weights_only=True
        )
        return found

    def _write(self, parting: Parting | None) -> None:
        found = None if parting is None else {**parting.as_json(), "rank": self._rank}
        verdict = {"parting": found, "settings": self._aside, "stages": self._stages}
        draft = self._verdict.with_name(f"{self._verdict.name}.draft")
        draft.write_text(json.dumps(verdict))
        draft.replace(self._verdict)


def _place(event: Event) -> tuple[str, int]:
    return event["stage"], event["batch"]


def _differing(one: Event, two: Event) -> list[str]:
    mine, other = two["digests"], one["digests"]
    names = [*other, *(name for name in mine if name not in other)]
    return [name for name in names if mine.get(name) != other.get(name)]


def _packed(values: Mapping[str, Any]) -> bytes:
    """Tensors as they are, numbers and texts too; of all else what it looks like."""
    plain = (torch.Tensor, bool, int, float, str, type(None))
    file = io.BytesIO()
    torch.save(
        {
            name: value.detach().cpu().as_subclass(torch.Tensor)
            if isinstance(value, torch.Tensor)
            else value
            if isinstance(value, plain)
            else repr(value)
            for name, value in values.items()
        },
        file,
    )
    return file.getvalue()


def _send(connection: Connection, value: Any) -> None:
    connection.send_bytes(json.dumps(value).encode())


def _receive(connection: Connection) -> Any:
    return json.loads(connection.recv_bytes())
