"""Hyperparameters as written in a file: constants, ranges and groups of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, JsonValue, Tag
from typing_extensions import TypeAliasType

from determined.config.model.types import AtLeast1, Expected, Free, Number, Section, Whole

TYPES = ("const", "int", "double", "log", "log_int", "categorical")
_WHEN = (
    "Other hyperparameters and the value, or list of values, that each must have; otherwise a "
    "trial does not have this one. Names are full paths, with dots or nested."
)
Conditions = Annotated[
    dict[str, Any],
    Field(min_length=1),
    Expected("a mapping such as {booster: gbtree}"),
]


class Const(Section):
    """The same value for every trial."""

    keeps_null: ClassVar[frozenset[str]] = frozenset({"val"})
    type: Literal["const"] = Field(description="This entry is a constant.")
    val: Free = Field(description="The value, of any type.")
    when: Conditions | None = Field(default=None, description=_WHEN)


class Int(Section):
    """An integer from `minval` to `maxval`, both inclusive."""

    type: Literal["int"] = Field(description="This entry is a range of integers.")
    minval: Whole = Field(description="The smallest value.")
    maxval: Whole = Field(description="The largest value.")
    count: AtLeast1 | None = Field(
        default=None, description="How many points of the range a grid search tries."
    )
    step: AtLeast1 | None = Field(
        default=None, description="Draw `minval`, `minval + step`, ..., up to `maxval`, only."
    )
    when: Conditions | None = Field(default=None, description=_WHEN)


class Double(Section):
    """A number from `minval` (inclusive) to `maxval` (exclusive, unless a `step` reaches it)."""

    type: Literal["double"] = Field(description="This entry is a range of numbers.")
    minval: Number = Field(description="The smallest value.")
    maxval: Number = Field(description="The upper bound, exclusive.")
    count: AtLeast1 | None = Field(
        default=None, description="How many points of the range a grid search tries."
    )
    step: Annotated[Number, Field(gt=0)] | None = Field(
        default=None,
        description="Draw `minval`, `minval + step`, ..., up to `maxval` inclusive, only.",
    )
    when: Conditions | None = Field(default=None, description=_WHEN)


class Log(Section):
    """`base ** x` with x uniform between `minval` and `maxval`: the bounds are exponents."""

    type: Literal["log"] = Field(description="This entry is a range on a logarithmic scale.")
    minval: Number = Field(description="The smallest exponent.")
    maxval: Number = Field(description="The largest exponent, exclusive.")
    base: Annotated[Number, Field(gt=0)] = Field(
        default=10.0, description="The base of the logarithm."
    )
    count: AtLeast1 | None = Field(
        default=None, description="How many points of the range a grid search tries."
    )
    when: Conditions | None = Field(default=None, description=_WHEN)


class LogInt(Section):
    """An integer from `minval` to `maxval`, both inclusive, uniform on a logarithmic scale."""

    type: Literal["log_int"] = Field(
        description="This entry is a range of integers on a logarithmic scale."
    )
    minval: AtLeast1 = Field(description="The smallest value: itself, not an exponent.")
    maxval: AtLeast1 = Field(description="The largest value.")
    count: AtLeast1 | None = Field(
        default=None, description="How many points of the range a grid search tries."
    )
    when: Conditions | None = Field(default=None, description=_WHEN)


class Categorical(Section):
    """One of the listed values."""

    type: Literal["categorical"] = Field(description="This entry is a choice.")
    vals: Annotated[tuple[Free, ...], Field(min_length=1)] = Field(
        description="The values to choose from: at least one, of any type."
    )
    when: Conditions | None = Field(default=None, description=_WHEN)


RANGES: tuple[type[Section], ...] = (Const, Int, Double, Log, LogInt, Categorical)


def kind(value: Any) -> str:
    """Name the branch of the union for an entry; parentheses distinguish it from keys."""
    if not isinstance(value, dict):
        return "(plain)"
    return f"({value['type']})" if "type" in value else "(group)"


if TYPE_CHECKING:
    Hyperparameter = Any  # a type that contains itself, which checkers cannot follow here
else:
    Hyperparameter = TypeAliasType(
        "Hyperparameter",
        Annotated[
            Annotated[Const, Tag("(const)")]
            | Annotated[Int, Tag("(int)")]
            | Annotated[Double, Tag("(double)")]
            | Annotated[Log, Tag("(log)")]
            | Annotated[LogInt, Tag("(log_int)")]
            | Annotated[Categorical, Tag("(categorical)")]
            | Annotated[dict[str, "Hyperparameter"], Tag("(group)")]
            | Annotated[JsonValue, Tag("(plain)")],
            Discriminator(kind),
        ],
    )


_OPTIONAL = ("count", "step", "when")


def canonical(entry: Any) -> Any:
    """Write a typed entry in the one form that search methods read: every leaf has a `type`."""
    if isinstance(entry, Section):
        dump = {key: value for key, value in entry if not (key in _OPTIONAL and value is None)}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dump.items()}
    if isinstance(entry, dict):
        return {name: canonical(value) for name, value in entry.items()}
    return {"type": "const", "val": entry}
