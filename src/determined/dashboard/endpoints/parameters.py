"""The types of parameters and bodies: what pydantic checks, and what the description says.

A parameter comes as text: it is a number, a text, or several values with a separator between them.
A body is JSON, and each of its values must have the right type already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    TypeAdapter,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from typing_extensions import Self

from determined.platform.rules.states import State
from determined.store import CurveKey

LARGEST_ID = 2**53 - 1  # the largest integer that a browser represents exactly
NO_NULL = r"^[^\x00]*$"
_LONGEST_LIST = 8000


def expected(what: str) -> PydanticCustomError:
    """The error of a value that is not what was expected."""
    return PydanticCustomError("expected", "expected {expected}", {"expected": what})


def _flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise expected("0 or 1")
    return text == "1"


def _curve_key(text: str) -> CurveKey:
    parts = [unquote(part) for part in text.split(":")]
    per_batch = len(parts) == 4 and parts[3] == "batches"
    if len(parts) != 3 and not per_batch:
        raise expected("TRIAL:GROUP:NAME or TRIAL:GROUP:NAME:batches")
    trial_id, group, name = _CURVE_PARTS.validate_python(parts[:3])
    return CurveKey(trial_id, group, name, per_batch)


@dataclass(frozen=True)
class OneOf:
    """Marks a text that is one of a few words."""

    words: Sequence[str]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.literal_schema(list(self.words))


@dataclass(frozen=True)
class Separated:
    """Marks a list whose values come as one text with a separator between them."""

    separator: str = ","
    about: str = ""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._split, handler(source))

    def _split(self, text: str) -> list[str]:
        return [part for part in text.split(self.separator) if part]

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        of_list = handler(schema)
        many = f"Up to {of_list['maxItems']} values with `{self.separator}` between them."
        words = f"{self.about} {many}".lstrip()
        found = {"type": "string", "maxLength": _LONGEST_LIST, "description": words}
        return found | ({"minLength": 1} if of_list.get("minItems") else {})


Text = Annotated[str, Field(max_length=500, pattern=NO_NULL)]
ShortText = Annotated[str, Field(max_length=200, pattern=NO_NULL)]
Name = Annotated[str, Field(min_length=1, max_length=500, pattern=NO_NULL)]
ShortName = Annotated[str, Field(min_length=1, max_length=200, pattern=NO_NULL)]
Uuid = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._-]+$")]
Id = Annotated[int, Field(ge=1, le=LARGEST_ID)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Flag = Annotated[bool, BeforeValidator(_flag), WithJsonSchema({"type": "integer", "enum": [0, 1]})]
"""0 or 1."""
ColumnKey = Annotated[str, Field(pattern=r"^(?:hparam|metric):[^\x00]{1,400}$")]
"""`hparam:NAME` or `metric:GROUP.NAME`."""
SeriesKey = Annotated[
    CurveKey,
    PlainValidator(_curve_key),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]+:[^:;]+:[^:;]+(:batches)?$"}),
]
"""`TRIAL:GROUP:NAME`, or `TRIAL:GROUP:NAME:batches` for per-batch values.

Each part is percent-encoded, so names may contain colons and semicolons.
"""
_CURVE_PARTS = TypeAdapter(tuple[Id, ShortName, ShortName])

Limit = Annotated[int, Field(ge=0, le=1000, description="The maximum number of rows.")]
Offset = Annotated[int, Field(ge=0, le=10_000_000, description="How many rows to skip.")]
Order = Annotated[
    Literal["asc", "desc"], Field(description="Rows without a value come last either way.")
]
States = Annotated[
    tuple[
        Annotated[str, OneOf((*(state.value for state in State), "RUNNING", "QUEUED", "STOPPED"))],
        ...,
    ],
    Field(max_length=20),
    Separated(
        about="Only these states; ACTIVE is RUNNING and QUEUED, STOPPED a trial ended early."
    ),
]
Columns = Annotated[
    tuple[ColumnKey, ...],
    Field(max_length=100),
    Separated(about="Additional values to show: `hparam:NAME`, `metric:GROUP.NAME`."),
]

Label = Annotated[str, Field(min_length=1, max_length=128, pattern=NO_NULL)]
Labels = Annotated[list[Label], Field(max_length=100)]
Description = Annotated[str, Field(max_length=10_000, pattern=NO_NULL)]
Notes = Annotated[str, Field(max_length=500_000, pattern=NO_NULL)]


class Body(BaseModel):
    """A JSON object with these properties and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)

    def given(self) -> dict[str, Any]:
        """The properties that the request has."""
        return self.model_dump(exclude_unset=True)


def _describe_changes(schema: dict[str, Any]) -> None:
    schema["minProperties"] = 1
    for item in schema["properties"].values():
        del item["default"]  # what is left out keeps its value


class Changes(Body):
    """A body with at least one property: what it has is changed, the rest stays."""

    model_config = ConfigDict(json_schema_extra=_describe_changes)

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if not self.model_fields_set:
            raise expected(f"at least one of: {', '.join(type(self).model_fields)}")
        return self
