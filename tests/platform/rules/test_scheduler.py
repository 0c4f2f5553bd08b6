"""Who runs next: laws over arbitrary queues, and the rules one by one."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from determined.platform.rules.scheduler import Decision, Request, Running, SlotLocation, decide


def request(key: int, **changes: object) -> Request:
    return dataclasses.replace(
        Request(key=key, experiment=key, submitted=key),
        **changes,  # type: ignore[arg-type]  # hypothesis and tests give what fits
    )


def share(request: Request) -> Fraction:
    """The part of each of its slots that a trial takes."""
    return Fraction(1, request.trials_per_slot)


@st.composite
def queues(draw: st.DrawFn) -> tuple[list[Request], list[Running], list[int]]:
    """Waiting trials, running ones that were placed by the scheduler itself, and slots."""
    slot_ids = list(range(draw(st.integers(0, 6))))
    limits = {e: draw(st.none() | st.integers(1, 6)) for e in range(4)}
    shares = {e: draw(st.integers(1, 3)) for e in range(4)}
    requests = [
        Request(
            key=key,
            experiment=(experiment := draw(st.integers(0, 3))),
            submitted=key,
            slots=draw(st.integers(0, 7)),
            priority=draw(st.sampled_from([1, 42, 99])),
            max_slots=limits[experiment],
            trials_per_slot=shares[experiment],
            overtaken=draw(st.integers(0, 8)),
            avoid=frozenset(draw(st.sets(st.integers(0, 5), max_size=2))),
        )
        for key in range(draw(st.integers(0, 12)))
    ]
    split = draw(st.integers(0, len(requests)))
    order = draw(st.permutations(requests))
    started = decide(order[:split], [], slot_ids).starts
    running = [dataclasses.replace(run, is_ending=draw(st.booleans())) for run in started]
    return order[split:], running, slot_ids


def taken(runs: list[Running]) -> dict[int, Fraction]:
    sums: dict[int, Fraction] = {}
    for run in runs:
        for slot in run.slot_ids:
            sums[slot] = sums.get(slot, Fraction(0)) + share(run.request)
    return sums


def used(runs: list[Running], experiment: int) -> Fraction:
    return sum(
        (r.request.slots * share(r.request) for r in runs if r.request.experiment == experiment),
        Fraction(0),
    )


@given(queues())
def test_no_slot_is_given_away_twice(queue: tuple[list[Request], list[Running], list[int]]) -> None:
    waiting, running, slot_ids = queue
    starts = list(decide(waiting, running, slot_ids).starts)
    assert all(share <= 1 for share in taken(running + starts).values())
    assert all(set(run.slot_ids) <= set(slot_ids) for run in starts)
    assert all(len(set(run.slot_ids)) == run.request.slots for run in starts)


@given(queues())
def test_max_slots_of_an_experiment_is_respected(
    queue: tuple[list[Request], list[Running], list[int]],
) -> None:
    waiting, running, slot_ids = queue
    starts = list(decide(waiting, running, slot_ids).starts)
    for run in starts:
        limit = run.request.max_slots
        if run.request.slots and limit is not None:
            assert used(running + starts, run.request.experiment) <= limit


@given(queues(), st.randoms(use_true_random=False))
def test_the_decision_does_not_depend_on_the_order_of_its_input(
    queue: tuple[list[Request], list[Running], list[int]], random: object
) -> None:
    waiting, running, slot_ids = queue
    first = decide(waiting, running, slot_ids)
    assert decide(list(reversed(waiting)), list(reversed(running)), slot_ids) == first


@given(queues())
def test_only_less_urgent_trials_are_preempted(
    queue: tuple[list[Request], list[Running], list[int]],
) -> None:
    waiting, running, slot_ids = queue
    decision = decide(waiting, running, slot_ids)
    by_key = {run.request.key: run for run in running}
    most_urgent = min((r.priority for r in waiting), default=None)
    assert len(set(decision.preemptions)) == len(decision.preemptions)
    for key in decision.preemptions:
        assert not by_key[key].is_ending
        assert most_urgent is not None
        assert by_key[key].request.priority > most_urgent


@given(queues())
def test_no_slot_idles_that_a_trial_could_use(
    queue: tuple[list[Request], list[Running], list[int]],
) -> None:
    """Unless it is kept for somebody: one overtaken too often, or one that waits for an end."""
    waiting, running, slot_ids = queue
    decision = decide(waiting, running, slot_ids)
    started = {run.request.key for run in decision.starts}
    left = [r for r in waiting if r.key not in started and r.slots]
    worn_out = any(
        decision.overtaken.get(r.key, r.overtaken) >= len(slot_ids) and r.slots <= len(slot_ids)
        for r in left
    )
    if worn_out or decision.preemptions or any(run.is_ending for run in running):
        return
    everything = running + list(decision.starts)
    sums = taken(everything)
    for r in left:
        room = [s for s in slot_ids if sums.get(s, Fraction(0)) + share(r) <= 1]
        within = r.max_slots is None or (
            used(everything, r.experiment) + r.slots * share(r) <= r.max_slots
        )
        assert not (within and len(room) >= r.slots)


def test_lower_priority_goes_first_then_earlier_submission() -> None:
    waiting = [request(1), request(2, priority=1), request(3, priority=1)]
    decision = decide(waiting, [], [0, 1])
    assert [(run.request.key, run.slot_ids) for run in decision.starts] == [(2, (0,)), (3, (1,))]


def test_a_trial_without_slots_starts_on_a_full_machine() -> None:
    running = [Running(request(1), (0,))]
    assert [r.request.key for r in decide([request(2, slots=0)], running, [0]).starts] == [2]


def test_trials_without_slots_are_limited_in_number() -> None:
    waiting = [request(key, slots=0) for key in range(150)]
    assert len(decide(waiting, [], []).starts) == 100


def test_two_trials_share_a_slot_before_a_third_takes_the_next() -> None:
    waiting = [request(key, experiment=1, trials_per_slot=2) for key in range(3)]
    decision = decide(waiting, [], [0, 1])
    assert [run.slot_ids for run in decision.starts] == [(0,), (0,), (1,)]


def test_a_trial_that_can_never_run_holds_up_nobody() -> None:
    decision = decide([request(1, slots=9, overtaken=99), request(2)], [], [0])
    assert [run.request.key for run in decision.starts] == [2]


def test_an_avoided_slot_is_taken_only_if_there_is_no_other() -> None:
    waiting = [request(1, avoid=frozenset({0})), request(2, avoid=frozenset({0}))]
    assert [run.slot_ids for run in decide(waiting, [], [0, 1]).starts] == [(1,), (0,)]


def test_a_big_trial_is_not_overtaken_for_ever() -> None:
    slot_ids = [0, 1, 2, 3]
    big = request(0, slots=4)
    running = [Running(request(1), (0,))]
    small = 2
    overtakes = 0
    for _ in range(50):  # one small trial ends, another comes: the machine is never empty
        decision = decide([big, request(small)], running, slot_ids)
        big = dataclasses.replace(big, overtaken=decision.overtaken.get(0, big.overtaken))
        if any(run.request.key == 0 for run in decision.starts):
            break
        overtakes += len(decision.starts)
        running = [*running, *decision.starts][-3:]
        small += 1
        if not decision.starts:
            running = running[1:]
    else:
        raise AssertionError("the big trial never started")
    assert overtakes == len(slot_ids)


def test_an_urgent_trial_preempts_the_last_in_order_and_no_more_than_needed() -> None:
    running = [Running(request(key, priority=50), (key,)) for key in range(4)]
    decision = decide([request(9, priority=1, slots=2)], running, [0, 1, 2, 3])
    assert set(decision.preemptions) == {2, 3}
    assert decision.starts == ()


def test_several_urgent_trials_preempt_in_one_go() -> None:
    running = [Running(request(key, priority=50), (key,)) for key in range(4)]
    waiting = [request(key, priority=1) for key in (7, 8, 9)]
    assert set(decide(waiting, running, [0, 1, 2, 3]).preemptions) == {1, 2, 3}


def test_nobody_is_preempted_in_vain() -> None:
    running = [Running(request(1, priority=1), (0,)), Running(request(2, priority=50), (1,))]
    decision = decide([request(9, priority=10, slots=2)], running, [0, 1])
    assert decision == Decision()


def test_slots_of_a_preempted_trial_are_kept_for_whom_it_was_preempted() -> None:
    ending = [Running(request(1, priority=50), (0,), is_ending=True)]
    big = request(2, priority=1, slots=2)
    decision = decide([big, request(3)], ending, [0, 1])
    assert decision == Decision()
    assert [r.request.key for r in decide([big, request(3)], [], [0, 1]).starts] == [2]


def test_equals_do_not_preempt_each_other() -> None:
    assert decide([request(2)], [Running(request(1), (0,))], [0]) == Decision()


def test_a_long_queue_on_a_large_machine_is_decided_in_one_go() -> None:
    """Ten thousand trials in line for a thousand slots, half of them taken."""
    slot_ids = list(range(1000))
    running = [Running(request(-n - 1, priority=50), (n,)) for n in range(500)]
    waiting = [request(n, slots=1 + n % 4, experiment=n % 20) for n in range(10_000)]
    decision = decide(waiting, running, slot_ids)
    assert sum(len(run.slot_ids) for run in decision.starts) == 500
    # Those of priority 50 make room for the first in line.
    assert len(decision.preemptions) == 500
    assert all(count <= 1000 for count in decision.overtaken.values())


NODES = {slot: SlotLocation("abc"[slot // 2], ("fast",) if slot >= 4 else ()) for slot in range(6)}


def test_a_trial_stays_on_the_fullest_node_that_has_room() -> None:
    running = [Running(request(9), (2,))]
    one = decide([request(1)], running, range(6), NODES)
    assert one.starts[0].slot_ids == (0,)
    two = decide([request(1, slots=2)], running, range(6), NODES)
    assert two.starts[0].slot_ids in ((0, 1), (4, 5))
    everywhere = [Running(request(9 + slot), (slot,)) for slot in (0, 2, 4)]
    assert decide([request(1, slots=2)], everywhere, range(6), NODES).starts == ()


def test_only_a_trial_larger_than_any_node_takes_several() -> None:
    starts = decide([request(1, slots=3)], [Running(request(9), (0,))], range(6), NODES).starts
    assert starts[0].slot_ids == (2, 3, 4)


def test_a_trial_stays_within_its_pool() -> None:
    waiting = [request(n, pool="fast") for n in range(3)]
    starts = decide(waiting, [], range(6), NODES).starts
    assert [start.slot_ids for start in starts] == [(4,), (5,)]
    assert decide([request(1, slots=3, pool="fast")], [], range(6), NODES).starts == ()


def test_preemption_makes_room_on_one_node() -> None:
    running = [Running(request(9 + slot, priority=50), (slot,)) for slot in range(6)]
    decision = decide([request(1, slots=2)], running, range(6), NODES)
    assert decision.preemptions == (14, 13)


@given(queues(), st.integers(1, 3))
def test_on_nodes_nobody_shares_a_slot_and_small_trials_stay_together(
    queue: tuple[list[Request], list[Running], list[int]], size: int
) -> None:
    waiting, running, slot_ids = queue
    places = {slot: SlotLocation(str(slot // size)) for slot in slot_ids}
    starts = decide(waiting, running, slot_ids, places).starts
    largest = max((min(size, len(slot_ids) - n) for n in range(0, len(slot_ids), size)), default=0)
    for start in starts:
        assert len(start.slot_ids) == start.request.slots
        if start.request.slots <= largest:
            assert len({places[slot].node for slot in start.slot_ids}) <= 1
    busy = taken([*running, *starts])
    assert all(count <= 1 for count in busy.values())
