"""Which trials run next: (waiting, running, slots) -> starts and preemptions. Pure.

The rules, in this order:

1. Lower `priority` goes first, then earlier submission.
2. A trial starts when its slots are free and its experiment stays within `max_slots`. It takes
   1/trials_per_slot of each of its slots; the fullest slots that have room are taken first. A trial
   that needs no slot starts at once, up to a limit. On a cluster it stays within one node, the
   fullest that has room; only one that is larger than any node takes several, as few as it can. It
   stays within its resource pool, if it names one.
3. One that does not fit lets those behind it go ahead, so no slot idles that another could use.
   But it is overtaken at most as often as there are slots: after that, free slots are kept for it.
   So a trial that needs the whole machine waits for about one generation of small ones.
4. A trial preempts running ones of strictly higher `priority` number, if that makes room for it:
   the last in order first, and none that is not needed. Equals never preempt each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

DEFAULT_PRIORITY = 42
_MOST_TRIALS_WITHOUT_SLOTS = 100


@dataclass(frozen=True)
class Request:
    """A trial that wants to run, or runs.

    Attributes:
        key: names the trial.
        experiment: whose `max_slots` it counts against.
        submitted: its position in the queue; unique.
        overtaken: how many trials behind it have started before it, as the last decision said.
        avoid: slots that it takes only if there are no others.
        pool: the resource pool that its slots must belong to; any without one.
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
    pool: str = ""

    @property
    def queue_position(self) -> tuple[int, int]:
        return self.priority, self.submitted


@dataclass(frozen=True)
class Running:
    """A trial and the slots it has; `is_ending` once it was asked to stop."""

    request: Request
    slot_ids: tuple[int, ...]
    is_ending: bool = False


class SlotLocation(NamedTuple):
    """Where a slot of a cluster is."""

    node: str
    pools: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decision:
    """What to do now. `overtaken` has the new counts of overtaken trials, by key."""

    starts: tuple[Running, ...] = ()
    preemptions: tuple[int, ...] = ()
    overtaken: dict[int, int] = field(default_factory=dict)


def decide(
    waiting: Iterable[Request],
    running: Sequence[Running],
    slot_ids: Sequence[int],
    locations: Mapping[int, SlotLocation] | None = None,
) -> Decision:
    """Apply the rules of this module. Without `locations`, all slots are on one machine."""
    queue = sorted(waiting, key=lambda request: request.queue_position)
    capacity = _Capacity(queue, running, _Slots(slot_ids, locations or {}))
    starts: list[Running] = []
    preemptions: list[int] = []
    passed_over: list[Request] = []
    overtaken: dict[int, int] = {}
    is_kept_free = False  # for one that was overtaken often enough
    for request in queue:
        if not capacity.could_hold(request) or not capacity.allows(request):
            continue  # it cannot run here, or not now by its own limit: it blocks nothing
        if is_kept_free and request.slots:
            continue
        placed = capacity.place(request)
        if placed is not None:
            starts.append(Running(request, placed))
            for other in passed_over if request.slots else ():
                overtaken[other.key] = count = overtaken.get(other.key, other.overtaken) + 1
                is_kept_free = is_kept_free or count >= len(slot_ids)
        elif request.slots and not capacity.reserve(request):
            victims = capacity.preempt_for(request)
            preemptions += [victim.request.key for victim in victims]
            if not victims:
                passed_over.append(request)
                is_kept_free = request.overtaken >= len(slot_ids)
    return Decision(tuple(starts), tuple(preemptions), overtaken)


class _Slots:
    """All slots, and their nodes."""

    def __init__(self, slot_ids: Sequence[int], locations: Mapping[int, SlotLocation]) -> None:
        self.slot_ids = slot_ids
        self._locations = locations
        self._sizes: dict[str, dict[str, int]] = {}

    def is_in(self, slot: int, pool: str) -> bool:
        return not pool or not self._locations or pool in self._locations[slot].pools

    def could_hold(self, request: Request) -> bool:
        """Whether a trial would fit if nothing else ran."""
        return request.slots <= sum(self._nodes(request.pool).values())

    def pick(self, request: Request, slots: Sequence[int]) -> tuple[int, ...] | None:
        """Choose among slots that are free enough and come in the order of preference."""
        if request.slots <= 1 or not self._locations:
            return tuple(sorted(slots[: request.slots]))
        by_node: dict[str, list[int]] = {}
        for slot in slots:
            by_node.setdefault(self._locations[slot].node, []).append(slot)
        groups = list(by_node.values())
        if request.slots <= max(self._nodes(request.pool).values()):
            groups = [group for group in groups if len(group) >= request.slots]
            groups.sort(key=lambda group: (group[0] in request.avoid, len(group)))
            groups = groups[:1]
        else:
            groups.sort(key=len, reverse=True)
        chosen = [slot for group in groups for slot in group][: request.slots]
        return tuple(sorted(chosen)) if chosen else None

    def _nodes(self, pool: str) -> dict[str, int]:
        """How many slots of a pool each node has."""
        if pool not in self._sizes:
            sizes = self._sizes[pool] = {"": 0}
            for slot in self.slot_ids:
                if self.is_in(slot, pool):
                    node = self._locations[slot].node if self._locations else ""
                    sizes[node] = sizes.get(node, 0) + 1
        return self._sizes[pool]


class _Capacity:
    """What is free of each slot: now, and once trials that were asked to stop are gone.

    A trial that waits for these has its slots reserved, so that no other starts on them meanwhile.
    Shares of slots are integers here, of which `_unit` make a slot.
    """

    def __init__(
        self, waiting: Sequence[Request], running: Sequence[Running], slots: _Slots
    ) -> None:
        requests = [*waiting, *(run.request for run in running)]
        self._unit = math.lcm(*{request.trials_per_slot for request in requests})
        self.could_hold = slots.could_hold
        self._now = _Free(slots, self._unit)
        self._later = _Free(slots, self._unit)
        self._used: dict[int, int] = {}
        self._without_slots = 0
        self._staying = [run for run in running if not run.is_ending]
        self._least_urgent = max((run.request.priority for run in self._staying), default=0)
        for run in running:
            self._count(run.request)
            self._now.take(run)
        for run in self._staying:
            self._later.take(run)

    def allows(self, request: Request) -> bool:
        """Whether the experiment's own limit, or the one of trials without slots, leaves room."""
        if not request.slots:
            return self._without_slots < _MOST_TRIALS_WITHOUT_SLOTS
        used = self._used.get(request.experiment, 0) + self._cost(request)
        return request.max_slots is None or used <= request.max_slots * self._unit

    def place(self, request: Request) -> tuple[int, ...] | None:
        """Take slots for a trial now, if enough are free and not reserved."""
        chosen = self._now.choose(request, self._later)
        if chosen is not None:
            self._count(request)
            self._now.take(Running(request, chosen))
            self._later.take(Running(request, chosen))
        return chosen

    def reserve(self, request: Request) -> bool:
        """Reserve slots for a trial that will fit once others are gone."""
        chosen = self._later.choose(request)
        if chosen is not None:
            self._later.take(Running(request, chosen))
        return chosen is not None

    def preempt_for(self, request: Request) -> list[Running]:
        """Choose trials to preempt for one, none unless it fits then; reserve their slots."""
        if request.priority >= self._least_urgent:
            return []
        candidates = [run for run in self._staying if _may_preempt(request, run)]
        candidates.sort(key=lambda run: run.request.queue_position, reverse=True)
        victims: list[Running] = []
        while candidates and self._later.choose(request) is None:
            victims.append(candidates.pop(0))
            self._later.give_back(victims[-1])
        enough = self._later.choose(request) is not None
        for run in list(victims):  # with those chosen later, it may no longer be needed
            self._later.take(run)
            if enough and self._later.choose(request) is None:
                self._later.give_back(run)
            else:
                victims.remove(run)
        if victims:
            self._staying = [run for run in self._staying if run not in victims]
            self.reserve(request)
        return victims

    def _count(self, request: Request) -> None:
        if not request.slots:
            self._without_slots += 1
        used = self._used.get(request.experiment, 0)
        self._used[request.experiment] = used + self._cost(request)

    def _cost(self, request: Request) -> int:
        return request.slots * (self._unit // request.trials_per_slot)


class _Free:
    """How many units of each slot are free."""

    def __init__(self, slots: _Slots, unit: int) -> None:
        self._slots = slots
        self._unit = unit
        self._units = dict.fromkeys(slots.slot_ids, unit)
        self._all = sorted(slots.slot_ids)
        self._passed = 0
        self._open = set(slots.slot_ids)  # those that are not full: enough for most queries

    def choose(self, request: Request, other: _Free | None = None) -> tuple[int, ...] | None:
        """Return slots that are free enough, here and in `other`; the fullest of them first."""
        if len(self._open) < request.slots:
            return None
        is_plain = request.slots == 1 and not request.avoid and not request.pool
        if is_plain and self._unit == 1 and other is not None:
            return self._first_open(other)
        share = self._unit // request.trials_per_slot
        free = {slot: self._units[slot] for slot in self._open}
        if other is not None:
            free = {slot: min(units, other._units[slot]) for slot, units in free.items()}
        is_in = self._slots.is_in
        fitting = [s for s, units in free.items() if units >= share and is_in(s, request.pool)]
        if len(fitting) < request.slots:
            return None
        fitting.sort(key=lambda slot: (slot in request.avoid, free[slot], slot))
        return self._slots.pick(request, fitting)

    def _first_open(self, other: _Free) -> tuple[int, ...] | None:
        """Choose for most trials: of slots that are free or not, the first that is in both."""
        while self._all[self._passed] not in self._open:  # nothing is given back here
            self._passed += 1
        for slot in itertools.islice(self._all, self._passed, None):
            if slot in self._open and slot in other._open:
                return (slot,)
        return None

    def take(self, run: Running) -> None:
        self._change(run, -1)

    def give_back(self, run: Running) -> None:
        self._change(run, 1)

    def _change(self, run: Running, sign: int) -> None:
        units = sign * (self._unit // run.request.trials_per_slot)
        for slot in run.slot_ids:
            if slot not in self._units:
                continue  # it was there when the run started
            self._units[slot] += units
            if self._units[slot] > 0:
                self._open.add(slot)
            else:
                self._open.discard(slot)


def _may_preempt(request: Request, run: Running) -> bool:
    return run.request.slots > 0 and run.request.priority > request.priority
