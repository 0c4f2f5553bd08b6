"""Choose the next sample: from the random stream, or from a model of the results at the rungs.

A model's proposals are recorded with the event that asked for them; a replay reads them there. They
are kept away from earlier trials: near-duplicates teach little.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from determined.platform.search.sampling.model import Model, ProposalRequest
from determined.platform.search.sampling.results import FEWEST_SCORED, MOST_SCORED, Results
from determined.platform.search.sampling.samplers import build_model
from determined.platform.search.space import Leaf, Point, Space

_RANDOM_EVERY = {"auto": 8}  # a model alone may never leave a bad region
_USUALLY_RANDOM_EVERY = 4
_MOST_PENDING = 16
_MOST_TRIED = 200  # the newest trials that a proposal must not repeat


@dataclass(frozen=True, slots=True)
class Choice:
    """The point of a new trial, and why it was chosen."""

    point: Point
    reason: str


class Proposals:
    """Chooses points for new trials."""

    def __init__(
        self, sampler: str, space: Space, seed: int, unit: str, model: Model | None = None
    ) -> None:
        self.sampler = sampler
        self.needs_points = sampler != "random" and bool(space.searched)
        self.results = Results(is_kept=self.needs_points)
        self.made: list[Any] = []  # for the record of the current event
        self.points: dict[int, Point] = {}
        self._recorded: list[Any] | None = None
        self._space, self._seed, self._unit = space, seed, unit
        self._model = model

    def check_installed(self) -> None:
        """Raise ImportError that says what to install if the model cannot run."""
        if self.needs_points:
            self._built_model()

    def begin(self, recorded: list[Any] | None = None) -> None:
        """Start an event; `recorded` are the proposals made when it first happened."""
        self.made, self._recorded = [], None if recorded is None else list(recorded)

    def note(self, number: int, point: Point) -> None:
        """Take note of a trial that was given, so that a model can learn from it."""
        if self.needs_points:
            self.points[number] = self._space.settled(point)

    def point(self, number: int, drawn: Point, live: Iterable[int]) -> Choice:
        """Return the point of a new trial, given the next sample of the random stream.

        `live` are the numbers of the running trials.
        """
        if not self.needs_points:
            return Choice(drawn, "a random sample")
        if self._recorded is not None:
            answer = self._recorded.pop(0)
        else:
            try:
                answer = self._ask(number, drawn, live)
            except Exception as error:  # the search is worth more than a proposal
                answer = [drawn, f"a random sample, because {self.sampler} failed: {error!r}"]
        self.made.append(answer)
        choice = Choice(drawn, "a random sample") if answer is None else Choice(*answer)
        self.points[number] = self._space.settled(choice.point)
        return choice

    def _ask(self, number: int, drawn: Point, live: Iterable[int]) -> list[Any] | None:
        seed = zlib.crc32(f"{self._seed}:{number}".encode())
        if self.sampler == "qmc":
            request = ProposalRequest(self._seed % 2**32, number, [], [])
            return [self._propose(request), f"point {number + 1} of a qmc sequence"]
        every = _RANDOM_EVERY.get(self.sampler, _USUALLY_RANDOM_EVERY)
        is_random = number % every == every - 1
        if self.sampler == "auto":
            return self._ask_auto(number, seed, drawn, live, is_random)
        found = self.results.highest()
        if is_random or found is None:
            return None
        units, level = found
        observed = [(n, self.points[n], value, units) for n, value in level.chosen().items()]
        pending = self._newest(n for n in live if not level.has(n))
        where = f" at {units} {self._unit}" if units else ""
        reason = f"proposed by {self.sampler} from {len(observed)} results{where}"
        proposed = self._propose(ProposalRequest(seed, number, observed, pending))
        known = {*level.chosen(), *self._recent(number)}
        tried = [self.points[n] for n in known]
        point = keep_apart(self._space, proposed, drawn, tried, number)
        return [point, reason if point == proposed else f"{reason}, away from earlier trials"]

    def _ask_auto(
        self, number: int, seed: int, drawn: Point, live: Iterable[int], is_random: bool
    ) -> list[Any] | None:
        """Ask the model of `auto`, which learns from all lengths."""
        scored = self.results.scored(MOST_SCORED)
        if is_random or len(scored) < FEWEST_SCORED:
            return None
        pending = self._newest(live)
        observed = [(n, self.points[n], score, units) for n, score, units in scored]
        longest = max(units for _, _, units in scored)
        upto = f" up to {longest} {self._unit}" if longest else ""
        reason = f"proposed by auto from {len(observed)} results{upto}"
        proposed = self._propose(ProposalRequest(seed, number, observed, pending))
        tried = [self.points[n] for n in {*(n for n, _, _ in scored), *self._recent(number)}]
        point = keep_apart(self._space, proposed, drawn, tried, number, width=0.0)
        return [point, reason if point == proposed else f"{reason}, away from earlier trials"]

    def _newest(self, live: Iterable[int]) -> list[tuple[int, Point]]:
        return [(n, self.points[n]) for n in sorted(live, reverse=True)[:_MOST_PENDING]]

    @staticmethod
    def _recent(number: int) -> range:
        return range(max(number - _MOST_TRIED, 0), number)

    def _propose(self, request: ProposalRequest) -> Point:
        return self._built_model().propose(request)

    def _built_model(self) -> Model:
        if self._model is None:
            self._model = build_model(self.sampler, self._space)
        return self._model


def keep_apart(
    space: Space,
    proposed: Point,
    drawn: Point,
    tried: Collection[Point],
    number: int,
    width: float | None = None,
) -> Point:
    """Return the proposal, with values of a random sample where it would repeat a trial.

    A point within a quarter of `width` of a trial, in all values, repeats it. By default, divide
    the space into as many cells as there are trials, and take the width of a cell: it shrinks with
    each trial, so models can still refine.
    """
    leaves, result = space.searched, list(proposed)
    active = space.active(result)
    width = _cell(leaves, number) if width is None else width
    for axis in _order(leaves, number):
        if not any(_is_near(leaves, space.settled(result), point, width) for point in tried):
            break
        result[axis] = drawn[axis]
        if space.is_conditional:  # what exists now has no proposed value
            now = space.active(result)
            for i, (was, is_now) in enumerate(zip(active, now, strict=True)):
                if is_now and not was:
                    result[i] = drawn[i]
            active = now
    return result


def _order(leaves: Sequence[Leaf], number: int) -> list[int]:
    """Return the order in which to replace values: ranges before categories; varies by trial."""
    axes = sorted(range(len(leaves)), key=lambda axis: (axis - number) % len(leaves))
    return sorted(axes, key=lambda axis: leaves[axis].kind == "categorical")


def _cell(leaves: Sequence[Leaf], number: int) -> float:
    """Return the width of a cell, as a share of each range, with one cell per trial."""
    ranges, combinations = 0, 1
    for leaf in leaves:
        if leaf.kind == "categorical":
            combinations *= len(leaf.values)
        else:
            ranges += 1
    return math.pow(min(1.0, combinations / (number + 1)), 1 / max(ranges, 1))


def _is_near(leaves: Sequence[Leaf], one: Point, other: Point, width: float) -> bool:
    for leaf, a, b in zip(leaves, one, other, strict=True):
        if leaf.kind == "categorical":
            if a != b:
                return False
        elif abs(a - b) > width / 4 * (leaf.high - leaf.low):
            return False
    return True
