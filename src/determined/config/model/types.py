"""The types of values in sections, each with its check and its description for people."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictStr,
    model_validator,
)
from pydantic_core import PydanticCustomError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[smhd])+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")
_SIZE = re.compile(r"[0-9]+(\.[0-9]+)?\s*([kKmMgGtTpP]i?[bB]?|[bB])?")


@dataclasses.dataclass(frozen=True)
class Expected:
    """How messages and the reference describe a type of value."""

    words: str


class Section(BaseModel):
    """A mapping with known keys. Null means the default, as if the key were absent."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
    keeps_null: ClassVar[frozenset[str]] = frozenset()
    """Keys for which null is a distinct value."""

    @model_validator(mode="before")
    @classmethod
    def _null_means_default(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        absent = cls.known_keys() - cls.keeps_null
        return {k: v for k, v in data.items() if v is not None or k not in absent}

    @classmethod
    def known_keys(cls) -> frozenset[str]:
        """The keys as written in a file."""
        return frozenset(field.alias or name for name, field in cls.model_fields.items())

    def as_dict(self) -> dict[str, Any]:
        """The section as dictionaries and lists, as in a file, with `name` and `type` first."""
        fields = type(self).model_fields
        names = sorted(fields, key=lambda name: name not in ("name", "type"))
        own = {fields[name].alias or name: getattr(self, name) for name in names}
        return {key: as_data(item) for key, item in {**own, **(self.model_extra or {})}.items()}


def as_data(value: Any) -> Any:
    """A value of a section as it stands in a file: dictionaries and lists instead of sections."""
    if isinstance(value, Section):
        return value.as_dict()
    if isinstance(value, dict):
        return {key: as_data(item) for key, item in value.items()}
    return [as_data(item) for item in value] if isinstance(value, (list, tuple)) else value


def wrong(expected: str, item: int | None = None) -> PydanticCustomError:
    """Build the error of a check from what was expected; the value is added later.

    With `item`, the error is about that item of a list.
    """
    return PydanticCustomError("expected", "{expected}", {"expected": expected, "item": item})


def _whole(value: Any) -> Any:
    """Accept 1e3 and 10.0 as integers, as JSON Schema does."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_WHOLE = BeforeValidator(_whole)
Whole = Annotated[int, Field(strict=True), _WHOLE]
AtLeast0 = Annotated[int, Field(strict=True, ge=0), _WHOLE]
AtLeast1 = Annotated[int, Field(strict=True, ge=1), _WHOLE]
AtLeast2 = Annotated[int, Field(strict=True, ge=2), _WHOLE]
Repeats = Annotated[int, Field(strict=True, ge=1, le=1000), _WHOLE]
Priority = Annotated[int, Field(strict=True, ge=1, le=99), _WHOLE]
Seed = Annotated[int, Field(strict=True, ge=0, le=2**32 - 1), _WHOLE]
Days = Annotated[int, Field(strict=True, ge=-1, le=32767), _WHOLE]
Number = Annotated[StrictFloat, Field(allow_inf_nan=False)]
Flag = StrictBool
Text = StrictStr
ClassName = Annotated[
    StrictStr,
    Field(pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*[.:][^\W\d]\w*(\.[^\W\d]\w*)*$"),
    Expected("the name of a class, such as `module:Class`"),
]
Free = Annotated[Any, Expected("any value")]
FreeMap = Annotated[dict[str, Any], Expected("a mapping")]

_Item = TypeVar("_Item")
Items = Annotated[tuple[_Item, ...], Expected("a list")]


def _command(value: Any) -> Any:
    words = value if isinstance(value, (list, tuple)) else [value]
    bad = [i for i, word in enumerate(words) if not isinstance(word, str) or not word.strip()]
    if bad and words is value:
        raise wrong("an argument of the command", item=bad[0])
    if bad or not words:
        raise wrong("a command: text, or a list of arguments")
    return value


Command = Annotated[
    Text | tuple[Text, ...],
    BeforeValidator(_command),
    Expected("a command: text, or a list of arguments"),
]


def _seconds(value: Any) -> Any:
    """Turn `1h30m` or a number into seconds."""
    seconds: Any = value
    if isinstance(value, str) and _DURATION.fullmatch(value.replace(" ", "")):
        parts = _DURATION_PART.findall(value.replace(" ", ""))
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds < float("inf"):
        raise wrong("seconds (> 0), or a duration such as 90s, 30m, 12h or 1d12h")
    return float(seconds)


Duration = Annotated[
    float,
    BeforeValidator(
        _seconds,
        json_schema_input_type=Annotated[float, Field(gt=0)]
        | Annotated[str, Field(pattern=r"^\s*([0-9]+(\.[0-9]+)?\s*[smhd]\s*)+$")],
    ),
    Expected("seconds (> 0), or a duration such as 90s, 30m, 12h or 1d12h"),
]


def _size(value: Any) -> Any:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if not is_count and not (isinstance(value, str) and _SIZE.fullmatch(value)):
        raise wrong("bytes, or a size such as 4G, 128M or 1.5GiB")
    return value


Size = Annotated[
    int | Text,
    BeforeValidator(
        _size,
        json_schema_input_type=Annotated[int, Field(ge=0)]
        | Annotated[str, Field(pattern=f"^{_SIZE.pattern}$")],
    ),
    Expected("bytes, or a size such as 4G, 128M or 1.5GiB"),
]


def matching(test: Callable[[str], object], expected: str) -> BeforeValidator:
    """Build a check that rejects text unless `test` returns something true."""

    def check(value: Any) -> Any:
        if isinstance(value, str) and not test(value):
            raise wrong(expected)
        return value

    return BeforeValidator(check)


Unit = Literal["batches", "records", "epochs"]
UNITS = ("batches", "records", "epochs")


def _length(value: Any) -> Any:
    example = "exactly one of {batches: n}, {records: n} or {epochs: n}"
    if not isinstance(value, dict):
        raise wrong(example)
    given = {unit: count for unit, count in value.items() if count is not None}
    if len(given) != 1 or next(iter(given)) not in UNITS:
        raise wrong(example)
    count = _whole(next(iter(given.values())))
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise wrong(f"{example}, with n an integer >= 0")
    return {next(iter(given)): count}


def _length_schema() -> dict[str, Any]:
    count = {"type": "integer", "minimum": 0}
    return {
        "type": "object",
        "properties": {unit: {"anyOf": [count, {"type": "null"}]} for unit in UNITS},
        "additionalProperties": False,
        "minProperties": 1,
    }


Length = Annotated[
    dict[Unit, int],
    BeforeValidator(_length),
    Field(json_schema_extra=lambda schema: (schema.clear(), schema.update(_length_schema()))[0]),
    Expected("{batches: n}, {records: n} or {epochs: n}"),
]


def _max_length(value: Any) -> Any:
    count = _whole(value)
    if isinstance(count, int) and not isinstance(count, bool):
        if count < 1:
            raise wrong("an integer >= 1, or {batches: n}, {records: n} or {epochs: n}")
        return count
    length = _length(value)
    if 0 in length.values():
        raise wrong("a length of at least 1")
    return length


MaxLength = Annotated[
    int | dict[Unit, int],
    BeforeValidator(_max_length),
    Field(
        json_schema_extra=lambda schema: schema.update(
            anyOf=[{"type": "integer", "minimum": 1}, _length_schema()]
        )
    ),
    Expected("an integer >= 1, or {batches: n}, {records: n} or {epochs: n}"),
]
