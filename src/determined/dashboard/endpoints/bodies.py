"""Request bodies, checked against the JSON schema that also describes them. Pure.

Only the JSON schema keywords that endpoints use are supported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from determined.dashboard.endpoints.kinds import BadValue, shown

Schema = dict[str, Any]


def text(longest: int, shortest: int = 0) -> Schema:
    """The schema of a string."""
    return {"type": "string", "minLength": shortest, "maxLength": longest}


def list_of(items: Schema, most: int) -> Schema:
    """The schema of a list."""
    return {"type": "array", "items": items, "maxItems": most}


def record(required: tuple[str, ...] = (), least: int = 0, /, **properties: Schema) -> Schema:
    """The schema of an object with these properties and no others."""
    return {
        "type": "object",
        "required": list(required),
        "minProperties": least,
        "additionalProperties": False,
        "properties": properties,
    }


def values(most: int) -> Schema:
    """The schema of an object with any properties."""
    return {"type": "object", "maxProperties": most}


AN_ID: Schema = {"type": "integer", "minimum": 1, "maximum": 2**53 - 1}
LABELS = list_of(text(128, 1), 100)


def check(value: Any, schema: Schema, name: str = "The body") -> None:
    """Check a value; BadValue says what is wrong with it."""
    if "enum" in schema and value not in schema["enum"]:
        raise BadValue(f"{name}: expected one of {', '.join(map(str, schema['enum']))}.")
    _CHECKS[schema["type"]](value, schema, name)


def _object(value: Any, schema: Schema, name: str) -> None:
    if not isinstance(value, dict):
        raise BadValue(f"{name}: expected a JSON object.")
    if "properties" not in schema:
        if len(value) > schema["maxProperties"]:
            raise BadValue(f"{name}: expected up to {schema['maxProperties']} values.")
        return
    known = schema["properties"]
    if unknown := sorted(value.keys() - known.keys()):
        raise BadValue(f"There is no {shown(unknown[0])} here; there are: {', '.join(known)}.")
    for key in schema["required"]:
        if key not in value:
            raise BadValue(f"{key}: expected a value, got none.")
    if len(value) < schema["minProperties"]:
        raise BadValue(f"{name}: expected at least one of: {', '.join(known)}.")
    for key, item in value.items():
        check(item, known[key], key)


def _array(value: Any, schema: Schema, name: str) -> None:
    if not isinstance(value, list) or len(value) > schema["maxItems"]:
        raise BadValue(f"{name}: expected a list of up to {schema['maxItems']}.")
    for item in value:
        check(item, schema["items"], name)


def _string(value: Any, schema: Schema, name: str) -> None:
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength", 500)
    if not isinstance(value, str) or not shortest <= len(value) <= longest or not _is_clean(value):
        raise BadValue(f"{name}: expected {shortest} to {longest} characters of text.")


def _is_clean(value: str) -> bool:
    try:
        return b"\0" not in value.encode()
    except UnicodeEncodeError:  # a lone surrogate, which could not be stored
        return False


def _integer(value: Any, schema: Schema, name: str) -> None:
    if type(value) is not int or not schema["minimum"] <= value <= schema["maximum"]:
        raise BadValue(f"{name}: expected an integer >= {schema['minimum']}.")


def _boolean(value: Any, schema: Schema, name: str) -> None:
    if not isinstance(value, bool):
        raise BadValue(f"{name}: expected true or false.")


_CHECKS: dict[str, Callable[[Any, Schema, str], None]] = {
    "object": _object,
    "array": _array,
    "string": _string,
    "integer": _integer,
    "boolean": _boolean,
}
