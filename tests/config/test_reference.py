"""The reference page and the schema in the docs are what the models say.

After a change of the models: `python -m tools.config_reference` writes both.
"""

from __future__ import annotations

import json
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
from tools.config_reference import PAGE, SCHEMA, page, schema_text

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


_WRITE = "write it: python -m tools.config_reference"


def test_page_is_what_the_models_say() -> None:
    assert PAGE.read_text() == page(), _WRITE


def test_schema_file_is_what_the_models_say() -> None:
    assert SCHEMA.read_text() == schema_text(), _WRITE


def test_schema_is_a_valid_draft_7_schema() -> None:
    Draft7Validator.check_schema(schema())
    text = json.dumps(schema())
    assert "$defs" not in text
    # Bounds that no reader of schemas knows: they belong into a type of their own.
    assert [word for word in ("ge", "le", "gt", "lt") if f'"{word}":' in text] == []


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
