"""The OpenAPI description of the API: the declared endpoints and the types that they return."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Sequence
from typing import Any

from determined._version import __version__
from determined.dashboard.endpoints.endpoints import Endpoint
from determined.dashboard.server.access import CSRF_HEADER

_NUMBER = {
    "description": "A number; NaN and infinities are strings.",
    "anyOf": [{"type": "number"}, {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}],
}
_PROBLEM = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string"}, "next": {"type": "string"}},
}
_PLAIN: dict[Any, dict[str, Any]] = {
    int: {"type": "integer"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    float: {"$ref": "#/components/schemas/Number"},
}


def openapi(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The whole description."""
    parts: dict[str, Any] = {"Number": _NUMBER, "Problem": _PROBLEM}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, parts)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Dashboard",
            "version": __version__,
            "description": "The API of `det dashboard`. Times are seconds since 1970.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(parts.items())),
            "securitySchemes": {
                "cookie": {"type": "apiKey", "in": "cookie", "name": "det_dashboard"},
                "verbs": {"type": "apiKey", "in": "header", "name": CSRF_HEADER},
            },
        },
        "security": [{"cookie": []}],
    }


def _operation(endpoint: Endpoint, parts: dict[str, Any]) -> dict[str, Any]:
    lines = inspect.cleandoc(endpoint.function.__doc__ or "").splitlines()
    found: dict[str, Any] = {
        "operationId": f"{endpoint.subject}-{endpoint.function.__name__}",
        "tags": [endpoint.subject],
        "summary": lines[0] if lines else "",
        "parameters": [_parameter(endpoint, name) for name in endpoint.parameters],
        "responses": {
            "200": {"description": "The answer.", "content": _content(endpoint, parts)},
            "default": {
                "description": "Why not.",
                "content": {
                    "application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}
                },
            },
        },
    }
    if endpoint.method != "GET":
        found["security"] = [{"cookie": [], "verbs": []}]
    if endpoint.body is not None:
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": endpoint.body}},
        }
    return found


def _parameter(endpoint: Endpoint, name: str) -> dict[str, Any]:
    parameter = endpoint.parameters[name]
    in_path = name in endpoint.path_names
    schema = dict(parameter.kind.schema())
    if not in_path and parameter.default not in (None, [], False):
        schema["default"] = parameter.default
    found = {
        "name": name,
        "in": "path" if in_path else "query",
        "required": in_path or parameter.is_required,
        "schema": schema,
    }
    return found | ({"description": parameter.about} if parameter.about else {})


def _content(endpoint: Endpoint, parts: dict[str, Any]) -> dict[str, Any]:
    if endpoint.media_type != "application/json":
        return {endpoint.media_type: {}}
    answer = typing.get_type_hints(endpoint.function)["return"]
    return {"application/json": {"schema": schema_of(answer, parts)}}


def schema_of(kind: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a type; those with a name are collected in `parts`."""
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema_of(one, parts) for one in arguments]}
    if origin is list:
        return {"type": "array", "items": schema_of(arguments[0], parts)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(arguments[1], parts)}
    if typing.is_typeddict(kind):
        return _named(kind, parts)
    assert kind is Any, f"{kind} has no schema"
    return {}


def _named(kind: Any, parts: dict[str, Any]) -> dict[str, Any]:
    name = kind.__name__
    if name not in parts:
        parts[name] = {}  # a type may contain itself
        hints = typing.get_type_hints(kind)
        parts[name] = {
            "type": "object",
            "required": sorted(kind.__required_keys__),
            "additionalProperties": False,
            "properties": {key: schema_of(one, parts) for key, one in hints.items()},
        }
        if kind.__doc__ and not kind.__doc__.startswith("dict("):
            parts[name]["description"] = inspect.cleandoc(kind.__doc__)
    return {"$ref": f"#/components/schemas/{name}"}
