"""Overrides of the command line."""

from __future__ import annotations

from typing import Any

import pytest

from determined.errors import ConfigurationError
from tests.config.loading import MINIMAL, effective, load


@pytest.mark.parametrize(
    ("override", "path", "expected"),
    [
        ("labels=a,b", ["labels"], ["a", "b"]),
        ("labels=[a]", ["labels"], ["a"]),
        ("name='a,b'", ["name"], "a,b"),
        ("description=", ["description"], None),
        ("data.x={a: [1, 2]}", ["data", "x"], {"a": [1, 2]}),
        ("data.lr=1e-4", ["data", "lr"], 1e-4),
        ("data.flag=true", ["data", "flag"], True),
        ("data.text=a=b", ["data", "text"], "a=b"),
        ("max_restarts=0", ["max_restarts"], 0),
        ("searcher.metric=acc", ["searcher", "metric"], "acc"),
        ("bind_mounts={host_path: /a, container_path: /b}", ["bind_mounts", 0, "host_path"], "/a"),
        ("hyperparameters.a.b=3", ["hyperparameters", "a", "b"], 3),
    ],
)
def test_overrides_read_their_values(override: str, path: list[Any], expected: Any) -> None:
    found: Any = effective(MINIMAL, override)
    for step in path:
        found = found[step]
    assert found == expected


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("max_restarts", "--config: expected key=value, got 'max_restarts'"),
        ("=3", "--config: expected key=value, got '=3'"),
        ("a..b=3", "expected key=value"),
        ("max_restarts=x", "--config max_restarts=x: max_restarts: expected an integer >= 0"),
        ("entrypoint.x=1", "`entrypoint` is not a mapping"),
        ("data=[1", "not YAML"),
        ("searcher.name=random", "searcher.max_trials: missing"),
        ("max_restarts=1,2", "expected an integer >= 0, got a list"),
    ],
)
def test_wrong_overrides_are_told(override: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(MINIMAL, override)
    assert message in str(caught.value)
