"""Every action of a halving search is that of the plain reference, whatever happens."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from determined.platform.search import events as e
from determined.platform.search.searcher import Searcher, Step
from tests.platform.search.driver import Driver
from tests.platform.search.reference import Reference
from tests.platform.search.scripted import SPACE, Script, halving

USUAL: dict[str, Any] = {
    "metric": "loss",
    "time_metric": "epochs",
    "max_trials": 20,
    "max_concurrent_trials": 4,
    "max_time": 64,
    "divisor": 4,
    "smaller_is_better": True,
}
ADAPTIVE = {"name": "adaptive_asha", "mode": "standard", "max_rungs": 5, "bracket_rungs": []}


@st.composite
def searches(draw: st.DrawFn) -> dict[str, Any]:
    common = {
        **USUAL,
        "max_trials": draw(st.integers(1, 40)),
        "max_concurrent_trials": draw(st.sampled_from([0, 1, 2, 3, 7, 16, 10_000])),
        "max_time": draw(st.integers(1, 100)),
        "divisor": draw(st.sampled_from([1.5, 2, 2.5, 3, 4, 5, 6, 7, 8])),
        "smaller_is_better": draw(st.booleans()),
    }
    if draw(st.booleans()):
        return {**common, "name": "async_halving", "num_rungs": draw(st.integers(1, 7))}
    return {
        **common,
        "name": "adaptive_asha",
        "mode": draw(st.sampled_from(["aggressive", "standard", "conservative"])),
        "max_rungs": draw(st.integers(1, 7)),
        "bracket_rungs": draw(st.just([]) | st.lists(st.integers(1, 6), max_size=5)),
    }


class Compared(Searcher):
    """A search that checks each of its answers against the reference."""

    def compare_with(self, reference: Reference) -> None:
        self.reference, self.numbers = reference, dict[str, int]()

    def handle(self, event: e.Event) -> Step:
        step = super().handle(event)
        expected = self._expected(event)
        assert [self._word(a) for a in step.actions if not isinstance(a, e.Continue)] == expected
        if not self.is_over:
            assert self.progress() == pytest.approx(self.reference.progress())
        return step

    def _expected(self, event: e.Event) -> list[str]:
        if isinstance(event, e.InitialTrials):
            return self.reference.initial()
        trial = self.numbers[event.request_id]  # type: ignore[attr-defined]
        if isinstance(event, e.ValidationCompleted):
            return self.reference.validated(trial, event.metrics["loss"], event.metrics["epochs"])
        if isinstance(event, e.TrialExitedEarly):
            return self.reference.exited_early(trial, event.reason)
        assert isinstance(event, e.TrialExited)
        return self.reference.exited(trial)

    def _word(self, action: e.Action) -> str:
        if isinstance(action, e.Shutdown):
            return "failure" if action.failure else "cancel" if action.cancel else "shutdown"
        request_id: str = action.request_id  # type: ignore[attr-defined]
        number = self.numbers.setdefault(request_id, len(self.numbers))
        return f"{action.kind.removesuffix('_trial')} {number}"


@settings(max_examples=300)
@given(
    search=searches(),
    seed=st.integers(0, 10**6),
    failures=st.sampled_from([0.0, 0.05, 0.4]),
    reasons=st.sampled_from([None, [e.INVALID_HP], [e.ERRORED], [e.USER_CANCELED], ["done"]]),
)
@example(USUAL | ADAPTIVE | {"max_trials": 1}, 0, 0.0, None)
@example(USUAL | ADAPTIVE | {"max_rungs": 1}, 0, 0.05, None)
@example(USUAL | ADAPTIVE | {"max_trials": 2, "bracket_rungs": [3, 3, 2, 1]}, 0, 0.05, None)
@example(USUAL | ADAPTIVE | {"max_time": 3, "bracket_rungs": [6]}, 0, 0.05, None)
@example(USUAL | {"name": "async_halving", "num_rungs": 4}, 0, 0.4, [e.INVALID_HP])
def test_every_action_is_that_of_the_reference(
    search: dict[str, Any], seed: int, failures: float, reasons: list[str] | None
) -> None:
    searcher = Compared(search, SPACE, seed)
    searcher.compare_with(Reference(search))
    driver = Driver(searcher, seed, failures, reasons=reasons)
    driver.play()
    assert len(driver.state) == search["max_trials"] + driver.num_invalid


NESTED: dict[str, Any] = {
    "z": {"type": "int", "minval": -3, "maxval": 2**40},
    "group": {
        "b": {"type": "categorical", "vals": ["x", None, {"k": 1}]},
        "a": {"type": "log", "base": 2, "minval": -8.5, "maxval": 3},
        "deep": {"one": {"type": "categorical", "vals": [[1]]}, "two": {"type": "const", "val": 7}},
    },
    "A": {"type": "double", "minval": -1.0, "maxval": 2.5},
    "plain": 5,
}


def _drawn(random: numpy.random.RandomState) -> tuple[dict[str, Any], str, int]:
    """One trial as specified: names in ascending order, then the request id, then the seed."""
    value_a = random.uniform(-1.0, 2.5)
    log = 2 ** random.uniform(-8.5, 3)
    kind = NESTED["group"]["b"]["vals"][random.randint(0, 3)]
    whole = -3 + int(random.randint(0, 2**40 + 3 + 1, dtype=numpy.int64))
    group = {"a": log, "b": kind, "deep": {"one": [1], "two": 7}}
    drawn = bytearray(random.bytes(16))
    drawn[6], drawn[8] = drawn[6] & 0x0F | 0x40, drawn[8] & 0x3F | 0x80
    text = drawn.hex()
    parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
    hparams = {"A": value_a, "group": group, "plain": 5, "z": whole}
    return hparams, "-".join(parts), int(random.randint(0, 2**31))


@given(seed=st.integers(0, 2**32 - 1), search=searches(), order=st.integers(0, 10**6))
def test_samples_are_those_of_numpy_in_every_search(
    seed: int, search: dict[str, Any], order: int
) -> None:
    driver = Driver(Searcher(search, NESTED, seed), order, failures=0.2)
    driver.play()
    random = numpy.random.RandomState(seed)
    for step in driver.steps:
        for action in step.actions:
            if isinstance(action, e.Create):
                assert (action.hparams, action.request_id, action.trial_seed) == _drawn(random)


def test_nothing_starts_while_the_experiment_is_being_canceled() -> None:
    search = Script(halving())
    search.start()
    assert search.handle(e.Stopping()) == []
    assert search.early(1, e.USER_CANCELED) == []
    assert search.early(2, e.USER_CANCELED) == ["cancel"]
    assert search.handle(e.LimitsRaised(rerun_failed=True)) == ["resume T1", "resume T2"]


def test_an_unknown_trial_is_an_error_that_says_so() -> None:
    search = Script(halving())
    search.start()
    with pytest.raises(ValueError, match="not one of the 2 trials"):
        search.handle(e.TrialExited("nobody"))
