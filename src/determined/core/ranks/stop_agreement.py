"""A count at which all ranks stop, agreed on in the background while they keep training.

A collective between batches could deadlock with those in the user's own code: a rank may wait in
one of them until another rank begins its next batch. So the threads that listen to the other ranks
agree instead. A rank that wants to stop tells the chief, and the chief asks all ranks how far they
are. Each answers with a count that it will not pass until it is told where to stop: at the largest
of these. A main thread waits only for those answers, and they come whatever the other main threads
do.
"""

from __future__ import annotations

import struct
import threading

from determined.core.ranks.group import Group

_MESSAGE = struct.Struct("!Qq")  # the round, and a count
_ASKED = -1  # in place of a count: the chief asks


class StopAgreement:
    """This rank's part in agreeing where to stop.

    Call `is_reached` at the same counts on every rank, `renew` after each collective that settles
    whether to stop. Only `position` is stored when nobody wants to stop.

    Args:
        group: all ranks of the job.
    """

    def __init__(self, group: Group, rank: int, size: int) -> None:
        self.position = 0
        self._group = group
        self._rank = rank
        self._size = size
        self._earliest = 0
        self._round = 0
        self._answered = -1  # the last round in which this rank has named its limit
        self._settled = (-1, 0)  # the last round that was settled, and the count to stop at
        self._limits: dict[int, dict[int, int]] = {}  # of all ranks; only the chief keeps them
        self._lock = threading.Lock()
        group.handle_notes(self._receive)

    def begin(self, position: int, earliest: int) -> None:
        """Count from `position` on, and stop nowhere before `earliest`."""
        self.position = position
        self._earliest = earliest

    def propose(self) -> None:
        """Ask to stop where this rank is, or as soon after it as the others can."""
        self._answer(self._round, self.position)

    @property
    def is_proposed(self) -> bool:
        """Whether any rank is known to want to stop."""
        return self._answered == self._round

    def is_reached(self, count: int) -> bool:
        """Wait until all ranks have answered; return whether `count` is where to stop."""
        self._group.wait_for_notes(
            "agreement where to stop", lambda: self._settled[0] == self._round
        )
        return count >= self._settled[1]

    def renew(self) -> None:
        """Begin a new round. Every rank does so at the same count."""
        self._round += 1

    def _answer(self, round_: int, limit: int | None = None) -> None:
        """Name this rank's limit, once a round."""
        with self._lock:
            if self._answered >= round_:
                return
            self._answered = round_
            if limit is None:
                # Read after the assignment: a thread that stores a later position sees the request.
                limit = self.position + 1
            limit = max(limit, self._earliest)
        if self._rank == 0:
            self._record(round_, 0, limit)
        else:
            self._send([0], round_, limit)

    def _record(self, round_: int, rank: int, limit: int) -> None:
        """Store one rank's limit, on the chief: the first opens the round, the last closes it."""
        others = range(1, self._size)
        with self._lock:
            is_first = round_ not in self._limits
            if is_first:
                self._limits = {round_: {}}
            limits = self._limits[round_]
            limits[rank] = limit
            is_last = len(limits) == self._size
        if is_first:
            self._send(others, round_, _ASKED)
            self._answer(round_)
        if is_last:
            self._send(others, round_, max(limits.values()))
            self._settle(round_, max(limits.values()))

    def _receive(self, rank: int, note: bytes | bytearray) -> None:
        """Handle a note from another rank, in the thread that listens to it."""
        round_, count = _MESSAGE.unpack(note)
        if self._rank == 0:
            self._record(round_, rank, count)
        elif count == _ASKED:
            self._answer(round_)
        else:
            self._settle(round_, count)

    def _settle(self, round_: int, stop_at: int) -> None:
        self._settled = (round_, stop_at)
        self._group.wake()

    def _send(self, ranks: range | list[int], round_: int, count: int) -> None:
        note = _MESSAGE.pack(round_, count)
        for rank in ranks:
            self._group.send_note(rank, note)
