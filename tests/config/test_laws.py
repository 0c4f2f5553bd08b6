"""Laws of loading, over generated configurations: 100 for each law, 10,200 in the long form."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from determined.config import (
    Completion,
    Loaded,
    Problem,
    load,
    load_file,
    masked,
    schema,
    to_yaml,
    typed_hyperparameters,
)
from determined.config.model.experiment import Configuration
from determined.config.model.searcher import SEARCHERS
from determined.config.model.storage import STORAGES
from determined.config.reading import yaml_reader
from determined.errors import ConfigurationError
from tests.support.faults import at_least

_MANY = settings(
    max_examples=at_least(100, 850),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
_COMPLETION = Completion(
    created=1, name="n", checkpoint_storage={"type": "shared_fs", "host_path": "/c"}
)
_VALIDATOR = Draft7Validator(schema())
_FILES = sorted((Path(__file__).parent / "older").glob("*.yaml"))
_WRITTEN = [yaml_reader.read(path.read_bytes(), path.name).value for path in _FILES]
_WRITTEN += [load_file(path, (), _COMPLETION).effective for path in _FILES[:3]]

_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 1000)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.text(max_size=8)
    | st.sampled_from(["best", "O1", "4G", "1h", "a=b", "m:C", "random", "int", "/a", "batches"])
)
_keys = st.text(max_size=6) | st.sampled_from(
    sorted(
        Configuration.known_keys().union(
            *(m.known_keys() for m in [*SEARCHERS.values(), *STORAGES.values()]),
            ("minval", "maxval", "vals", "val", "count", "base", "batches", "epochs", "pattern"),
        )
    )
)
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3),
    max_leaves=6,
)


def attempt(
    config: Any, *overrides: str, given: Completion = _COMPLETION
) -> Loaded | tuple[Problem, ...]:
    """Load; anything but a result or a list of problems fails the test."""
    try:
        return load(config, "c.yaml", overrides, given)
    except ConfigurationError as error:
        problems: tuple[Problem, ...] = error.problems
    assert any(problem.severity == "error" for problem in problems)
    for problem in problems:
        is_of_the_whole = problem.source == "--config" or "mapping of keys" in problem.message
        assert problem.path or problem.place or is_of_the_whole, str(problem)
        problem.render()
        json.dumps(problem.to_json())
    return problems


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    steps: Any = ()
    if isinstance(value, dict):
        steps = value.items()
    elif isinstance(value, list):
        steps = enumerate(value)
    return [path, *(p for key, item in steps for p in paths(item, (*path, key)))]


@st.composite
def changed_files(draw: st.DrawFn) -> Any:
    """A real file with one to three places changed, added or taken away."""
    config = copy.deepcopy(draw(st.sampled_from(_WRITTEN)))
    for _ in range(draw(st.integers(1, 3))):
        places = [p for p in paths(config) if p]
        if not places:  # all of it was taken away
            break
        path = draw(st.sampled_from(places))
        parent: Any = config
        for step in path[:-1]:
            parent = parent[step]
        what = draw(st.sampled_from(["change", "add", "remove"]))
        if what == "change":
            parent[path[-1]] = draw(_values)
        elif what == "add" and isinstance(parent, dict):
            parent[draw(_keys)] = draw(_values)
        else:
            del parent[path[-1]]
    return config


@_MANY
@given(st.dictionaries(_keys, _values, max_size=6) | changed_files())
def test_loading_gives_a_result_or_problems_and_nothing_else(config: Any) -> None:
    result = attempt(config)
    if not isinstance(result, Loaded):
        return
    again = load(result.effective, completion=Completion())
    assert again.effective == result.effective
    assert again.configuration == result.configuration
    assert load(to_yaml(result.effective)).effective == result.effective
    masked(result.effective)
    typed_hyperparameters(result.effective)


@_MANY
@given(changed_files())
def test_what_loads_fits_the_schema(config: Any) -> None:
    # A storage of a type that no file names: its keys complete none of theirs.
    given = Completion(checkpoint_storage={"type": "directory", "container_path": "/c"})
    if isinstance(attempt(config, given=given), Loaded):
        assert [error.message for error in _VALIDATOR.iter_errors(config)] == []


@_MANY
@given(changed_files())
def test_text_and_dictionary_give_the_same(config: Any) -> None:
    from_text, from_dict = attempt(to_yaml(config)), attempt(config)
    if isinstance(from_dict, Loaded):
        assert isinstance(from_text, Loaded)
        assert from_text.effective == from_dict.effective
    else:
        assert not isinstance(from_text, Loaded)
        both = (from_text, from_dict)
        told = [{(p.path, p.message) for p in problems} for problems in both]
        assert told[0] == told[1]


@_MANY
@given(st.text(max_size=30), st.text(max_size=30))
def test_no_override_makes_loading_raise_anything_else(name: str, value: str) -> None:
    attempt(copy.deepcopy(_WRITTEN[0]), f"{name}={value}")
    attempt(copy.deepcopy(_WRITTEN[0]), f"searcher.{name}={value}", f"name={value}")
