"""The JSON Schema (draft 7, for editors) of an experiment configuration."""

from __future__ import annotations

import copy
from typing import Any

from determined.config.model.experiment import Configuration
from determined.config.model.hyperparameters import RANGES
from determined.config.model.storage import Storage

_FILLED_IN = ("name", "checkpoint_storage", "reproducibility")
_VARIABLES = {"type": "array", "items": {"type": "string"}}


def schema() -> dict[str, Any]:
    """Build the schema from the models, including old forms and nulls for defaults."""
    made = Configuration.model_json_schema(by_alias=True)
    lowered: dict[str, Any] = _lowered(made)
    definitions = lowered["definitions"]
    for definition in [lowered, *definitions.values()]:
        _allow_null(definition)
    lowered["required"] = ["entrypoint", "searcher"]
    definitions["Reproducibility"]["required"] = []
    definitions["Hyperparameter"] = _hyperparameter()
    _allow_storage_without_type(lowered)
    _allow_old_forms(lowered)
    lowered["title"] = "Experiment configuration"
    return {"$schema": "http://json-schema.org/draft-07/schema#", **lowered}


def _lowered(value: Any) -> Any:
    """Name definitions as draft 7 does, and drop titles that only repeat the keys."""
    if isinstance(value, list):
        return [_lowered(item) for item in value]
    if isinstance(value, str):
        return value.replace("#/$defs/", "#/definitions/")
    if not isinstance(value, dict):
        return value
    lowered = {}
    for key, item in value.items():
        if key == "title" and isinstance(item, str):
            continue
        lowered["definitions" if key == "$defs" else key] = _lowered(item)
    if "$ref" in lowered and len(lowered) > 1:  # in draft 7, a reference ignores its siblings
        lowered = {"allOf": [{"$ref": lowered.pop("$ref")}], **lowered}
    return lowered


def _allow_null(definition: dict[str, Any]) -> None:
    """Allow null wherever there is a default, which it stands for."""
    required = definition.get("required", [])
    for key, schema_of_key in definition.get("properties", {}).items():
        if key in required and key not in _FILLED_IN:
            continue
        accepts_anything = not set(schema_of_key) - {"description", "default"}
        choices = schema_of_key.get("anyOf", [])
        if accepts_anything or {"type": "null"} in choices:
            continue
        words = {k: schema_of_key[k] for k in ("description", "default") if k in schema_of_key}
        inner = {k: v for k, v in schema_of_key.items() if k not in words}
        definition["properties"][key] = {"anyOf": [inner, {"type": "null"}], **words}


def _hyperparameter() -> dict[str, Any]:
    """A mapping with `type` is a range, one without is a group, the rest are constants."""
    group = {
        "type": "object",
        "not": {"required": ["type"]},
        "additionalProperties": {"$ref": "#/definitions/Hyperparameter"},
    }
    constant = {"type": ["null", "boolean", "number", "string", "array"]}
    ranges = [{"$ref": f"#/definitions/{model.__name__}"} for model in RANGES]
    return {"anyOf": [*ranges, group, constant]}


def _allow_storage_without_type(lowered: dict[str, Any]) -> None:
    """Keys without a `type` change the platform's own storage."""
    shared = lowered["definitions"]["Directory"]["properties"]
    lowered["properties"]["checkpoint_storage"]["anyOf"].append(
        {
            "type": "object",
            "properties": {key: copy.deepcopy(shared[key]) for key in Storage.model_fields},
            "not": {"required": ["type"]},
        }
    )


def _allow_old_forms(lowered: dict[str, Any]) -> None:
    definitions = lowered["definitions"]
    variables = definitions["Environment"]["properties"]["environment_variables"]
    variables["anyOf"].append(_VARIABLES)
    devices = definitions["VariablesByDevice"]["properties"]
    devices["gpu"] = {**copy.deepcopy(devices["cuda"]), "description": "Old name of `cuda`."}
    policy = definitions["LogPolicy"]
    policy["anyOf"] = [{"required": ["name"]}, {"required": ["pattern"]}]
    policy["required"] = []
    policy["properties"]["action"]["anyOf"].append(
        {
            "type": "object",
            "properties": {"type": {"enum": ["cancel_retries", "exclude_node"]}},
            "required": ["type"],
            "additionalProperties": False,
        }
    )
