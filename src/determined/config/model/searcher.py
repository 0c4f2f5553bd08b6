"""The `searcher` section: which trials an experiment runs, and for how long."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag

from determined.config.model.types import (
    AtLeast0,
    AtLeast1,
    AtLeast2,
    Expected,
    Flag,
    FreeMap,
    Items,
    MaxLength,
    Number,
    Section,
    Text,
    Unit,
    matching,
)

Sampler = Literal["random", "auto", "tpe", "gp", "cmaes", "qmc"]
Name = Annotated[Text, Field(min_length=1)]
Divisor = Annotated[Number, Field(gt=1)]

_SAMPLER = "What proposes values: random draws, or a model of the results so far."
_WITH_MODEL = "With a `sampler` other than random, the default is as many as run at once here."
_CONCURRENT = f"How many trials may be active at once; 0: no limit. {_WITH_MODEL}"
_CONCURRENT_RUNGS = (
    f"How many trials may be active at once; 0: as many as the rungs call for. {_WITH_MODEL}"
)
_MAX_TIME = "How long a trial that is never stopped early trains, in units of `time_metric`."
_TIME_METRIC = "The validation metric that measures a trial's progress: batches, epochs, ..."
_STOP_ONCE = (
    "Whether a trial that is not promoted stops for good (true) or may be promoted later (false)."
)
_INITIAL = (
    "Configurations to try first, in order: values of some or all searched hyperparameters, nested "
    "as those are. The others are drawn."
)
_STOP_WHEN = "When to end the whole search early: the first of the rules given here."
_DIVISOR = "Promote one in this many trials at each rung."
_MAX_TRIALS = "How many trials to run, not counting those with invalid hyperparameters."


def _trials(value: Any) -> Any:
    """Turn `20 trials` into 20."""
    if isinstance(value, str) and (match := _TRIALS.fullmatch(value.strip())):
        return int(match[1])
    return value


_TRIALS = re.compile(r"([0-9]+) ?trials?")
Trials = Annotated[
    AtLeast1,
    BeforeValidator(
        _trials,
        json_schema_input_type=Annotated[int, Field(ge=1)]
        | Annotated[str, Field(pattern=r"^\s*[0-9]+ ?trials?\s*$")],
    ),
    Expected("`20 trials`, or another number"),
]


class StopWhen(Section):
    """When a search ends before it has run all of its trials; running ones save and stop."""

    no_improvement_for: Trials | None = Field(
        default=None,
        description="End when this many trials in a row (20, or `20 trials`) have ended without a "
        "new best value of the metric; those that failed do not count.",
    )
    max_total_units: AtLeast1 | None = Field(
        default=None,
        description="End when all trials together have trained this long, in units of "
        "`time_metric`, or batches without one, as known from their validations.",
    )


class Searcher(Section):
    """The keys that every searcher takes."""

    metric: Name = Field(description="The validation metric to optimize.")
    smaller_is_better: Flag = Field(default=True, description="Whether to minimize the metric.")
    source_trial_id: AtLeast1 | None = Field(
        default=None, description="Start every trial from the latest checkpoint of this trial."
    )
    source_checkpoint_uuid: Name | None = Field(
        default=None, description="Start every trial from this checkpoint."
    )
    max_length: MaxLength | None = Field(
        default=None,
        description="Old form: how long to train; pass `fit(max_length=...)` instead.",
    )
    unit: Unit | None = Field(
        default=None, description="Old form: the unit of a `max_length` without one."
    )


class Single(Searcher):
    """One trial."""

    name: Literal["single"] = Field(description="One trial.")


class Random(Searcher):
    """Trials with values drawn at random or proposed by a model."""

    name: Literal["random"] = Field(description="Trials drawn at random.")
    stop_when: StopWhen | None = Field(default=None, description=_STOP_WHEN)
    max_trials: AtLeast1 = Field(description=_MAX_TRIALS)
    max_concurrent_trials: AtLeast0 = Field(default=16, description=_CONCURRENT)
    sampler: Sampler = Field(default="random", description=_SAMPLER)
    initial: Items[FreeMap] = Field(default=(), description=_INITIAL)


class Grid(Searcher):
    """Every combination of the listed values."""

    name: Literal["grid"] = Field(description="Every combination.")
    stop_when: StopWhen | None = Field(default=None, description=_STOP_WHEN)
    max_concurrent_trials: AtLeast0 = Field(default=16, description=_CONCURRENT)


def _either_length(schema: dict[str, Any]) -> None:
    """Say in the schema that the old `max_length` stands for `max_time` and `time_metric`."""
    schema["required"] = [k for k in schema["required"] if k not in ("max_time", "time_metric")]
    schema["anyOf"] = [{"required": ["max_time", "time_metric"]}, {"required": ["max_length"]}]


class Halving(Searcher):
    """The keys of searchers that stop trials at rungs."""

    model_config = ConfigDict(json_schema_extra=_either_length)
    stop_when: StopWhen | None = Field(default=None, description=_STOP_WHEN)
    max_trials: AtLeast1 = Field(description=_MAX_TRIALS)
    max_time: AtLeast1 = Field(description=_MAX_TIME)
    time_metric: Name = Field(description=_TIME_METRIC)
    divisor: Divisor = Field(default=4.0, description=_DIVISOR)
    max_concurrent_trials: AtLeast0 = Field(default=16, description=_CONCURRENT_RUNGS)
    stop_once: Flag = Field(default=True, description=_STOP_ONCE)
    sampler: Sampler = Field(default="random", description=_SAMPLER)
    initial: Items[FreeMap] = Field(default=(), description=_INITIAL)


class AsyncHalving(Halving):
    """Asynchronous successive halving: only the best trials are promoted from rung to rung."""

    name: Literal["async_halving"] = Field(description="Asynchronous successive halving.")
    num_rungs: AtLeast1 = Field(
        description="How many rungs there are: how often trials are compared."
    )


class AdaptiveAsha(Halving):
    """Several brackets of asynchronous halving, which stop trials more or less early."""

    name: Literal["adaptive_asha"] = Field(description="Brackets of asynchronous halving.")
    mode: Literal["standard", "aggressive", "conservative"] = Field(
        default="standard",
        description="How many brackets: one if aggressive, the most if conservative.",
    )
    max_rungs: AtLeast1 = Field(default=5, description="The maximum number of rungs in a bracket.")
    bracket_rungs: Items[AtLeast1] = Field(
        default=(), description="The number of rungs of each bracket, instead of what `mode` gives."
    )


class Pbt(Searcher):
    """Population-based training: poor members go on from copies of good ones, with other values.

    After each interval, the last members are replaced by forks of the first ones.
    """

    name: Literal["pbt"] = Field(description="Population-based training.")
    population: AtLeast2 = Field(
        description="How many members train side by side, or in turns if there are fewer slots."
    )
    interval: AtLeast1 = Field(
        description="How long members train between two comparisons, in units of `time_metric`. "
        "Trials validate, save and stop there by themselves."
    )
    max_time: AtLeast1 = Field(
        description="How long members train in all, a multiple of `interval`."
    )
    time_metric: Literal["batches", "epochs"] = Field(
        default="batches", description="The unit of `interval` and `max_time`: batches or epochs."
    )
    quantile: Annotated[Number, Field(gt=0, le=0.5)] = Field(
        default=0.25,
        description="Which share of the members is replaced after an interval, by forks of as many "
        "of the best; at least one member.",
    )
    perturb: Annotated[Items[Annotated[Number, Field(gt=0)]], Field(min_length=1)] = Field(
        default=(0.8, 1.25),
        description="The factors of which one, drawn at random, multiplies each hyperparameter of "
        "a fork; categories move to a neighbor in `vals` instead.",
    )
    resample: Annotated[Number, Field(ge=0, le=1)] = Field(
        default=0.25,
        description="The probability that a hyperparameter is drawn anew from its whole range "
        "instead.",
    )
    inherit: Items[Name] = Field(
        default=(),
        description="Searched hyperparameters that a fork takes over from its parent as they are, "
        "such as those that decide the architecture. Nested names have dots.",
    )
    initial: Items[FreeMap] = Field(default=(), description=_INITIAL)


class Custom(Searcher):
    """A search method of your own; all further keys are passed to it."""

    model_config = ConfigDict(extra="allow")
    keeps_null: ClassVar[frozenset[str]] = frozenset()
    name: Literal["custom"] = Field(description="A search method of your own.")
    class_: Annotated[
        Text,
        matching(
            re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*").fullmatch, "a class as `module:Class`"
        ),
        Expected("a class as `module:Class`"),
    ] = Field(alias="class", description="The method's class in the model code, as `module:Class`.")


SEARCHERS: dict[str, type[Searcher]] = {
    "single": Single,
    "random": Random,
    "grid": Grid,
    "async_halving": AsyncHalving,
    "adaptive_asha": AdaptiveAsha,
    "pbt": Pbt,
    "custom": Custom,
}
REMOVED = {
    "adaptive": "adaptive_asha",
    "adaptive_simple": "adaptive_asha",
    "sync_halving": "async_halving",
}


def _name(value: Any) -> str | None:
    name = value.get("name") if isinstance(value, dict) else getattr(value, "name", None)
    return None if name is None else f"({name})"


AnySearcher = Annotated[
    Annotated[Single, Tag("(single)")]
    | Annotated[Random, Tag("(random)")]
    | Annotated[Grid, Tag("(grid)")]
    | Annotated[AsyncHalving, Tag("(async_halving)")]
    | Annotated[AdaptiveAsha, Tag("(adaptive_asha)")]
    | Annotated[Pbt, Tag("(pbt)")]
    | Annotated[Custom, Tag("(custom)")],
    Discriminator(_name),
]
