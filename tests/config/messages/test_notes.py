"""Old forms work and show the new one; keys without effect are told."""

from __future__ import annotations

from typing import Any

import pytest

from determined.config import Completion, load
from determined.errors import ConfigurationError
from tests.support.messages import documented

_STORAGE = {"type": "directory", "container_path": "/c"}
_SCRIPT = "entrypoint: python3 train.py\n"
_SINGLE = "searcher: {name: single, metric: loss}\n"
_ASHA = "searcher: {name: adaptive_asha, metric: loss, max_trials: 8, "


def loaded(text: str) -> tuple[list[str], dict[str, Any]]:
    found = load(text, "c.yaml", (), Completion(checkpoint_storage=_STORAGE))
    return [str(note).removeprefix("c.yaml:") for note in found.notes], found.effective


def notes(text: str) -> list[str]:
    return loaded(text)[0]


def test_plain_configuration_has_no_notes() -> None:
    assert notes(_SCRIPT + _SINGLE) == []


@pytest.mark.parametrize(
    ("length", "max_time", "time_metric"),
    [
        ("max_length: {batches: 1000}", 1000, "batches"),
        ("max_length: {epochs: 16}", 16, "epochs"),
        ("max_length: {records: 50000}", 50000, "records"),
        ("max_length: 100", 100, "batches"),
        ("max_length: 100, unit: epochs", 100, "epochs"),
        ("max_length: 100, time_metric: steps", 100, "steps"),
        ("max_length: {epochs: 16}, time_metric: my_epochs", 16, "my_epochs"),
        ("max_length: {batches: 1e3}", 1000, "batches"),
    ],
)
@pytest.mark.parametrize("name", ["adaptive_asha", "async_halving"])
def test_max_length_stands_for_max_time(
    name: str, length: str, max_time: int, time_metric: str
) -> None:
    rungs = "num_rungs: 3, " if name == "async_halving" else ""
    text = f"searcher: {{name: {name}, metric: loss, max_trials: 8, {rungs}{length}}}"
    told, effective = loaded(_SCRIPT + text)
    assert effective["searcher"]["max_time"] == max_time
    assert effective["searcher"]["time_metric"] == time_metric
    assert f"write `max_time: {max_time}`" in told[0]
    assert "searcher.max_length: old form" in told[0]


def test_max_time_beside_max_length_stays() -> None:
    told, effective = loaded(
        _SCRIPT + _ASHA + "max_length: {batches: 9}, max_time: 4, time_metric: epochs}"
    )
    assert told == []
    assert effective["searcher"]["max_time"] == 4


def test_trial_class_gets_its_length_from_max_time() -> None:
    _, effective = loaded("entrypoint: m:T\n" + _ASHA + "max_time: 4, time_metric: epochs}")
    assert effective["searcher"]["max_length"] == {"epochs": 4}


def test_length_of_a_script_belongs_into_fit() -> None:
    (note,) = notes(_SCRIPT + "searcher: {name: single, metric: loss, max_length: {epochs: 3}}")
    assert note.endswith("pass the length to the trainer: fit(max_length=Epoch(3))")


@pytest.mark.parametrize("entrypoint", ["model_def:MyTrial", "a.b.c:Outer.Inner"])
def test_trial_class_is_an_old_form(entrypoint: str) -> None:
    text = f"entrypoint: {entrypoint}\nsearcher: {{name: single, metric: m, max_length: 5}}\n"
    (note,) = notes(text + "min_validation_period: {batches: 10}\nscheduling_unit: 5\n")
    assert note.startswith("1:13: note: entrypoint: old form; write a script")


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("min_validation_period: {batches: 10}", "pass fit(validation_period=...)"),
        ("min_checkpoint_period: {epochs: 1}", "pass fit(checkpoint_period=...)"),
        ("checkpoint_policy: all", "pass fit(checkpoint_policy=...)"),
        ("scheduling_unit: 50", "pass fit(reporting_period=...)"),
        ("perform_initial_validation: true", "pass fit(step_zero_validation=True)"),
        ("profiling: {enabled: true}", "pass fit(profiling_enabled=True)"),
        ("optimizations: {aggregation_frequency: 4}", "aggregation_frequency=..."),
        ("optimizations: {average_aggregated_gradients: false}", "pass the divided loss"),
        ("optimizations: {gradient_compression: true}", "DDP communication hook"),
        ("optimizations: {mixed_precision: O1}", "torch.autocast"),
        ("records_per_epoch: 50000", "an epoch is one pass over the data loader"),
        ("bind_mounts: [{host_path: /a, container_path: /b}]", "there are no containers"),
        ("pbs: {a: 1}", "PBS is not supported"),
        ("environment: {image: x/y}", "there are no containers"),
        ("integrations: {webhooks: {webhook_id: [1]}}", "integrations.on_end"),
        ("integrations: {pachyderm: {dataset: {}}}", "Pachyderm is not supported"),
    ],
)
def test_key_without_effect_is_told_at_its_place(text: str, note: str) -> None:
    (found,) = notes(_SCRIPT + _SINGLE + text)
    assert found.startswith("3:")
    assert "note:" in found
    assert "no effect" in found
    assert note in found


@pytest.mark.parametrize(
    "entrypoint",
    [
        "model:Trial",
        "python3 -m determined.launch.torch_distributed --trial model:Trial",
        "[python3, -m, determined.exec.harness, 'model:Trial']",
    ],
)
def test_harness_reads_its_keys_so_they_are_not_told(entrypoint: str) -> None:
    text = f"entrypoint: {entrypoint}\nsearcher: {{name: single, metric: m, max_length: 5}}\n"
    found = notes(text + "min_validation_period: {batches: 10}\ncheckpoint_policy: all\n")
    assert [note for note in found if "no effect" in note] == []


def test_defaults_written_out_are_not_told() -> None:
    text = (
        "bind_mounts: []\nslurm: {}\nperform_initial_validation: false\n"
        "profiling: {enabled: false}\n"
        "checkpoint_policy: best\nscheduling_unit: 100\nmin_validation_period: {batches: 0}\n"
        "optimizations: {aggregation_frequency: 1, mixed_precision: O0}\nrecords_per_epoch: 0\n"
    )
    assert notes(_SCRIPT + _SINGLE + text) == []


def test_single_tells_that_it_draws_from_ranges() -> None:
    text = "hyperparameters: {a: {b: {type: int, minval: 1, maxval: 2}}, c: {type: const, val: 1}}"
    (note,) = notes(_SCRIPT + _SINGLE + text)
    assert note == "3:23: note: hyperparameters.a.b: `single` draws one value from this range"


def test_old_log_policies_get_a_name_and_a_plain_action() -> None:
    told, effective = loaded(
        _SCRIPT
        + _SINGLE
        + "log_policies:\n- pattern: '.*OOM.*'\n  action: {type: cancel_retries}\n"
    )
    assert effective["log_policies"][0] == {
        "name": ".*OOM.*",
        "pattern": ".*OOM.*",
        "action": "cancel_retries",
    }
    assert len(told) == 2
    assert "write `action: cancel_retries`" in told[1]


def test_old_name_gpu_of_variables_is_told() -> None:
    (note,) = notes(_SCRIPT + _SINGLE + "environment: {environment_variables: {gpu: [A=1]}}")
    assert note.endswith("environment.environment_variables.gpu: old name; write `cuda`")


def test_old_log_policies_of_one_pattern_get_names_of_their_own() -> None:
    policies = "- pattern: OOM\n  action: {type: cancel_retries}\n"
    _, effective = loaded(_SCRIPT + _SINGLE + "log_policies:\n" + policies * 2)
    assert [policy["name"] for policy in effective["log_policies"][:2]] == ["OOM", "OOM (2)"]


def test_unknown_type_is_no_range_to_draw_from() -> None:
    with pytest.raises(ConfigurationError) as caught:
        loaded(_SCRIPT + _SINGLE + "hyperparameters: {model: {type: resnet}}")
    assert [problem.severity for problem in caught.value.problems] == ["error"]


def test_trial_class_in_a_block_of_text_is_one() -> None:
    searcher = "searcher: {name: single, metric: m, max_length: 5}\n"
    told, effective = loaded("entrypoint: |\n  model:Trial\n" + searcher)
    assert effective["entrypoint"] == "model:Trial"
    assert "entrypoint: old form" in told[0]


@pytest.mark.parametrize(
    ("text", "meant"),
    [("yes", "true"), ("Off", "false")],
)
def test_hyperparameter_that_older_yaml_reads_otherwise_is_told(text: str, meant: str) -> None:
    told, effective = loaded(_SCRIPT + _SINGLE + f"hyperparameters: {{a: [{text}, '{text}']}}")
    assert effective["hyperparameters"]["a"] == [text, text]
    (note,) = told
    assert note == (
        f"3:23: note: hyperparameters.a[0]: in YAML 1.2 this is text; write {meant}, or quote it"
    )


def test_numbers_with_underscores_are_numbers_everywhere() -> None:
    text = "searcher: {name: random, metric: loss, max_trials: 1_000}\nrecords_per_epoch: 60_000\n"
    told, effective = loaded(_SCRIPT + text + "hyperparameters: {a: [60_000, 0b11, 1_0e-2]}")
    assert effective["searcher"]["max_trials"] == 1000
    assert effective["hyperparameters"]["a"] == [60000, 3, 0.1]
    assert told == [
        "3:1: note: records_per_epoch: no effect: an epoch is one pass over the data loader"
    ]


@pytest.mark.parametrize("launcher", ["horovod", "deepspeed", "tensorflow"])
def test_launcher_that_is_not_there_is_told(launcher: str) -> None:
    entrypoint = f"entrypoint: python3 -m determined.launch.{launcher} python3 train.py\n"
    (note,) = notes(entrypoint + _SINGLE)
    assert note.startswith("1:13: note: entrypoint: ")
    assert f"determined.launch.{launcher} is not part of this library" in note
    assert "write determined.launch.torch_distributed" in note


def test_the_old_launcher_of_trial_classes_shows_the_new_one() -> None:
    entrypoint = "entrypoint: python3 -m determined.launch.horovod --autohorovod --trial m:T\n"
    (note,) = notes(entrypoint + "searcher: {name: single, metric: m, max_length: 5}\n")
    assert note == (
        "1:13: note: entrypoint: old form; trials train with torch.distributed; write "
        "determined.launch.torch_distributed"
    )


def ranges(entry: str) -> list[str]:
    text = "searcher: {name: random, metric: loss, max_trials: 9}\n"
    return notes(_SCRIPT + text + f"hyperparameters: {{group: {{lr: {entry}}}}}")


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ("minval: 0.0001, maxval: 0.1", "from 1 to 1.259|minval: -4, maxval: -1"),
        ("minval: 1e-5, maxval: 1", "from 1 to 10|minval: -5, maxval: 0"),
        ("minval: 0.001, maxval: 10.0", "from 1.002 to 1e+10|minval: -3, maxval: 1"),
        ("minval: 16, maxval: 256", "from 1e+16 to 1e+256|minval: 1.20412, maxval: 2.40824"),
        ("minval: 0.25, maxval: 64, base: 2", "from 1.189 to 1.845e+19|minval: -2, maxval: 6"),
    ],
)
def test_values_as_bounds_of_a_log_range_are_told_with_the_exponents(
    bounds: str, words: str
) -> None:
    (note,) = ranges(f"{{type: log, {bounds}}}")
    assert note.startswith("3:27: note: hyperparameters.group.lr: samples ")
    for part in words.split("|"):
        assert part in note
    if "0.0001" in bounds:
        documented("a `log` hyperparameter has values as bounds", note.partition("note: ")[2])


@pytest.mark.parametrize(
    "entry",
    [
        "{type: log, minval: -4, maxval: -1}",
        "{type: log, minval: 0, maxval: 1}",
        "{type: log, minval: 0.5, maxval: 1.5}",
        "{type: log, minval: 0.5, maxval: 4}",
        "{type: log, minval: 2, maxval: 10, base: 2}",
        "{type: log, minval: 4, maxval: 10}",
        "{type: double, minval: 0.0001, maxval: 0.1}",
        "{type: const, val: 1}",
    ],
)
def test_bounds_that_are_exponents_are_fine(entry: str) -> None:
    assert ranges(entry) == []


@pytest.mark.parametrize(
    "metric", ["accuracy", "val_acc", "validation_f1", "valAccuracy", "top1", "AUC"]
)
def test_a_metric_that_should_grow_is_told_to_be_minimized(metric: str) -> None:
    (note,) = notes(_SCRIPT + f"searcher: {{name: single, metric: {metric}}}")
    assert note.startswith(f"2:26: note: searcher.metric: {metric} is minimized")
    assert note.endswith("add `smaller_is_better: false`")
    for given in ("true", "false"):
        text = f"searcher: {{name: single, metric: {metric}, smaller_is_better: {given}}}"
        assert notes(_SCRIPT + text) == []


@pytest.mark.parametrize("metric", ["loss", "error", "f1_loss", "perplexity", "mapping", "accrued"])
def test_a_metric_that_should_shrink_is_fine(metric: str) -> None:
    assert notes(_SCRIPT + f"searcher: {{name: single, metric: {metric}}}") == []
