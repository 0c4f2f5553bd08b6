"""Ranges at the edge of what numbers can say, and values that compare equal but are not."""

from __future__ import annotations

import math
import sys

import pytest

from determined import config
from determined.config import Completion
from determined.errors import ConfigurationError
from determined.platform.search import events as e
from determined.platform.search.canonical_json import dump
from determined.platform.search.sampling.auto_model import AutoModel
from determined.platform.search.sampling.model import ProposalRequest
from determined.platform.search.sampling.randomness import Stream
from determined.platform.search.searcher import Searcher
from determined.platform.search.space import Space

_MOST = sys.float_info.max
_GRID = "entrypoint: a\nsearcher: {name: grid, metric: loss}\nhyperparameters:\n  x: "


def _load(text: str) -> dict[str, object]:
    storage = {"type": "shared_fs", "host_path": "/"}
    return config.load(text, "c.yaml", (), Completion(checkpoint_storage=storage)).effective


def test_true_and_1_are_two_points_of_a_grid() -> None:
    found = _load(_GRID + "{type: categorical, vals: [true, 1, 1.0, 0, false]}")
    searcher = Searcher(found["searcher"], found["hyperparameters"], 0)  # type: ignore[arg-type]
    step = searcher.handle(e.InitialTrials())
    created = [action.hparams["x"] for action in step.actions if isinstance(action, e.Create)]
    assert sorted(dump(x) for x in created) == sorted(map(dump, [True, 1, 1.0, 0, False]))
    with pytest.raises(ConfigurationError, match="1 is listed twice"):
        _load(_GRID + "{type: categorical, vals: [true, 1, 1]}")


def test_a_range_of_all_floats_yields_finite_ones_on_both_sides() -> None:
    space = Space({"x": {"type": "double", "minval": -_MOST, "maxval": _MOST}})
    stream = Stream(3)
    drawn = [space.values(space.draw(stream))["x"] for _ in range(300)]
    assert all(math.isfinite(x) for x in drawn)
    assert 100 < sum(x < 0 for x in drawn) < 200
    assert sum(abs(x) > _MOST / 2 for x in drawn) > 100
    model = AutoModel(space)
    observed = [(i, [x], float(i), 1) for i, x in enumerate(drawn[:9])]
    assert math.isfinite(model.propose(ProposalRequest(1, 9, observed, []))[0])
    whole = {"type": "double", "minval": -_MOST, "maxval": _MOST, "count": 5}
    grid = Space({"x": whole}).grid()
    assert all(math.isfinite(grid[i]["x"]) for i in range(len(grid)))


def test_integers_beyond_64_bits_are_drawn_from_the_whole_range() -> None:
    space = Space({"n": {"type": "int", "minval": -(2**100), "maxval": 2**100}})
    stream = Stream(3)
    drawn = [space.values(space.draw(stream))["n"] for _ in range(300)]
    assert all(isinstance(n, int) and -(2**100) <= n <= 2**100 for n in drawn)
    assert 100 < sum(n < 0 for n in drawn) < 200
    assert sum(abs(n) > 2**99 for n in drawn) > 100
    assert len({n % 2**36 for n in drawn}) > 290, "the low bits vary too"


def test_a_logarithm_of_base_1_is_refused() -> None:
    text = (
        "entrypoint: a\nsearcher: {name: random, metric: loss, max_trials: 2}\nhyperparameters:\n"
    )
    with pytest.raises(ConfigurationError, match="expected a number other than 1") as caught:
        _load(text + "  x: {type: log, base: 1, minval: -4, maxval: -1}")
    assert "4:" in str(caught.value)
