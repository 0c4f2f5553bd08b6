"""Secrets are masked wherever a configuration is shown."""

from __future__ import annotations

import copy
import json

import pytest

from determined.config import MASK, masked

_CONFIG = {
    "name": "keep",
    "data": {"secrets": {"a": "hush1", "b": {"c": ["hush2", 3]}}, "url": "keep"},
    "checkpoint_storage": {
        "type": "s3",
        "bucket": "keep",
        "access_key": "hush3",
        "secret_key": "hush4",
        "connection_string": "hush5",
        "credential": "hush6",
        "prefix": None,
    },
    "environment": {
        "registry_auth": {"username": "keep", "password": "hush7", "auth": "hush8"},
        "environment_variables": {
            "cpu": [
                "AWS_SECRET_ACCESS_KEY=hush9",
                "WANDB_API_KEY=hush10",
                "PATH=hush0",
                "HF_TOKEN=",
            ],
            "cuda": [
                "DB_PASSWORD=hush11=x",
                "OMP_NUM_THREADS=4",
                "MONKEY=hush00",
                "GITHUB_PAT=hush12",
            ],
        },
    },
    "integrations": {
        "on_end": "https://user:hush13@hooks.example/services/hush14?token=hush15",
        "on_failure": "notify-send keep",
    },
    "hyperparameters": {
        "max_tokens": 4096,
        "key_dim": 64,
        "tokenizer": "keep",
        "monkey": "keep",
        "hf_token": "hush16",
        "apiKey": {"type": "const", "val": "hush17"},
        "nested": {"secret": {"type": "categorical", "vals": ["hush18", 7]}},
        "data": "postgres://me:hush19@keep.example/db",
    },
}


def test_every_secret_is_masked_and_nothing_else() -> None:
    before = copy.deepcopy(_CONFIG)
    shown = masked(_CONFIG)
    text = json.dumps(shown)
    assert before == _CONFIG
    assert "hush" not in text
    assert json.dumps(_CONFIG).count("hush") == 21
    assert text.count("keep") == json.dumps(_CONFIG).count("keep")
    assert shown["checkpoint_storage"]["secret_key"] == MASK == "********"
    assert shown["checkpoint_storage"]["prefix"] is None
    assert shown["data"]["secrets"]["b"]["c"] == [MASK, MASK]
    assert f"OMP_NUM_THREADS={MASK}" in shown["environment"]["environment_variables"]["cuda"]
    assert "HF_TOKEN=" in shown["environment"]["environment_variables"]["cpu"]
    hparams = shown["hyperparameters"]
    assert (hparams["max_tokens"], hparams["key_dim"]) == (4096, 64)
    assert hparams["apiKey"] == {"type": "const", "val": MASK}
    assert hparams["nested"]["secret"]["vals"] == [MASK, 7]
    assert hparams["data"] == f"postgres://me:{MASK}@keep.example/db"
    assert shown["integrations"]["on_end"] == f"https://hooks.example/{MASK}"


@pytest.mark.parametrize("variables", [["API_KEY=x"], {"cpu": ["API_KEY=x"], "cuda": None}])
def test_configuration_as_written_is_masked_too(variables: object) -> None:
    assert "=x" not in str(masked({"environment": {"environment_variables": variables}}))


def test_masking_twice_is_masking_once() -> None:
    assert masked(masked(_CONFIG)) == masked(_CONFIG)


def test_broken_address_is_masked_whole() -> None:
    assert masked({"integrations": {"on_end": "http://[x"}})["integrations"]["on_end"] == MASK
