"""The OpenAPI description of the API: the signatures of the endpoints, as pydantic sees them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from determined._version import __version__
from determined.dashboard.endpoints.endpoints import Endpoint
from determined.dashboard.server.access import CSRF_HEADER

_JSON = "application/json"
_NUMBER = {
    "description": "A number; NaN and infinities are strings.",
    "anyOf": [{"type": "number"}, {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}],
}
_PROBLEM = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string"}, "next": {"type": "string"}},
}


class _Generator(GenerateJsonSchema):
    """Answers have no properties but those of their type, and name numbers that JSON lacks."""

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return super().typed_dict_schema(schema) | {"additionalProperties": False}

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return _NUMBER if self.mode == "serialization" else super().float_schema(schema)

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        # A parameter that is left out is None, but none can be sent.
        if self.mode == "validation":
            return self.generate_inner(schema["schema"])
        return super().nullable_schema(schema)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def openapi(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The whole description."""
    types: list[tuple[int, JsonSchemaMode, TypeAdapter[Any]]] = []
    for number, endpoint in enumerate(endpoints):
        if endpoint.media_type == _JSON:
            answer = typing.get_type_hints(endpoint.function)["return"]
            types.append((number, "serialization", TypeAdapter(answer)))
        if endpoint.body is not None:
            types.append((number, "validation", TypeAdapter(endpoint.body)))
    schemas, shared = TypeAdapter.json_schemas(
        types, ref_template="#/components/schemas/{model}", schema_generator=_Generator
    )
    paths: dict[str, dict[str, Any]] = {}
    for number, endpoint in enumerate(endpoints):
        operation = _operation(
            endpoint, schemas.get((number, "serialization")), schemas.get((number, "validation"))
        )
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Dashboard",
            "version": __version__,
            "description": "The API of `det dashboard`. Times are seconds since 1970.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Problem": _PROBLEM, **shared.get("$defs", {})},
            "securitySchemes": {
                "cookie": {"type": "apiKey", "in": "cookie", "name": "det_dashboard"},
                "verbs": {"type": "apiKey", "in": "header", "name": CSRF_HEADER},
            },
        },
        "security": [{"cookie": []}],
    }


def _operation(
    endpoint: Endpoint, answer: JsonSchemaValue | None, body: JsonSchemaValue | None
) -> dict[str, Any]:
    lines = inspect.cleandoc(endpoint.function.__doc__ or "").splitlines()
    content = {endpoint.media_type: {} if answer is None else {"schema": answer}}
    problem = {_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    found: dict[str, Any] = {
        "operationId": f"{endpoint.subject}-{endpoint.function.__name__}",
        "tags": [endpoint.subject],
        "summary": lines[0] if lines else "",
        "parameters": _parameters(endpoint),
        "responses": {
            "200": {"description": "The answer.", "content": content},
            "default": {"description": "Why not.", "content": problem},
        },
    }
    if endpoint.method != "GET":
        found["security"] = [{"cookie": [], "verbs": []}]
    if body is not None:
        found["requestBody"] = {"required": True, "content": {_JSON: {"schema": body}}}
    return found


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    whole = endpoint.parameters.model_json_schema(schema_generator=_Generator)
    found = []
    for name, schema in whole["properties"].items():
        about = schema.pop("description", "")
        if not schema.get("default"):
            schema.pop("default", None)
        found.append(
            {
                "name": name,
                "in": "path" if name in endpoint.path_names else "query",
                "required": name in whole.get("required", ()),
                "schema": schema,
                **({"description": about} if about else {}),
            }
        )
    return found
