"""Hyperparameters that exist only with values of others, and the kinds of ranges beside `int`."""

from __future__ import annotations

import math
from typing import Any

import pytest

from determined.config import load
from determined.platform.search import events as e
from determined.platform.search.sampling.auto_model import AutoModel
from determined.platform.search.sampling.model import ProposalRequest
from determined.platform.search.sampling.optuna_model import OptunaModel
from determined.platform.search.sampling.proposals import keep_apart
from determined.platform.search.sampling.randomness import Stream
from determined.platform.search.searcher import Searcher
from determined.platform.search.simulation.preview import preview
from determined.platform.search.space import Space

BOOSTERS: dict[str, Any] = {
    "booster": {"type": "categorical", "vals": ["gbtree", "dart", "gblinear"]},
    "max_depth": {
        "type": "int",
        "minval": 3,
        "maxval": 12,
        "count": 3,
        "when": {"booster": ["gbtree", "dart"]},
    },
    "rate_drop": {
        "type": "double",
        "minval": 0.0,
        "maxval": 0.5,
        "count": 2,
        "when": {"booster": "dart"},
    },
}


def _is_consistent(hparams: dict[str, Any]) -> bool:
    booster = hparams["booster"]
    has_depth, has_drop = "max_depth" in hparams, "rate_drop" in hparams
    return has_depth is bool(booster != "gblinear") and has_drop is bool(booster == "dart")


def test_an_inactive_hyperparameter_is_absent_and_the_draws_of_others_stay() -> None:
    plain = {name: {**entry, "when": None} for name, entry in BOOSTERS.items()}
    conditional, always = Space(BOOSTERS), Space(plain)
    one, other = Stream(5), Stream(5)
    seen = set()
    for _ in range(50):
        hparams = conditional.values(conditional.draw(one))
        whole = always.values(always.draw(other))
        assert _is_consistent(hparams)
        assert hparams == {name: whole[name] for name in hparams}
        seen.add(hparams["booster"])
    assert len(seen) == 3


def test_a_grid_runs_every_different_combination_once() -> None:
    grid = Space(BOOSTERS).grid()
    points = [grid[i] for i in range(len(grid))]
    assert len(points) == 3 + 3 * 2 + 1
    assert len({str(point) for point in points}) == len(points)
    assert all(map(_is_consistent, points))
    found = preview({"name": "grid", "metric": "loss"}, BOOSTERS, max_length=5)
    assert (found.num_trials, found.most_units) == (10, 50)


def test_conditions_nest_and_groups_without_values_are_absent() -> None:
    space = Space(
        {
            "net": {
                "kind": {"type": "categorical", "vals": ["cnn", "mlp"]},
                "deep": {
                    "type": "categorical",
                    "vals": [True, False],
                    "when": {"net": {"kind": "cnn"}},
                },
            },
            "extra": {
                "blocks": {"type": "int", "minval": 1, "maxval": 4, "when": {"net.deep": True}},
                "label": {"type": "const", "val": "x", "when": {"net.deep": True}},
            },
        }
    )
    names = [leaf.name for leaf in space.searched]
    assert names == ["extra.blocks", "net.deep", "net.kind"]
    assert space.values([2, 0, 0]) == {
        "extra": {"blocks": 2, "label": "x"},
        "net": {"deep": True, "kind": "cnn"},
    }
    assert space.values([2, 1, 0]) == {"net": {"deep": False, "kind": "cnn"}}
    assert space.values([2, 0, 1]) == {"net": {"kind": "mlp"}}
    assert space.settled([2, 0, 1]) == space.settled([4, 1, 1])


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ({"boster": "dart"}, "there is no hyperparameter boster; there are: booster"),
        ({"booster": "tree"}, 'expected one of .*"dart".*, got "tree": this is never so'),
        ({"rate": 0.1}, "rate has any number of values"),
        ({"depth": 3}, "the conditions of depth go round in a circle"),
        ({}, "expected names of other hyperparameters"),
    ],
)
def test_impossible_conditions_are_refused(when: dict[str, Any], message: str) -> None:
    space = {
        "booster": BOOSTERS["booster"],
        "rate": {"type": "log", "minval": -3, "maxval": 0},
        "depth": {"type": "int", "minval": 1, "maxval": 5, "when": when},
    }
    with pytest.raises(ValueError, match=message):
        Space(space)


def test_first_configurations_name_what_their_values_depend_on() -> None:
    space = Space(BOOSTERS)
    assert space.fixed({"booster": "dart", "rate_drop": 0.1}, "initial[0]") == {0: "dart", 2: 0.1}
    with pytest.raises(ValueError, match='rate_drop: exists only with booster: "dart"; give'):
        space.fixed({"rate_drop": 0.1}, "initial[0]")
    with pytest.raises(ValueError, match="and booster is 'gbtree' here"):
        space.fixed({"booster": "gbtree", "rate_drop": 0.1}, "initial[0]")


@pytest.mark.parametrize("sampler", ["auto", "tpe", "cmaes", "qmc"])
def test_models_propose_points_of_conditional_spaces(sampler: str) -> None:
    search = {"name": "random", "metric": "loss", "max_trials": 40, "sampler": sampler}
    search["max_concurrent_trials"] = 1
    searcher = Searcher(search, BOOSTERS, 3)
    actions, records, values = searcher.handle(e.InitialTrials()).actions, [], []
    records.append({"event": e.to_json(e.InitialTrials())})
    proposed = 0
    while creates := [action for action in actions if isinstance(action, e.Create)]:
        (create,) = creates
        assert _is_consistent(create.hparams)
        proposed += "proposed" in create.reason
        loss = {"gbtree": 1.0, "dart": 0.3, "gblinear": 2.0}[create.hparams["booster"]]
        loss += abs(create.hparams.get("max_depth", 3) - 9) / 10
        loss += abs(create.hparams.get("rate_drop", 0.1) - 0.1)
        values.append(loss)
        searcher.handle(e.ValidationCompleted(create.request_id, {"loss": loss}, 1))
        actions = searcher.handle(e.TrialExited(create.request_id)).actions
    assert len(values) == 40
    assert proposed >= 10 or sampler == "qmc"
    if sampler == "auto":
        assert min(values) < 0.4
    assert Searcher.restore(search, BOOSTERS, 3, searcher.snapshot()).snapshot() == (
        searcher.snapshot()
    )


def test_the_model_takes_points_that_differ_in_inactive_values_for_equal() -> None:
    space = Space(BOOSTERS)
    model = AutoModel(space)
    one, other = model._encode([[2, 5, 0.1], [2, 9, 0.4]])
    assert one.tolist() == other.tolist()
    active, inactive = model._encode([[1, 5, 0.1], [0, 5, 0.1]])
    assert active[2] != 0.5
    assert inactive[2] == 0.5
    observed = [(i, [2, 3, 0.0], float(i), 1) for i in range(3)]
    point = model.propose(ProposalRequest(1, 3, observed, []))
    assert _is_consistent(space.values(point))


def test_a_value_that_exists_only_after_a_repeat_was_avoided_is_drawn() -> None:
    space = Space(BOOSTERS)
    tried = [space.settled([2, 5, 0.1])]
    assert keep_apart(space, [2, 3, 0.0], [1, 7, 0.3], tried, 9, width=0.0) == [1, 7, 0.3]
    assert space.completed([2, 3, 0.0], Stream(4)) != [2, 3, 0.0]


def test_steps_are_drawn_in_decimal_numbers_up_to_the_end() -> None:
    space = Space(
        {
            "drop": {"type": "double", "minval": 0.1, "maxval": 0.5, "step": 0.1},
            "width": {"type": "int", "minval": 8, "maxval": 70, "step": 16},
        }
    )
    stream, seen = Stream(1), set()
    for _ in range(200):
        hparams = space.values(space.draw(stream))
        seen |= {hparams["drop"], hparams["width"]}
    assert seen == {0.1, 0.2, 0.3, 0.4, 0.5, 8, 24, 40, 56}
    assert all(isinstance(value, int) for value in seen if value >= 8)
    grid = space.grid()
    assert len(grid) == 5 * 4
    assert grid[0] == {"drop": 0.1, "width": 8}
    assert space.fixed({"drop": 0.3}, "initial[0]") == {0: 0.3}
    assert space.moved([0, 0], {0: 0.3, 1: 56}) == [2, 3]
    with pytest.raises(ValueError, match=r"expected 0.1 plus a multiple of 0.1, such as"):
        space.fixed({"drop": 0.33}, "initial[0]")
    with pytest.raises(ValueError, match=r"drop.step: expected a number above 0, at most"):
        Space({"drop": {"type": "double", "minval": 0.0, "maxval": 1.0, "step": 2.0}})
    with pytest.raises(ValueError, match="only int and double take it"):
        Space({"lr": {"type": "log", "minval": -4, "maxval": -1, "step": 1}})


def test_count_spreads_over_steps() -> None:
    leaf = Space({"w": {"type": "int", "minval": 0, "maxval": 100, "step": 10, "count": 3}}).leaves
    assert leaf[0].axis() == [0, 50, 100]


def test_integers_on_a_logarithmic_scale() -> None:
    entry = {"type": "log_int", "minval": 1, "maxval": 1024}
    space, stream = Space({"n": entry}), Stream(7)
    drawn = [space.values(space.draw(stream))["n"] for _ in range(4000)]
    assert min(drawn) == 1
    assert max(drawn) > 900
    assert all(isinstance(value, int) for value in drawn)
    middle = sorted(drawn)[2000]
    assert 20 < middle < 50  # the geometric middle is 32
    assert Space({"n": {**entry, "count": 6}}).leaves[0].axis() == [1, 4, 16, 64, 256, 1024]
    assert Space({"n": {**entry, "maxval": 3, "count": 6}}).leaves[0].axis() == [1, 2, 3]
    with pytest.raises(ValueError, match="at least 1"):
        Space({"n": {**entry, "minval": 0}})


@pytest.mark.parametrize("build", [AutoModel, lambda space: OptunaModel("tpe", space)])
def test_models_propose_integers_and_steps_within_their_ranges(build: Any) -> None:
    hyperparameters = {
        "n": {"type": "log_int", "minval": 4, "maxval": 4096},
        "s": {"type": "double", "minval": -1.0, "maxval": 1.0, "step": 0.25},
    }
    space = Space(hyperparameters)
    model, stream = build(space), Stream(2)
    points = [space.draw(stream) for _ in range(20)]
    observed = [(i, p, abs(math.log(p[0] / 64)) + p[1], 1) for i, p in enumerate(points)]
    for seed in range(20):
        values = space.values(model.propose(ProposalRequest(seed, 20, observed, [])))
        assert isinstance(values["n"], int)
        assert 4 <= values["n"] <= 4096
        assert values["s"] * 4 == int(values["s"] * 4)
        assert -1 <= values["s"] <= 1


def test_old_ranges_draw_what_they_drew() -> None:
    space = Space(
        {
            "a": {"type": "int", "minval": 0, "maxval": 9},
            "b": {"type": "double", "minval": 0.0, "maxval": 1.0},
            "c": {"type": "categorical", "vals": ["x", "y"]},
            "d": {"type": "log", "minval": -4, "maxval": -1},
        }
    )
    numpy = pytest.importorskip("numpy")
    state = numpy.random.RandomState(11)
    drawn = space.draw(Stream(11))
    assert drawn[0] == state.randint(0, 10)
    assert drawn[1] == state.uniform(0, 1)


def test_effective_configurations_of_old_files_have_no_new_keys() -> None:
    config = {
        "entrypoint": "python3 x.py",
        "searcher": {"name": "random", "metric": "loss", "max_trials": 3},
        "hyperparameters": {"a": {"type": "int", "minval": 0, "maxval": 9}, "b": 3},
    }
    storage = {"checkpoint_storage": {"type": "shared_fs", "host_path": "/tmp"}}
    effective = load({**config, **storage, "name": "x"}).effective
    assert effective["hyperparameters"] == {
        "a": {"type": "int", "minval": 0, "maxval": 9},
        "b": 3,
    }
