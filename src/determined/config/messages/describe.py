"""Describe what a field takes, for messages and for the reference."""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from determined.config.messages.problems import listed
from determined.config.model.types import Expected, Section

_PLAIN = {str: "text", bool: "true or false", int: "an integer", float: "a number"}


def expected(field: FieldInfo, *, item: bool = False) -> str:
    """Say what values a field, or an item of its list, takes: `an integer >= 1`."""
    if item:
        return _words(next(iter(get_args(field.annotation)), Any), [])
    return _words(field.annotation, list(field.metadata))


def section_of(annotation: Any) -> type[Section] | None:
    """Return the single model in a field's type, looking inside lists and Optional too."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation if issubclass(annotation, Section) else None
    found = [section_of(argument) for argument in _arguments(annotation)]
    models = {model for model in found if model is not None}
    return models.pop() if len(models) == 1 else None


def _arguments(annotation: Any) -> tuple[Any, ...]:
    return () if get_origin(annotation) is Literal else get_args(annotation)


def _words(annotation: Any, metadata: list[Any]) -> str:
    if hasattr(annotation, "__metadata__"):
        metadata = [*annotation.__metadata__, *metadata]
        annotation = get_args(annotation)[0]
    flat = [item for m in metadata for item in getattr(m, "metadata", [m])]
    for item in flat:
        if isinstance(item, Expected):
            return item.words + _bounds(flat)
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        branches = [a for a in get_args(annotation) if a is not type(None)]
        return " or ".join(dict.fromkeys(_words(branch, metadata) for branch in branches))
    if origin is Literal:
        return listed(get_args(annotation))
    if section_of(annotation) is not None:
        return "a list" if origin is tuple else "a mapping"
    return _PLAIN.get(annotation, "a list" if origin is tuple else "a mapping") + _bounds(flat)


def _bounds(metadata: list[Any]) -> str:
    words = []
    for item in metadata:
        if isinstance(item, Ge):
            words.append(f">= {item.ge}")
        elif isinstance(item, Gt):
            words.append(f"> {item.gt}")
        elif isinstance(item, Le):
            words.append(f"<= {item.le}")
        elif isinstance(item, MinLen):
            words.append("that is not empty")
    return "".join(f" {word}" if i == 0 else f" and {word}" for i, word in enumerate(words))
