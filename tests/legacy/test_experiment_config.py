"""Defaults of the experiment configuration."""

from __future__ import annotations

import pytest

from determined import ExperimentConfig


def test_an_empty_configuration_has_defaults() -> None:
    config = ExperimentConfig({})
    assert not config.debug_enabled()
    assert config.scheduling_unit() == 100
    assert config.slots_per_trial() == 1
    assert config.experiment_seed() == 0
    assert not config.native_parallel_enabled()
    assert config.average_training_metrics_enabled()
    assert not config.profiling_enabled()
    assert config.profiling_interval() == (0, None)
    assert config.profiling_sync_timings()
    assert config.get_records_per_epoch() is None
    assert config.get_min_validation_period() == {}
    assert config.get_min_checkpoint_period() == {}
    assert config.get_optimizations_config() == {}
    assert config.get_checkpoint_storage() == {}


def test_given_settings_are_read() -> None:
    config = ExperimentConfig(
        {
            "debug": True,
            "resources": {"slots_per_trial": 4, "native_parallel": True},
            "reproducibility": {"experiment_seed": 9},
            "optimizations": {"average_training_metrics": False},
            "profiling": {"enabled": True, "begin_on_batch": 2, "end_after_batch": 5},
            "searcher": {"metric": "loss"},
            "min_validation_period": {"batches": 10},
            "records_per_epoch": 50,
            "checkpoint_storage": {"type": "directory"},
        }
    )
    assert config.debug_enabled()
    assert (config.slots_per_trial(), config.experiment_seed()) == (4, 9)
    assert config.native_parallel_enabled()
    assert not config.average_training_metrics_enabled()
    assert config.profiling_interval() == (2, 5)
    assert config.get_searcher_metric() == "loss"
    assert config.get_min_validation_period() == {"batches": 10}
    assert config.get_records_per_epoch() == 50
    assert config.get_checkpoint_storage() == {"type": "directory"}


def test_a_section_that_is_null_reads_as_empty() -> None:
    assert ExperimentConfig({"profiling": None}).profiling_interval() == (0, None)


@pytest.mark.parametrize("entrypoint", ["a:B", ["python", "a.py"]])
def test_entrypoints_are_text_or_words(entrypoint: object) -> None:
    assert ExperimentConfig({"entrypoint": entrypoint}).get_entrypoint() == entrypoint


@pytest.mark.parametrize("entrypoint", [None, 3, ["a", 1]])
def test_other_entrypoints_are_refused(entrypoint: object) -> None:
    with pytest.raises(ValueError, match="entrypoint: expected"):
        ExperimentConfig({"entrypoint": entrypoint}).get_entrypoint()


def test_a_missing_metric_is_refused() -> None:
    with pytest.raises(ValueError, match=r"searcher\.metric"):
        ExperimentConfig({}).get_searcher_metric()
