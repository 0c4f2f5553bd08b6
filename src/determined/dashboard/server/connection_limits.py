"""Limits for single connections: headers arrive in time, and floods of nonsense are slowed down."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
MALFORMED_SECONDS = 0.3


class ImpatientProtocol(H11Protocol):
    """HTTP over one connection."""

    _hurry: asyncio.TimerHandle | None = None
    _is_malformed = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        if self._is_malformed:  # read all the same: unread data would cut the answer off
            return
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:  # the headers of a request are still incomplete
            self._wait()
        else:
            self._stop_waiting()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, but not at once: no browser sends it, and floods do."""
        self._is_malformed = True
        self.loop.call_later(MALFORMED_SECONDS, self._reject, msg)

    def _reject(self, msg: str) -> None:
        if self.transport.is_closing():
            return
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:  # in the middle of an answer
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._hurry is None:
            self._hurry = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._hurry is not None:
            self._hurry.cancel()
            self._hurry = None

    def _give_up(self) -> None:
        self._hurry = None
        if self.conn.their_state is h11.IDLE and (self.cycle is None or self.conn.trailing_data[0]):
            self.transport.close()
