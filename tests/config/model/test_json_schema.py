"""The schema takes what loads, and refuses most of what does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from determined.config import schema
from determined.config.reading import yaml_reader
from tests.config.wrong import AFTER_THE_SEARCHER

_OLDER = sorted((Path(__file__).parents[1] / "older").glob("*.yaml"))


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
