"""Who runs next: (waiting, running, slots) -> starts and preemptions. Pure.

The rules, in this order:

1. Lower `priority` goes first, then earlier submission.
2. A trial starts when its slots are free and its experiment stays within `max_slots`. It takes
   1/trials_per_slot of each of its slots; the fullest slots that have room are taken first. A trial
   that needs no slot starts at once, up to a limit.
3. One that does not fit lets those behind it go ahead, so no slot idles that somebody could use.
   But it is overtaken at most as often as there are slots: after that, free slots are kept for it.
   So a trial that needs the whole machine waits for about one generation of small ones.
4. A trial preempts running ones of strictly higher `priority` number, if that makes room for it:
   the last in order first, and none that is not needed. Equals never preempt each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

DEFAULT_PRIORITY = 42
_MOST_TRIALS_WITHOUT_SLOTS = 100


@dataclass(frozen=True)
class Request:
    """A trial that wants to run, or runs.

    Attributes:
        key: names the trial.
        experiment: whose `max_slots` it counts against.
        submitted: its place in line; unique.
        overtaken: how many trials behind it have started before it, as the last decision said.
        avoid: slots that it takes only if there are no others.
    """

    key: int
    experiment: int
    submitted: int
    slots: int = 1
    priority: int = DEFAULT_PRIORITY
    max_slots: int | None = None
    trials_per_slot: int = 1
    overtaken: int = 0
    avoid: frozenset[int] = frozenset()

    @property
    def place(self) -> tuple[int, int]:
        return self.priority, self.submitted

    @property
    def share(self) -> Fraction:
        """The part of each of its slots that it takes."""
        return Fraction(1, self.trials_per_slot)


@dataclass(frozen=True)
class Running:
    """A trial and the slots it has; `is_ending` once it was told to stop."""

    request: Request
    slot_ids: tuple[int, ...]
    is_ending: bool = False


@dataclass(frozen=True)
class Decision:
    """What to do now. `overtaken` has the new counts of those that were, by key."""

    starts: tuple[Running, ...] = ()
    preemptions: tuple[int, ...] = ()
    overtaken: dict[int, int] = field(default_factory=dict)


def decide(
    waiting: Iterable[Request], running: Sequence[Running], slot_ids: Sequence[int]
) -> Decision:
    """Apply the rules of this module."""
    room = _Room(slot_ids, running)
    starts: list[Running] = []
    preemptions: list[int] = []
    overtaken: dict[int, int] = {}
    passed_over: list[Request] = []
    for request in sorted(waiting, key=lambda r: r.place):
        if request.slots > len(slot_ids) or not room.allows(request):
            continue  # it cannot run here, or not now by its own limit: it holds up nobody
        is_held = request.slots > 0 and any(
            overtaken.get(other.key, other.overtaken) >= len(slot_ids) for other in passed_over
        )
        if is_held:
            continue
        placed = room.place(request)
        if placed is not None:
            starts.append(Running(request, placed))
            for other in passed_over if request.slots else ():
                overtaken[other.key] = overtaken.get(other.key, other.overtaken) + 1
        elif request.slots and not room.reserve(request):
            victims = room.preempt_for(request)
            preemptions += [victim.request.key for victim in victims]
            if not victims:
                passed_over.append(request)
    return Decision(tuple(starts), tuple(preemptions), overtaken)


class _Room:
    """What is free of each slot: now, and once those that were told to stop are gone.

    A trial that waits for these has its slots reserved, so that nobody starts on them meanwhile.
    """

    def __init__(self, slot_ids: Sequence[int], running: Sequence[Running]) -> None:
        self._now = {slot: Fraction(1) for slot in slot_ids}
        self._later = dict(self._now)
        self._used: dict[int, Fraction] = {}
        self._without_slots = 0
        self._staying = [run for run in running if not run.is_ending]
        for run in running:
            self._count(run.request)
            _take(self._now, run)
        for run in self._staying:
            _take(self._later, run)

    def allows(self, request: Request) -> bool:
        """Whether the experiment's own limit, or that of trials without slots, leaves room."""
        if not request.slots:
            return self._without_slots < _MOST_TRIALS_WITHOUT_SLOTS
        used = self._used.get(request.experiment, Fraction(0))
        return request.max_slots is None or used + _cost(request) <= request.max_slots

    def place(self, request: Request) -> tuple[int, ...] | None:
        """Take slots for a trial now, if enough are free and not reserved."""
        both = {slot: min(free, self._later[slot]) for slot, free in self._now.items()}
        chosen = _choose(request, both)
        if chosen is not None:
            self._count(request)
            _take(self._now, Running(request, chosen))
            _take(self._later, Running(request, chosen))
        return chosen

    def reserve(self, request: Request) -> bool:
        """Keep slots for a trial that has enough once others are gone."""
        chosen = _choose(request, self._later)
        if chosen is not None:
            _take(self._later, Running(request, chosen))
        return chosen is not None

    def preempt_for(self, request: Request) -> list[Running]:
        """Choose whom to preempt for a trial, nobody unless it fits then; reserve their slots."""
        candidates = [
            run
            for run in self._staying
            if run.request.priority > request.priority and run.request.slots
        ]
        candidates.sort(key=lambda run: run.request.place, reverse=True)
        later = dict(self._later)
        victims: list[Running] = []
        while candidates and _choose(request, later) is None:
            victims.append(candidates.pop(0))
            _give_back(later, victims[-1])
        if _choose(request, later) is None:
            return []
        for run in list(victims):  # with those that came after, it may not be needed any more
            _take(later, run)
            if _choose(request, later) is not None:
                victims.remove(run)
            else:
                _give_back(later, run)
        self._later = later
        self._staying = [run for run in self._staying if run not in victims]
        self.reserve(request)
        return victims

    def _count(self, request: Request) -> None:
        if not request.slots:
            self._without_slots += 1
        used = self._used.get(request.experiment, Fraction(0))
        self._used[request.experiment] = used + _cost(request)


def _cost(request: Request) -> Fraction:
    return request.slots * request.share


def _choose(request: Request, free: dict[int, Fraction]) -> tuple[int, ...] | None:
    fitting = [slot for slot, left in free.items() if left >= request.share]
    if len(fitting) < request.slots:
        return None
    fitting.sort(key=lambda slot: (slot in request.avoid, free[slot], slot))
    return tuple(sorted(fitting[: request.slots]))


def _give_back(free: dict[int, Fraction], run: Running) -> None:
    for slot in run.slot_ids:
        if slot in free:
            free[slot] += run.request.share


def _take(free: dict[int, Fraction], run: Running) -> None:
    for slot in run.slot_ids:
        if slot in free:  # else one that was there when the run started
            free[slot] -= run.request.share
