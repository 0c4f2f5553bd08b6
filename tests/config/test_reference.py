"""The reference page and the schema in the docs are what the models say.

After a change of the models: `python -m tools.config_reference` writes both.
"""

from __future__ import annotations

from typing import Any

import pytest

from determined.config import Completion, load
from determined.config.model.experiment import Configuration
from determined.config.model.hyperparameters import RANGES
from determined.config.model.searcher import SEARCHERS
from determined.config.model.sections import Environment, Integrations, Resources
from determined.config.model.storage import STORAGES
from tools.config_reference import PAGE, SCHEMA, page, schema_text

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


def test_example_of_the_page_loads() -> None:
    text = page().split("```yaml\n")[1].split("```")[0]
    storage = {"type": "directory", "container_path": "/c"}
    assert load(text, completion=Completion(checkpoint_storage=storage)).notes == ()


@pytest.mark.parametrize("model", _MODELS, ids=lambda model: model.__name__)
def test_every_key_has_a_sentence(model: Any) -> None:
    for name, field in model.model_fields.items():
        assert field.description, f"{model.__name__}.{name} has no description."
        assert field.description.endswith("."), f"{model.__name__}.{name}: {field.description}"
