"""Which hyperparameters matter."""

from __future__ import annotations

import math
from typing import Any

import pytest

from determined.dashboard.search.importance import importance


def test_importance_finds_what_matters() -> None:
    import random

    draw = random.Random(0)
    rates = [10 ** draw.uniform(-4, -1) for _ in range(300)]
    units = [draw.randint(1, 100) for _ in rates]
    kinds = [draw.choice("abc") for _ in rates]
    losses = [
        abs(math.log10(rate) + 2) + 0.3 * (kind == "a") + 0.02 * draw.random()
        for rate, kind in zip(rates, kinds, strict=True)
    ]
    columns: dict[str, list[Any]] = {
        "units": units,
        "rate": rates,
        "kind": kinds,
        "same": [1] * 300,
    }
    shares = importance(columns, losses, smaller_is_better=True)
    assert list(shares) == ["rate", "kind", "units"]
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["rate"] > 0.6
    turned = importance(columns, [-loss for loss in losses], smaller_is_better=False)
    assert turned == shares
    assert importance(columns, losses[:3], smaller_is_better=True) == {}


def test_importance_ranks_as_optuna_does() -> None:
    optuna = pytest.importorskip("optuna")
    import random

    draw = random.Random(1)
    study = optuna.create_study()
    names = {"strong": 4.0, "middle": 1.5, "weak": 0.1}
    columns: dict[str, list[float]] = {name: [] for name in names}
    values = []
    for _ in range(400):
        params = {name: draw.uniform(0, 1) for name in names}
        value = sum(weight * (params[name] - 0.3) ** 2 for name, weight in names.items())
        for name in names:
            columns[name].append(params[name])
        values.append(value)
        distributions = {n: optuna.distributions.FloatDistribution(0, 1) for n in names}
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=distributions, value=value)
        )
    theirs = optuna.importance.get_param_importances(
        study, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
    )
    assert list(importance(columns, values, smaller_is_better=True)) == list(theirs)
