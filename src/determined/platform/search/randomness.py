"""The one random stream of an experiment, which can be written down and continued."""

from __future__ import annotations

import base64
import uuid
from typing import Any


class Stream:
    """Draws from `numpy.random.RandomState(seed)`, bit for bit.

    Every trial takes its values in the same order (hyperparameters, request id, seed), so sample k
    depends on the experiment's seed and on k alone, whenever it is asked for.
    """

    def __init__(self, seed: int) -> None:
        import numpy

        self._state = numpy.random.RandomState(seed)

    def integer(self, low: int, high: int) -> int:
        """Return a whole number from `low` up to but without `high`."""
        return low + int(self._state.randint(0, high - low))

    def uniform(self, low: float, high: float) -> float:
        return float(self._state.uniform(low, high))

    def request_id(self) -> str:
        """Return a UUID of version 4 made of the next 16 bytes."""
        return str(uuid.UUID(bytes=self._state.bytes(16), version=4))

    def trial_seed(self) -> int:
        return int(self._state.randint(0, 2**31))

    def to_json(self) -> dict[str, Any]:
        _, words, position, _, _ = self._state.get_state(legacy=True)
        packed = base64.b64encode(words.astype("<u4").tobytes()).decode("ascii")
        return {"words": packed, "position": int(position)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Stream:
        import numpy

        stream = cls(0)
        words = numpy.frombuffer(base64.b64decode(data["words"]), dtype="<u4")
        stream._state.set_state(("MT19937", words, data["position"], 0, 0.0))
        return stream
