"""A model of results: what it is given, and what it proposes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from determined.platform.search.space import Point


@dataclass(frozen=True, slots=True)
class ProposalRequest:
    """What a model may use: results (smaller is better) and running trials, with their points.

    A result is (trial number, point, value, units trained).
    """

    seed: int
    index: int
    observed: list[tuple[int, Point, float, int]]
    pending: list[tuple[int, Point]]


class Model(Protocol):
    """Something that proposes a point; it is stateless between requests."""

    def propose(self, request: ProposalRequest) -> Point: ...
