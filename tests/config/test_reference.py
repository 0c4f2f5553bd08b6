"""The reference page and the schema in the docs are what the models say.

After a change of the models: `DET_WRITE_REFERENCE=1` writes both.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from determined.config import Completion, load, schema
from determined.config.model.experiment import Configuration
from determined.config.model.hyperparameters import RANGES
from determined.config.model.searcher import SEARCHERS
from determined.config.model.sections import Environment, Integrations, Resources
from determined.config.model.storage import STORAGES
from determined.config.reading import yaml_reader
from tests.config.wrong import AFTER_THE_SEARCHER
from tests.support.config_reference import page

_REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
_OLDER = sorted((Path(__file__).parent / "older").glob("*.yaml"))
_MODELS = [
    Configuration,
    *SEARCHERS.values(),
    *STORAGES.values(),
    *RANGES,
    Resources,
    Environment,
    Integrations,
]


def compare(name: str, text: str) -> None:
    path = _REFERENCE / name
    if os.environ.get("DET_WRITE_REFERENCE"):
        path.write_text(text)
    assert path.read_text() == text, f"{name} is stale; write it with DET_WRITE_REFERENCE=1."


def test_page_is_what_the_models_say() -> None:
    compare("configuration.md", page())


def test_schema_file_is_what_the_models_say() -> None:
    compare("experiment.schema.json", json.dumps(schema(), indent=2, sort_keys=True) + "\n")


def test_schema_is_a_valid_draft_7_schema() -> None:
    Draft7Validator.check_schema(schema())
    assert "$defs" not in json.dumps(schema())


@pytest.mark.parametrize("path", _OLDER, ids=lambda path: path.stem)
def test_schema_takes_older_files(path: Path) -> None:
    value = yaml_reader.read(path.read_bytes(), path.name).value
    assert [error.message for error in Draft7Validator(schema()).iter_errors(value)] == []


def test_schema_refuses_most_wrong_files() -> None:
    validator = Draft7Validator(schema())
    base = "entrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\n"
    values = [yaml_reader.read(base + text, "c.yaml").value for text, _ in AFTER_THE_SEARCHER]
    refused = [not validator.is_valid(value) for value in values]
    assert sum(refused) > 0.8 * len(refused)  # what takes two keys to see, it cannot tell


def test_example_of_the_page_loads() -> None:
    text = page().split("```yaml\n")[1].split("```")[0]
    storage = {"type": "directory", "container_path": "/c"}
    assert load(text, completion=Completion(checkpoint_storage=storage)).notes == ()


@pytest.mark.parametrize("model", _MODELS, ids=lambda model: model.__name__)
def test_every_key_has_a_sentence(model: Any) -> None:
    for name, field in model.model_fields.items():
        assert field.description, f"{model.__name__}.{name} has no description."
        assert field.description.endswith("."), f"{model.__name__}.{name}: {field.description}"
