"""Population-based training, played step by step."""

from __future__ import annotations

from typing import Any

import pytest

from determined.platform.search import events as e
from determined.platform.search.methods.population import Population
from determined.platform.search.searcher import Searcher
from tests.platform.search.scripted import SPACE, Script


def population(**changes: Any) -> dict[str, Any]:
    usual = {
        "name": "pbt",
        "metric": "loss",
        "population": 4,
        "interval": 2,
        "max_time": 6,
        "time_metric": "epochs",
    }
    return {**usual, **changes}


def arrive(play: Script, trial: int, epoch: int, loss: float) -> list[str]:
    """A member reaches the end of a generation: it validates and pauses."""
    return play.validate(trial, epoch, loss) + play.paused(trial)


def begun(losses: list[float], **changes: Any) -> Script:
    """A population at the end of its first generation."""
    play = Script(population(**changes))
    play.start()
    for number, loss in enumerate(losses, start=1):
        arrive(play, number, 2, loss)
    return play


def test_the_last_is_replaced_by_a_fork_of_the_first() -> None:
    play = Script(population())
    assert play.start() == ["create T1", "create T2", "create T3", "create T4"]
    assert play.validate(1, 1, 0.0) == []  # before the end of the generation, nothing is decided
    assert play.validate(1, 2, 0.4) == ["pause T1"]
    assert play.paused(1) == []
    assert arrive(play, 3, 2, 0.2) == ["pause T3"]
    assert arrive(play, 2, 2, 0.9) == ["pause T2"]
    assert play.validate(4, 2, 0.3) == ["pause T4"]
    assert play.paused(4) == [
        "resume T1",
        "free_checkpoints T2",
        "stop T2",
        "resume T3",
        "resume T4",
        "fork T5",
    ]
    fork = play.created[-1]
    assert isinstance(fork, e.Fork)
    assert (fork.parent_id, fork.at) == (play.rid(3), 200)
    parent = play.created[2].hparams
    assert {n: [parent[n], fork.hparams[n]] for n in fork.changed} == fork.changed
    assert fork.changed
    assert play.reasons[2] == "replaced after 2 epochs: rank 4 of 4"
    assert play.reasons[0] == "continues after 2 epochs: rank 3 of 4"
    assert play.reasons[5].startswith("fork of the member that continues after 2 epochs: rank 1 of")


def test_a_fork_is_a_member_like_others_and_the_last_generation_ends_the_search() -> None:
    play = begun([0.1, 0.2, 0.3, 0.4], max_time=4)
    play.exit(4)
    for trial in (1, 2, 3):
        assert play.validate(trial, 4, 0.1 * trial) == [f"stop T{trial}"]
        assert play.exit(trial) == []
    assert play.searcher.progress() == pytest.approx((1 + 3 / 4) / 2)
    assert play.validate(5, 4, 0.05) == ["stop T5"]
    assert play.exit(5) == ["shutdown"]
    assert play.searcher.progress() == 1.0


def test_ties_are_broken_by_the_order_of_creation() -> None:
    play = begun([0.5, 0.5, 0.5, 0.5])
    assert [a for a in play.steps[-1].actions if isinstance(a, e.Stop)][0].request_id == play.rid(4)
    (fork,) = [a for a in play.steps[-1].actions if isinstance(a, e.Fork)]
    assert fork.parent_id == play.rid(1)


def test_half_of_a_population_may_be_replaced() -> None:
    play = begun([0.4, 0.3, 0.2, 0.1], quantile=0.5)
    forks = [a for a in play.steps[-1].actions if isinstance(a, e.Fork)]
    assert len(forks) == 2
    assert {play.name(fork.parent_id) for fork in forks} <= {"T3", "T4"}


def test_a_member_that_failed_is_replaced_besides_the_last() -> None:
    play = Script(population())
    play.start()
    arrive(play, 1, 2, 0.1)
    play.early(2)
    play.early(3, e.USER_CANCELED)
    play.validate(4, 2, 0.2)
    # Ranked behind all others, the two take the places of those that are replaced.
    assert play.paused(4) == ["resume T1", "resume T4", "fork T5", "fork T6"]
    assert {play.name(c.parent_id) for c in play.created[4:] if isinstance(c, e.Fork)} == {"T1"}


def test_a_member_that_failed_after_it_reported_is_replaced() -> None:
    play = Script(population())
    play.start()
    for trial in (1, 2, 3):
        arrive(play, trial, 2, 0.1 * trial)
    play.early(1, e.USER_CANCELED)  # while it is paused
    play.validate(4, 2, 0.4)
    assert play.paused(4) == ["resume T2", "resume T3", "resume T4", "fork T5"]


def test_members_that_diverge_are_all_replaced() -> None:
    play = Script(population())
    play.start()
    arrive(play, 1, 2, float("nan"))
    arrive(play, 2, 2, float("inf"))
    arrive(play, 3, 2, 0.5)
    play.validate(4, 2, 0.6)
    actions = play.paused(4)
    assert [a for a in actions if a.startswith("stop")] == ["stop T1", "stop T2"]
    assert actions[-2:] == ["fork T5", "fork T6"]


def test_a_population_that_diverges_as_a_whole_fails() -> None:
    play = begun([float("nan")] * 4)
    failed = [a for a in play.steps[-1].actions if isinstance(a, e.FailTrial)]
    assert len(failed) == 4
    assert failed[0].reason == "no member has a finite metric after 2 epochs"
    assert [play.early(trial) for trial in (1, 2, 3, 4)][-1] == ["failure"]


def test_invalid_hyperparameters_at_the_start_are_drawn_again() -> None:
    play = Script(population())
    play.start()
    assert play.early(2, e.INVALID_HP) == ["create T5"]
    for trial in (1, 3, 4):
        arrive(play, trial, 2, 0.1 * trial)
    play.validate(5, 2, 0.9)
    assert play.paused(5)[-1] == "fork T6"


def test_a_member_whose_training_is_over_leaves_the_population() -> None:
    play = Script(population())
    play.start()
    play.exit(1)  # the script trains for less than an interval
    for trial in (2, 3):
        arrive(play, trial, 2, 0.1 * trial)
    play.validate(4, 2, 0.4)
    actions = play.paused(4)
    assert "resume T2" in actions
    assert sum(action.startswith("fork") for action in actions) == 1


def test_a_missing_metric_fails_the_member() -> None:
    play = Script(population())
    play.start()
    event = e.ValidationCompleted(play.rid(1), {"epochs": 2, "accuracy": 0.5}, 200)
    assert play.handle(event) == ["fail_trial T1"]
    assert "there is no `loss`" in play.reasons[0]


def test_a_finished_population_goes_on_where_it_was() -> None:
    play = begun([0.1, 0.2, 0.3, 0.4], max_time=4)
    play.exit(4)
    for trial in (1, 2, 3, 5):
        play.validate(trial, 4, 0.1 * trial)
        play.exit(trial)
    assert play.handle(e.LimitsRaised(max_time=8)) == [
        "resume T1",
        "resume T2",
        "resume T3",
        "fork T6",
    ]
    method = play.searcher._method
    assert isinstance(method, Population)
    assert method.generation == 2
    assert method.origins == {4: (0, 3), 5: (0, 4)}


def test_a_canceled_population_resumes_those_that_had_not_reported() -> None:
    play = Script(population())
    play.start()
    arrive(play, 1, 2, 0.1)
    play.handle(e.Stopping())
    ended = [play.early(trial, e.USER_CANCELED) for trial in (1, 2, 3, 4)]
    assert ended[-1] == ["cancel"]
    raised = play.handle(e.LimitsRaised(rerun_canceled=True))
    assert raised == ["resume T2", "resume T3", "resume T4"]
    for trial in (2, 3, 4):
        arrive(play, trial, 2, 0.1 * trial)
    assert "resume T1" in [play._word(a) for a in play.steps[-1].actions]


def test_inherited_hyperparameters_stay() -> None:
    play = begun([0.1, 0.2, 0.3, 0.4], inherit=["n"])
    fork = play.created[-1]
    assert isinstance(fork, e.Fork)
    assert set(fork.changed) == {"lr"}


def test_first_configurations_can_be_given() -> None:
    play = Script(population(initial=[{"lr": 0.01, "n": 3}]))
    play.start()
    assert play.created[0].hparams == {"lr": 0.01, "n": 3}
    with pytest.raises(ValueError, match=r"at most population \(4\) configurations, got 5"):
        Searcher(population(initial=[{}] * 5), SPACE, 0)


def test_a_population_without_ranges_is_refused() -> None:
    with pytest.raises(ValueError, match="give at least one a range"):
        Searcher(population(), {"lr": 0.1}, 0)
    with pytest.raises(ValueError, match="'m' is not a searched hyperparameter; these are: lr, n"):
        Searcher(population(inherit=["m"]), SPACE, 0)
