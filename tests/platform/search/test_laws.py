"""Laws that hold for every method, whatever happens in whatever order."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined.platform.search import events as e
from determined.platform.search.canonical_json import dump, load
from determined.platform.search.methods.halving import Halving
from determined.platform.search.sampling.model import ProposalRequest
from determined.platform.search.sampling.randomness import Stream
from determined.platform.search.search_state import STOPPED
from determined.platform.search.searcher import Searcher
from determined.platform.search.space import Point, Space
from tests.platform.search.driver import Driver
from tests.platform.search.scripted import SPACE


class Chance:
    """A model that proposes any point: decisions of a search with `auto`, at no cost."""

    def propose(self, request: ProposalRequest) -> Point:
        return Space(SPACE).draw(Stream(request.seed))


@st.composite
def populations(draw: st.DrawFn) -> dict[str, Any]:
    interval = draw(st.integers(1, 20))
    return {
        "name": "pbt",
        "metric": "loss",
        "population": draw(st.integers(2, 12)),
        "interval": interval,
        "max_time": interval * draw(st.integers(1, 6)),
        "time_metric": "epochs",
        "quantile": draw(st.sampled_from([0.1, 0.25, 0.5])),
        "perturb": draw(st.sampled_from([[0.8, 1.25], [2.0]])),
        "resample": draw(st.sampled_from([0.0, 0.25, 1.0])),
        "inherit": draw(st.sampled_from([[], ["n"]])),
    }


RULES = st.fixed_dictionaries(
    {},
    optional={"no_improvement_for": st.integers(1, 12), "max_total_units": st.integers(1, 400)},
)


@st.composite
def searches(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from(["random", "async_halving", "adaptive_asha"]))
    search: dict[str, Any] = {
        "name": name,
        "metric": "loss",
        "max_trials": draw(st.integers(1, 30)),
        "max_concurrent_trials": draw(st.integers(0, 6)),
    }
    if name != "random":
        search |= {
            "max_time": draw(st.integers(1, 64)),
            "time_metric": "epochs",
            "divisor": draw(st.sampled_from([1.5, 2, 3, 4])),
            "stop_once": draw(st.booleans()),
            "sampler": draw(st.sampled_from(["random", "auto"])),
        }
    if name == "async_halving":
        search["num_rungs"] = draw(st.integers(1, 5))
    if name == "adaptive_asha":
        search["mode"] = draw(st.sampled_from(["aggressive", "standard", "conservative"]))
        search["bracket_rungs"] = draw(st.sampled_from([[], [1, 2, 3], [4, 4]]))
    return search


@settings(max_examples=150)
@given(search=searches(), seed=st.integers(0, 10**6), failures=st.sampled_from([0.0, 0.05, 0.4]))
def test_every_search_ends_within_its_budget(
    search: dict[str, Any], seed: int, failures: float
) -> None:
    searcher = Searcher(search, SPACE, seed, model=Chance())
    driver = Driver(searcher, seed, failures)
    driver.play()
    assert len(driver.state) == search["max_trials"] + driver.num_invalid
    limit = search["max_concurrent_trials"]
    if limit:
        brackets = len(getattr(searcher._method, "brackets", [0]))
        assert driver.most_running <= max(limit, brackets)
    assert searcher.progress() == 1.0


@settings(max_examples=150)
@given(search=searches(), rules=RULES, seed=st.integers(0, 10**6))
def test_a_search_with_rules_ends_when_they_say(
    search: dict[str, Any], rules: dict[str, int], seed: int
) -> None:
    searcher = Searcher(search | {"stop_when": rules}, SPACE, seed, model=Chance())
    driver = Driver(searcher, seed, failures=0.1)
    driver.play()
    (shutdown,) = [a for s in driver.steps for a in s.actions if isinstance(a, e.Shutdown)]
    assert len(driver.state) <= search["max_trials"] + driver.num_invalid
    if "no improvement" not in shutdown.reason and "were trained" not in shutdown.reason:
        assert len(driver.state) == search["max_trials"] + driver.num_invalid
        return
    # Continued, it counts again, and neither run nor bracket was miscounted.
    before = len(driver.state)
    driver.play(e.LimitsRaised(max_trials=search["max_trials"] + 3, rerun_failed=True))
    assert before <= len(driver.state) <= search["max_trials"] + 3 + driver.num_invalid
    for bracket in getattr(searcher._method, "brackets", []):
        assert bracket.live == 0
        assert all(rung.heading == 0 for rung in bracket.rungs)


@settings(max_examples=100)
@given(search=searches(), seed=st.integers(0, 10**6))
def test_promotion_leaves_nobody_behind_who_is_among_the_best(
    search: dict[str, Any], seed: int
) -> None:
    search |= {"name": "async_halving", "stop_once": False, "num_rungs": 3, "divisor": 3}
    search |= {"max_time": 64, "time_metric": "epochs", "sampler": "random"}
    searcher = Searcher(search, SPACE, seed, model=Chance())
    Driver(searcher, seed, failures=0.0).play()
    assert isinstance(searcher._method, Halving)
    (bracket,) = searcher._method.brackets
    for trial in searcher.state.trials:
        if trial.status == STOPPED and trial.rung < len(bracket.rungs) - 1:
            rung = bracket.rungs[trial.rung]
            assert rung.place(trial.values[-1]) >= max(len(rung.values) // 3, 1)


@settings(max_examples=150)
@given(search=populations(), seed=st.integers(0, 10**6), failures=st.sampled_from([0.0, 0.05, 0.4]))
def test_a_population_ends_within_its_budget(
    search: dict[str, Any], seed: int, failures: float
) -> None:
    searcher = Searcher(search, SPACE, seed)
    driver = Driver(searcher, seed, failures, length=search["max_time"])
    driver.play()
    size, generations = search["population"], search["max_time"] // search["interval"]
    assert driver.most_running <= size
    forks = [a for step in driver.steps for a in step.actions if isinstance(a, e.Fork)]
    assert len(forks) <= size * (generations - 1)
    assert all(fork.changed for fork in forks)
    assert not any(set(fork.changed) & set(search["inherit"]) for fork in forks)
    assert searcher.progress() == 1.0


@settings(max_examples=60)
@given(
    search=populations(), seed=st.integers(0, 10**6), orders=st.tuples(st.integers(), st.integers())
)
def test_a_population_is_the_same_in_whatever_order_its_members_report(
    search: dict[str, Any], seed: int, orders: tuple[int, int]
) -> None:
    created = []
    for order in orders:
        driver = ByTrial(Searcher(search, SPACE, seed), order)
        driver.play()
        actions = [action for step in driver.steps for action in step.actions]
        created.append([a for a in actions if isinstance(a, e.Create)])
    assert created[0] == created[1]


class ByTrial(Driver):
    """Trials whose results depend on the trial and its position alone; so do some failures."""

    def __init__(self, searcher: Searcher, order: int) -> None:
        super().__init__(searcher, order, failures=0.0, length=10**6)

    def _train(self, request_id: str) -> None:
        self.epochs[request_id] += 1
        epoch = self.epochs[request_id]
        chance = random.Random(f"{request_id} {epoch}")
        if chance.random() < 0.01:
            self._end(request_id, chance.choice([e.ERRORED, e.INVALID_HP]))
            return
        loss = float("nan") if chance.random() < 0.02 else round(chance.random(), 1)
        self.handle(e.ValidationCompleted(request_id, {"epochs": epoch, "loss": loss}, epoch * 7))

    def _happen(self, request_id: str) -> None:
        if self.state[request_id] in ("stopping", "pausing"):
            self._settle(request_id)
        else:
            super()._happen(request_id)

    def _settle(self, request_id: str) -> None:
        if self.state[request_id] == "stopping":
            self._end(request_id, None)
        else:
            self.state[request_id] = "paused"
            self.handle(e.TrialPaused(request_id))


@settings(max_examples=80)
@given(search=searches() | populations(), rules=RULES, seed=st.integers(0, 10**6))
def test_records_replayed_from_zero_give_the_same_bytes(
    search: dict[str, Any], rules: dict[str, int], seed: int
) -> None:
    if search["name"] != "pbt":
        search = search | {"stop_when": rules}
    driver = Driver(Searcher(search, SPACE, seed, model=Chance()), seed)
    driver.play()
    records = [load(dump(step.record)) for step in driver.steps]
    again = Searcher(search, SPACE, seed, model=Chance())
    for step, record in zip(driver.steps, records, strict=True):
        repeated = again.replay(record)
        assert repeated.actions == step.actions
        assert dump(repeated.record) == dump(step.record)
    assert dump(again.snapshot()) == dump(driver.searcher.snapshot())


@settings(max_examples=40)
@given(search=searches(), seed=st.integers(0, 10**6), more=st.integers(1, 20))
def test_a_continued_search_ends_within_its_new_budget(
    search: dict[str, Any], seed: int, more: int
) -> None:
    searcher = Searcher(search, SPACE, seed, model=Chance())
    driver = Driver(searcher, seed, failures=0.2, length=300)
    driver.play()
    total = search["max_trials"] + more
    driver.play(e.LimitsRaised(max_trials=total, max_time=200, rerun_failed=True))
    assert len(driver.state) == total + driver.num_invalid
    records = [load(dump(step.record)) for step in driver.steps]
    again = Searcher.restore(search, SPACE, seed, records=records)
    assert dump(again.snapshot()) == dump(searcher.snapshot())


@settings(max_examples=60)
@given(search=populations(), seed=st.integers(0, 10**6), more=st.integers(1, 3))
def test_a_continued_population_ends_within_its_new_budget(
    search: dict[str, Any], seed: int, more: int
) -> None:
    searcher = Searcher(search, SPACE, seed)
    driver = Driver(searcher, seed, failures=0.1, length=10**6)
    driver.play()
    longer = search["max_time"] + more * search["interval"]
    driver.play(e.LimitsRaised(max_time=longer, rerun_failed=True))
    assert driver.most_running <= search["population"]
    records = [load(dump(step.record)) for step in driver.steps]
    again = Searcher.restore(search, SPACE, seed, records=records)
    assert dump(again.snapshot()) == dump(searcher.snapshot())


@settings(max_examples=30)
@given(search=populations(), seed=st.integers(0, 10**6))
def test_a_longer_population_continues_as_if_it_had_been_longer_from_the_start(
    search: dict[str, Any], seed: int
) -> None:
    created = []
    for begins_with in (search["max_time"], search["max_time"] + search["interval"]):
        longer = search["max_time"] + search["interval"]
        driver = ByTrial(Searcher({**search, "max_time": begins_with}, SPACE, seed), seed)
        driver.play()
        if begins_with < longer:
            driver.play(e.LimitsRaised(max_time=longer))
        actions = [action for step in driver.steps for action in step.actions]
        created.append([a for a in actions if isinstance(a, e.Create)])
    assert created[0] == created[1]


CUT: list[dict[str, Any]] = [
    {
        "name": "adaptive_asha",
        "metric": "loss",
        "max_trials": 64,
        "max_time": 64,
        "time_metric": "epochs",
        "stop_once": stop_once,
    }
    for stop_once in (True, False)
]
CUT.append(CUT[1] | {"stop_when": {"no_improvement_for": 40, "max_total_units": 900}})
CUT.append(
    {
        "name": "pbt",
        "metric": "loss",
        "population": 12,
        "interval": 8,
        "max_time": 64,
        "time_metric": "epochs",
    }
)


@pytest.mark.parametrize("search", CUT, ids=["stopping", "promotion", "rules", "population"])
def test_a_search_cut_after_any_event_continues_identically(search: dict[str, Any]) -> None:
    driver = Driver(Searcher(search, SPACE, 3), seed=5)
    driver.play()
    end = dump(driver.searcher.snapshot())
    running = Searcher(search, SPACE, 3)
    for index, step in enumerate(driver.steps):
        snapshot = load(dump(running.snapshot()))
        cut = Searcher.restore(search, SPACE, 3, snapshot)
        assert dump(cut.snapshot()) == dump(snapshot)
        for later in driver.steps[index : index + 25]:
            assert cut.replay(later.record).actions == later.actions
        running.replay(step.record)
        if index % 40 == 0:
            rest = [later.record for later in driver.steps[index:]]
            whole = Searcher.restore(search, SPACE, 3, snapshot, rest)
            assert dump(whole.snapshot()) == end
    assert dump(running.snapshot()) == end


def test_sample_k_depends_on_the_seed_and_k_alone() -> None:
    search = {"name": "adaptive_asha", "metric": "loss", "max_trials": 40, "max_time": 64}
    search |= {"time_metric": "epochs", "max_concurrent_trials": 5}
    created = []
    for order in (1, 2):
        driver = Driver(Searcher(search, SPACE, 9), seed=order, failures=0.0)
        driver.play()
        actions = [action for step in driver.steps for action in step.actions]
        created.append([a for a in actions if isinstance(a, e.Create)])
    first, second = created
    assert first == second


def test_a_snapshot_of_another_format_is_refused() -> None:
    searcher = Searcher({"name": "single", "metric": "loss"}, SPACE, 0)
    snapshot = searcher.snapshot() | {"version": 99}
    with pytest.raises(ValueError, match="format 99"):
        Searcher.restore({"name": "single", "metric": "loss"}, SPACE, 0, snapshot)


def test_infinite_and_missing_numbers_survive_a_record() -> None:
    event = e.ValidationCompleted("x", {"loss": float("inf"), "more": [float("-inf")]}, 3)
    text = dump(e.to_json(event))
    assert e.event_from_json(load(text)) == event
    assert "Infinity" not in text


def test_a_search_without_a_model_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from determined.platform.search import searcher, events\n"
        "from determined.platform.search.processes import custom_process\n"
        "from determined.platform.search.simulation import preview\n"
        "config = {'name': 'random', 'metric': 'loss', 'max_trials': 3}\n"
        "space = {'a': {'type': 'int', 'minval': 0, 'maxval': 9}}\n"
        "searcher.Searcher(config, space, 1).handle(events.InitialTrials())\n"
        "print({'torch', 'numpy', 'optuna', 'yaml', 'pydantic'} & sys.modules.keys())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stdout + done.stderr
