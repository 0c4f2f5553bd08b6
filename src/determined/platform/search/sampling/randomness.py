"""The single random stream of an experiment, which can be saved and restored."""

from __future__ import annotations

import base64
import hashlib
import math
import random
import struct
from typing import Any

_WORDS = 624


def between(low: float, high: float, share: float) -> float:
    """Return the number at this share of the way, however far apart the ends are."""
    return low * (1 - share) + high * share


def repeat_seeds(seed: int, count: int) -> list[int]:
    """Return the trial seeds of `repeat`, which depend on the experiment's seed alone.

    So configurations and experiments share them, whatever their spaces, and the first ones stay
    the same if there are more.
    """
    found: dict[int, None] = {}
    number = 0
    while len(found) < count:
        digest = hashlib.sha256(f"repeat {seed} {number}".encode()).digest()
        found.setdefault(int.from_bytes(digest[:4], "little") & 0x7FFFFFFF)
        number += 1
    return list(found)


class Stream:
    """Draws what `numpy.random.RandomState(seed)` would draw, bit for bit, without numpy.

    Both generators are the Mersenne Twister; only seeding and integers differ from Python's.
    Every trial takes its values in the same order (hyperparameters, request id, seed), so sample k
    depends only on the experiment's seed and on k, whenever it is drawn.
    """

    def __init__(self, seed: int) -> None:
        if not 0 <= seed < 2**32:
            raise ValueError(f"The seed must be from 0 to 2**32 - 1, got {seed}.")
        words = [seed]
        for i in range(1, _WORDS):
            words.append((1812433253 * (words[-1] ^ (words[-1] >> 30)) + i) & 0xFFFFFFFF)
        self._continue(words, _WORDS)

    def _continue(self, words: list[int], position: int) -> None:
        self._random = random.Random()
        self._random.setstate((3, (*words, position), None))
        self._bits = self._random.getrandbits

    def integer(self, low: int, high: int) -> int:
        """Return an integer from `low` (inclusive) to `high` (exclusive)."""
        largest = high - low - 1
        if largest <= 0:
            return low
        mask = (1 << largest.bit_length()) - 1
        if largest > 0xFFFFFFFF:
            return low + self._wide(largest, mask)
        while (number := self._bits(32) & mask) > largest:
            pass
        return low + number

    def _wide(self, largest: int, mask: int) -> int:
        while True:
            number = self._bits(32)  # the upper bits are drawn first, unlike in Python
            for _ in range(max((mask.bit_length() - 1) // 32, 1)):
                number = number << 32 | self._bits(32)
            if (number := number & mask) <= largest:
                return number

    def uniform(self, low: float, high: float) -> float:
        share, width = self._random.random(), high - low
        # The widest ranges are wider than any float.
        return low + width * share if width < math.inf else between(low, high, share)

    def request_id(self) -> str:
        """Return a version 4 UUID made of the next 16 bytes."""
        drawn = bytearray(self._bits(128).to_bytes(16, "little"))
        drawn[6] = drawn[6] & 0x0F | 0x40
        drawn[8] = drawn[8] & 0x3F | 0x80
        text = drawn.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def trial_seed(self) -> int:
        return self.integer(0, 2**31)

    def to_json(self) -> dict[str, Any]:
        *words, position = self._random.getstate()[1]
        packed = struct.pack(f"<{_WORDS}I", *words)
        return {"words": base64.b64encode(packed).decode("ascii"), "position": position}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Stream:
        stream = cls.__new__(cls)
        words = struct.unpack(f"<{_WORDS}I", base64.b64decode(data["words"]))
        stream._continue(list(words), data["position"])
        return stream
