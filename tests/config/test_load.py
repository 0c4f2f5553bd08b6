"""Loading: defaults, the order of sources, overrides, and what a trial sees in the end."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from determined import config
from determined.errors import ConfigurationError
from determined.storage import build
from tests.config.loading import MINIMAL, effective, load


def test_defaults_are_those_of_the_specification() -> None:
    found = effective(MINIMAL, created=1234, name="Experiment (a-b-c)")
    assert found["name"] == "Experiment (a-b-c)"
    assert found["reproducibility"] == {"experiment_seed": 1234}
    expected: dict[str, Any] = {
        "description": None,
        "labels": [],
        "data": {},
        "workspace": "Uncategorized",
        "project": "Uncategorized",
        "hyperparameters": {},
        "checkpoint_policy": "best",
        "max_restarts": 5,
        "max_wall_time": None,
        "max_slot_time": None,
        "max_trial_wall_time": None,
        "preemption_timeout": 300,
        "min_validation_period": {"batches": 0},
        "min_checkpoint_period": {"batches": 0},
        "scheduling_unit": 100,
        "records_per_epoch": 0,
        "perform_initial_validation": False,
        "debug": False,
        "retention_policy": {"log_retention_days": None},
        "bind_mounts": [],
        "slurm": {"sbatch_args": [], "slots_per_node": None, "gpu_type": None},
        "pbs": {},
        "security": None,
    }
    assert {key: found[key] for key in expected} == expected
    assert found["resources"]["slots_per_trial"] == 1
    assert found["resources"]["trials_per_slot"] == 1
    assert found["environment"]["warm_start"] is True
    assert found["optimizations"]["aggregation_frequency"] == 1
    assert found["profiling"] == {
        "enabled": False,
        "begin_on_batch": 0,
        "end_after_batch": None,
        "sync_timings": True,
    }
    storage = found["checkpoint_storage"]
    assert (storage["save_experiment_best"], storage["save_trial_latest"]) == (0, 1)
    assert storage["save_trial_best"] == 3
    assert storage["gc"] == "end"


@pytest.mark.parametrize(
    ("searcher", "expected"),
    [
        ({"name": "random", "max_trials": 3}, {"max_concurrent_trials": 16, "sampler": "random"}),
        ({"name": "grid"}, {"max_concurrent_trials": 16}),
        (
            {"name": "async_halving", "max_trials": 3, "num_rungs": 2, "max_time": 4,
             "time_metric": "epochs"},
            {"divisor": 4.0, "max_concurrent_trials": 16, "stop_once": True, "sampler": "random"},
        ),
        (
            {"name": "adaptive_asha", "max_trials": 3, "max_time": 4, "time_metric": "epochs"},
            {"mode": "standard", "divisor": 4.0, "max_rungs": 5, "bracket_rungs": [],
             "max_concurrent_trials": 16, "stop_once": True},
        ),
        (
            {"name": "custom", "class": "my.search:Outer.Method", "depth": {"a": [1, None]}},
            {"class": "my.search:Outer.Method", "depth": {"a": [1, None]}},
        ),
    ],
)  # fmt: skip
def test_searchers_get_their_defaults(searcher: dict[str, Any], expected: dict[str, Any]) -> None:
    given = {"entrypoint": "x", "searcher": {"metric": "loss", **searcher}}
    found = effective({**given, "hyperparameters": {"a": 1}})["searcher"]
    assert {key: found[key] for key in expected} == expected
    assert found["smaller_is_better"] is True


def test_null_means_the_default_everywhere_but_in_free_values() -> None:
    found = effective(
        {
            "entrypoint": "x",
            "name": None,
            "resources": None,
            "max_restarts": None,
            "data": {"a": None},
            "hyperparameters": {"a": None, "b": {"type": "const", "val": None}},
            "searcher": {"name": "single", "metric": "loss", "smaller_is_better": None},
            "environment": {"environment_variables": None, "python": None},
        },
        name="n",
    )
    assert found["name"] == "n"
    assert found["max_restarts"] == 5
    assert found["data"] == {"a": None}
    assert found["hyperparameters"] == {"a": None, "b": {"type": "const", "val": None}}
    assert found["searcher"]["smaller_is_better"] is True


def test_whole_floats_are_whole_numbers() -> None:
    found = effective(MINIMAL + "max_restarts: 1e1\nmin_validation_period: {batches: 1e3}\n")
    assert found["max_restarts"] == 10
    assert type(found["max_restarts"]) is int
    assert found["min_validation_period"] == {"batches": 1000}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("30m", 1800), ("12h", 43200), ("1d12h", 129600), ("1.5h", 5400)],
)
def test_wall_times_are_seconds_or_durations(text: str, seconds: float) -> None:
    found = effective(MINIMAL + f"max_wall_time: {text}\nmax_trial_wall_time: {text}\n")
    assert found["max_wall_time"] == found["max_trial_wall_time"] == seconds


def test_override_wins_over_file_and_template_fills_gaps() -> None:
    template = "max_restarts: 9\ndebug: true\nresources: {slots_per_trial: 4, priority: 7}\n"
    found = effective(
        MINIMAL + "max_restarts: 2\nresources: {slots_per_trial: 2}\n",
        "resources.slots_per_trial=8",
        "hyperparameters.lr=1e-3",
        template=template,
    )
    assert found["max_restarts"] == 2
    assert found["debug"] is True
    assert found["resources"]["slots_per_trial"] == 8
    assert found["resources"]["priority"] == 7
    assert found["hyperparameters"] == {"lr": 1e-3}


def test_environment_variables_are_chosen_by_device() -> None:
    by_device = "environment: {environment_variables: {cpu: [A=1, B, C=x=y], gpu: [A=2]}}"
    found = effective(MINIMAL + by_device)
    assert config.environment_variables(found, "cpu") == {"A": "1", "C": "x=y"}
    assert config.environment_variables(found, "cuda") == {"A": "2"}
    assert config.environment_variables(found, "rocm") == {}
    same = effective(MINIMAL + "environment: {environment_variables: [A=1]}")
    assert config.environment_variables(same, "cuda") == {"A": "1"}
    with pytest.raises(ValueError, match="`device` must be one of cpu, cuda, rocm"):
        config.environment_variables(same, "tpu")


def test_hyperparameters_stay_as_written_and_are_typed_for_search() -> None:
    text = (
        "hyperparameters: {a: 1, b: [1, {c: 2}], n: null, k: {type: const, val: x},"
        " g: {i: {type: int, minval: 1, maxval: 4, count: 2}, e: {}},"
        " d: {type: double, minval: 0, maxval: 1}, l: {type: log, minval: -4, maxval: -1},"
        " c: {type: categorical, vals: [1, null, {x: 1}]}}"
    )
    found = effective(MINIMAL + text)
    assert found["hyperparameters"]["a"] == 1
    assert found["hyperparameters"]["d"] == {"type": "double", "minval": 0, "maxval": 1}
    assert config.typed_hyperparameters(found) == {
        "a": {"type": "const", "val": 1},
        "b": {"type": "const", "val": [1, {"c": 2}]},
        "n": {"type": "const", "val": None},
        "k": {"type": "const", "val": "x"},
        "g": {"i": {"type": "int", "minval": 1, "maxval": 4, "count": 2}, "e": {}},
        "d": {"type": "double", "minval": 0.0, "maxval": 1.0},
        "l": {"type": "log", "minval": -4.0, "maxval": -1.0, "base": 10.0},
        "c": {"type": "categorical", "vals": [1, None, {"x": 1}]},
    }


def test_typed_configuration_is_frozen() -> None:
    typed = load(MINIMAL).configuration
    assert typed.searcher.metric == "loss"
    with pytest.raises(ValueError, match="frozen"):
        typed.max_restarts = 3


def test_unmanaged_experiments_need_no_entrypoint() -> None:
    text = "searcher: {name: single, metric: loss}"
    assert effective(text, managed=False)["entrypoint"] is None
    with pytest.raises(ConfigurationError, match="entrypoint: missing"):
        load(text)


def test_storage_is_required_when_the_platform_has_none() -> None:
    with pytest.raises(ConfigurationError, match="checkpoint_storage: missing"):
        load(MINIMAL, checkpoint_storage=None)


def test_effective_storage_builds(tmp_path: Any) -> None:
    text = (
        MINIMAL + f"checkpoint_storage: {{type: shared_fs, host_path: {tmp_path}, gc: continuous}}"
    )
    assert str(tmp_path) in str(build(effective(text)["checkpoint_storage"]).location)


def test_importing_the_package_brings_neither_pydantic_nor_yaml() -> None:
    script = (
        "import sys, determined.config as c; c.masked({}); c.random_name;"
        "print([m for m in ('pydantic', 'yaml', 'torch', 'numpy') if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert answer.stdout.strip() == "[]"


def test_a_stored_configuration_is_a_typed_value_with_defaults_for_later_keys() -> None:
    complete = effective(MINIMAL)
    del complete["max_restarts"]
    configuration = config.stored(complete)
    assert (configuration.max_restarts, configuration.resources.slots_per_trial) == (5, 1)
    assert configuration.as_dict() == complete | {"max_restarts": 5}


def test_hyperparameters_of_a_script_may_look_like_anything() -> None:
    complete = effective(MINIMAL)
    odd = complete | {"hyperparameters": {"a": {"type": 3}}, "name": "odd"}
    assert config.stored(odd).name == "odd"


def test_a_damaged_stored_configuration_names_the_key() -> None:
    complete = effective(MINIMAL)
    with pytest.raises(ConfigurationError, match="max_restarts"):
        config.stored(complete | {"max_restarts": "many"})


def test_a_number_of_trials_may_say_so() -> None:
    text = (
        "searcher: {name: random, metric: loss, max_trials: 5, stop_when: {no_improvement_for: %s}}"
    )
    for written in ("20", "20 trials", "20trials", "'20 trial'"):
        found = effective(f"entrypoint: a\n{text % written}\n")["searcher"]
        assert found["stop_when"] == {"no_improvement_for": 20, "max_total_units": None}
