"""Templates and defaults of the platform fill gaps."""

from __future__ import annotations

import pytest

from determined.errors import ConfigurationError
from tests.config.loading import MINIMAL, effective, load


def test_template_merges_as_the_rules_say() -> None:
    own = """
entrypoint: x
searcher: {name: random, metric: loss, max_trials: 5}
checkpoint_storage: {type: s3, bucket: mine}
bind_mounts: [{host_path: /mine, container_path: /data}]
log_policies: [{name: a, pattern: mine}]
hyperparameters: {lr: 1, group: {x: 1}, range: {type: int, minval: 1, maxval: 2}, nothing: null}
labels: [mine]
data: {a: {b: 1}}
"""
    template = """
searcher: {name: single, metric: acc, smaller_is_better: false}
checkpoint_storage: {type: gcs, bucket: theirs, prefix: p}
bind_mounts: [{host_path: /no, container_path: /data}, {host_path: /yes, container_path: /more}]
log_policies: [{name: a, pattern: theirs}, {name: b, pattern: theirs}]
hyperparameters: {lr: {type: int, minval: 1, maxval: 2}, group: {x: 2, y: 3}, range: 5, nothing: 4}
labels: [theirs]
data: {a: {b: 2, c: 3}}
"""
    found = effective(own, template=template, checkpoint_storage=None)
    assert found["searcher"]["smaller_is_better"] is True
    assert "prefix" not in found["checkpoint_storage"] or not found["checkpoint_storage"]["prefix"]
    assert [mount["host_path"] for mount in found["bind_mounts"]] == ["/mine", "/yes"]
    assert [(p["name"], p["pattern"]) for p in found["log_policies"]][:2] == [
        ("a", "mine"),
        ("b", "theirs"),
    ]
    assert found["hyperparameters"] == {
        "lr": 1,
        "group": {"x": 1, "y": 3},
        "range": {"type": "int", "minval": 1, "maxval": 2},
        "nothing": None,
    }
    assert found["labels"] == ["mine"]
    assert found["data"] == {"a": {"b": 1, "c": 3}}


def test_searcher_and_storage_merge_when_their_kinds_agree() -> None:
    found = effective(
        "entrypoint: x\nsearcher: {name: random, max_trials: 5}\n"
        "checkpoint_storage: {save_trial_latest: 2}\n",
        template="searcher: {name: random, metric: acc, max_trials: 9}",
    )
    assert found["searcher"]["metric"] == "acc"
    assert found["searcher"]["max_trials"] == 5
    assert found["checkpoint_storage"]["host_path"] == "/checkpoints"
    assert found["checkpoint_storage"]["save_trial_latest"] == 2


def test_problem_of_the_template_names_the_template() -> None:
    with pytest.raises(ConfigurationError, match=r"template:1:15: max_restarts: expected"):
        load(MINIMAL, template="max_restarts: x")


def test_default_log_policies_merge_by_name() -> None:
    text = (
        "log_policies: [{name: CUDA OOM, action: cancel_retries}, {name: ECC Error, pattern: null}]"
    )
    policies = {p["name"]: p for p in effective(MINIMAL + text)["log_policies"]}
    assert policies["CUDA OOM"]["pattern"] == ".*CUDA out of memory.*"
    assert policies["CUDA OOM"]["action"] == "cancel_retries"
    assert policies["ECC Error"]["pattern"] is None
