"""Promotion (`stop_once: false`) and raised limits."""

from __future__ import annotations

from determined.platform.search import events as e
from determined.platform.search.searcher import Searcher
from determined.platform.search.simulation.curves import SyntheticCurves
from determined.platform.search.simulation.simulator import simulate
from tests.platform.search.scripted import SPACE, Script, halving


def test_a_paused_trial_is_promoted_when_there_is_room_on_one_slot() -> None:
    search = Script(
        halving(stop_once=False, max_concurrent_trials=1, divisor=2, num_rungs=2, max_trials=4)
    )
    assert search.start() == ["create T1"]
    assert search.validate(1, 8, 0.3) == ["pause T1", "create T2"]
    assert search.reasons[0] == "paused at 8 epochs: rank 1 of 1, none continues yet"
    assert search.paused(1) == []
    assert search.validate(2, 8, 0.5) == ["pause T2", "resume T1"]
    assert search.reasons[1] == "promoted from 8 epochs: rank 1 of 2, the best 1 continues"
    assert search.paused(2) == []
    assert search.validate(1, 16, 0.1) == ["stop T1", "create T3"]
    assert search.validate(3, 8, 0.6) == ["stop T3", "create T4"]
    assert "at most 2 can" in search.reasons[0]
    # The fourth is the last: of four the best two go on, itself and the first; the second never.
    assert search.validate(4, 8, 0.4) == ["continue T4", "free_checkpoints T2", "stop T2"]
    assert search.validate(4, 16, 0.2) == ["stop T4"]
    assert [search.exit(trial) for trial in (1, 2, 3, 4)] == [[], [], [], ["shutdown"]]


def test_a_trial_is_resumed_only_after_its_checkpoint_is_there() -> None:
    search = Script(
        halving(stop_once=False, max_concurrent_trials=2, divisor=2, num_rungs=2, max_trials=3)
    )
    search.start()
    assert search.validate(1, 8, 0.3) == ["pause T1", "create T3"]
    assert search.validate(2, 8, 0.5) == ["stop T2"]  # the first takes the only place of two
    assert search.exit(2) == []
    assert search.paused(1) == ["resume T1"]


def test_no_more_are_promoted_than_a_rung_allows_while_new_trials_come() -> None:
    search = Script(
        halving(stop_once=False, max_concurrent_trials=1, divisor=2, num_rungs=2, max_trials=40)
    )
    search.start()
    search.validate(1, 8, 0.9)
    search.paused(1)
    for trial, loss in enumerate((0.8, 0.7, 0.6, 0.5, 0.65), start=2):  # each among the best so far
        assert search.validate(trial, 8, loss) == [f"continue T{trial}"]
        search.validate(trial, 16, loss)
    assert search.validate(7, 8, 0.66)[0] == "pause T7"
    search.paused(7)
    for trial in (8, 9, 10, 11):  # it is the fourth of eight, but five have gone on
        assert search.validate(trial, 8, 1.0) == [f"pause T{trial}", f"create T{trial + 1}"]
        search.paused(trial)
    assert search.validate(12, 8, 1.0) == ["pause T12", "resume T7"]
    assert search.reasons[1] == "promoted from 8 epochs: rank 4 of 12, the best 6 continue"


def test_promotion_ends_with_as_many_full_trials_as_stopping_or_fewer() -> None:
    found = {}
    for stop_once in (True, False):
        searcher = Searcher(halving(max_trials=256, stop_once=stop_once), SPACE, 1)
        found[stop_once] = simulate(searcher, SyntheticCurves(), 1, [1, 4, 16])
    assert found[False].is_over
    assert 256 // 16 <= found[False].num_full <= found[True].num_full + 2
    assert found[False].best[-1][1] <= found[True].best[-1][1] + 0.01


def finished(**changes: object) -> Script:
    search = Script(halving(max_trials=4, max_concurrent_trials=4, **changes))
    search.start()
    for trial, loss in enumerate((0.4, 0.3, 0.2, 0.1), start=1):
        search.validate(trial, 1, loss)
    for trial in (1, 2, 3, 4):
        search.validate(trial, 4, 0.5 + trial / 10)
    for trial in (1, 2, 3, 4):
        search.validate(trial, 16, 0.5)
        search.exit(trial)
    assert search.searcher.is_over
    return search


def test_more_trials_on_a_finished_search() -> None:
    search = finished()
    assert search.handle(e.LimitsRaised(max_trials=6)) == ["create T5", "create T6"]
    assert search.validate(5, 1, 0.9)[0] == "stop T5"
    search.exit(5)
    search.validate(6, 1, 0.9)
    assert search.exit(6) == ["shutdown"]


def test_stopped_trials_are_promoted_when_more_results_make_room() -> None:
    search = Script(halving(max_trials=3, divisor=2, num_rungs=2, max_concurrent_trials=1))
    search.start()
    search.validate(1, 8, 0.1)
    search.validate(1, 16, 0.1)
    assert search.exit(1) == []
    assert search.validate(2, 8, 0.2) == ["stop T2", "create T3"]
    search.exit(2)
    search.validate(3, 8, 0.3)
    assert search.exit(3) == ["shutdown"]
    assert search.handle(e.LimitsRaised(max_trials=4)) == ["create T4"]
    assert search.validate(4, 8, 0.9) == ["stop T4", "resume T2"]
    assert search.validate(2, 16, 0.05) == ["stop T2"]


def test_longer_training_puts_a_rung_on_top() -> None:
    search = finished()
    actions = search.handle(e.LimitsRaised(max_time=64))
    assert actions == ["resume T1"]
    assert "promoted from 16 epochs: rank 1 of 1" in search.reasons[0]
    assert search.validate(1, 64, 0.4) == ["stop T1"]
    assert search.exit(1) == ["shutdown"]


def test_longer_training_of_a_random_search_resumes_all_who_finished() -> None:
    search = Script(
        {"name": "random", "metric": "loss", "max_trials": 3, "max_concurrent_trials": 2}
    )
    search.start()
    search.exit(1)
    search.early(2)
    search.exit(3)
    assert search.searcher.is_over
    assert search.handle(e.LimitsRaised(max_length=200)) == ["resume T1", "resume T3"]
    search.exit(1)
    assert search.exit(3) == ["shutdown"]
    assert search.handle(e.LimitsRaised(rerun_failed=True)) == ["resume T2"]
    assert search.exit(2) == ["shutdown"]


def test_failed_trials_run_again_on_request_and_leave_their_place_as_worst() -> None:
    search = Script(halving(max_trials=2))
    search.start()
    search.validate(1, 1, 0.5)
    search.early(1)
    assert search.early(2) == ["failure"]
    assert search.handle(e.LimitsRaised(rerun_failed=True)) == ["resume T1", "resume T2"]
    assert search.validate(2, 1, 0.9) == ["stop T2"]
    assert "rank 2 of 2" in search.reasons[0]
    assert search.validate(1, 4, 0.9) == ["continue T1"]
    assert "rank 1 of 1" in search.reasons[0]
    search.exit(2)
    assert search.exit(1) == ["shutdown"]


def test_raising_nothing_ends_at_once() -> None:
    search = finished()
    assert search.handle(e.LimitsRaised()) == ["shutdown"]
