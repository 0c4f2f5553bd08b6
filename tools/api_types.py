"""Write the types of the dashboard's API for its JavaScript: `python -m tools.api_types`.

They come from the OpenAPI description that the server itself gives: addresses, the names of their
parameters, bodies and answers. `tests/dashboard/js/test_js.py` checks that the file is up to date.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from determined.dashboard.app import endpoints
from determined.dashboard.endpoints.openapi import openapi

OUTPUT = Path(__file__).parent / "types" / "api.d.ts"
_JSON, _BYTES = "application/json", "application/octet-stream"
_ANYTHING = "string | number | boolean | null | Json[] | { [key: string]: Json }"
_NUMBER: list[dict[str, Any]] = [
    {"type": "number"},
    {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]},
]
_HEAD = "// Made by `python -m tools.api_types` from the API's description. Do not edit."


def render() -> str:
    """The whole file."""
    description = openapi(endpoints())
    found: dict[str, list[tuple[str, str]]] = {"get": [], "post": [], "patch": []}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            content = operation["responses"]["200"]["content"]
            if content.keys() <= {_JSON, _BYTES}:  # the rest is for links and for the event source
                found[method].append((_address(path, operation), _exchange(operation)))
    lines = [_HEAD, "", "declare namespace Api {", f"  type Json = {_ANYTHING};"]
    lines += [f"  type Number = {' | '.join(_type(one, 1) for one in _NUMBER)};", ""]
    for name, schema in description["components"]["schemas"].items():
        lines += [*_comment(schema), f"  type {name} = {_type(schema, 1)};", ""]
    for method, exchanges in found.items():
        lines += [f"  type {method.title()}<Address> =", *_cases(exchanges), ""]
    return "\n".join([*lines[:-1], "}", ""])


def _cases(exchanges: list[tuple[str, str]]) -> list[str]:
    """Longer addresses come first: a pattern for text takes slashes too."""
    ordered = sorted(exchanges, key=lambda one: (-one[0].count("/"), "$" in one[0], one[0]))
    cases = [f"    Address extends {address} ? {exchange} :" for address, exchange in ordered]
    return [*cases, "    never;"]


def _address(path: str, operation: dict[str, Any]) -> str:
    """An address as a type: its parameters become a pattern."""
    kinds = {one["name"]: one["schema"].get("type") for one in operation["parameters"]}

    def pattern(match: re.Match[str]) -> str:
        return "${number}" if kinds[match[1]] == "integer" else "${string}"

    return "`" + re.sub(r"\{(\w+)\}", pattern, path) + "`"


def _exchange(operation: dict[str, Any]) -> str:
    """What goes to an address, and what comes back."""
    names = [f'"{one["name"]}"' for one in operation["parameters"] if one["in"] == "query"]
    body = operation.get("requestBody")
    sent = _type(body["content"][_JSON]["schema"], 2) if body else "undefined"
    content = operation["responses"]["200"]["content"]
    answer = _type(content[_JSON]["schema"], 2) if _JSON in content else "ArrayBuffer"
    return f"{{ parameters: {' | '.join(names) or 'never'}; body: {sent}; answer: {answer} }}"


def _type(schema: dict[str, Any], depth: int) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[1]
    if schema.get("anyOf") == _NUMBER:
        return "Number"
    if "anyOf" in schema:
        return " | ".join(_type(one, depth) for one in schema["anyOf"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(one) for one in schema["enum"])
    match schema.get("type"):
        case "integer" | "number":
            return "number"
        case "string" | "boolean" | "null" as same:
            return str(same)
        case "array":
            inside = _type(schema.get("items", {}), depth)
            return f"({inside})[]" if "|" in inside else f"{inside}[]"
        case "object" if "properties" in schema:
            return _object(schema, depth)
        case "object":
            inside = schema.get("additionalProperties", {})
            return f"Record<string, {_type({} if inside is True else inside, depth)}>"
        case _:
            return "Json"


def _object(schema: dict[str, Any], depth: int) -> str:
    required = set(schema.get("required", ()))
    fields = [
        f"{name}{'' if name in required else '?'}: {_type(one, depth + 1)};"
        for name, one in schema["properties"].items()
    ]
    indent = "  " * (depth + 1)
    return "\n".join(["{", *(indent + one for one in fields), "  " * depth + "}"])


def _comment(schema: dict[str, Any]) -> list[str]:
    text = " ".join(schema.get("description", "").split())
    return [f"  /** {text} */"] if text else []


if __name__ == "__main__":
    OUTPUT.write_text(render(), encoding="utf-8")
