"""Predict what a search will do and cost: data for `det preview-search`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from determined.platform.search.methods.bracket_plans import BracketPlan, plan_brackets
from determined.platform.search.sampling.results import ENOUGH, FEWEST_SCORED
from determined.platform.search.searcher import Searcher
from determined.platform.search.settings import Settings
from determined.platform.search.simulation.curves import SyntheticCurves
from determined.platform.search.simulation.simulator import simulate
from determined.platform.search.space import Space

_ROUNDS = 5
_MANY_TRIALS = 2000  # one round tells enough


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of simulated searches on synthetic learning curves."""

    units: int  # median
    least: int
    most: int
    full_trials: int  # median of trials that train to the end
    share: float  # of training all trials to the end


@dataclass(frozen=True, slots=True)
class Preview:
    """What a search is expected to do.

    Attributes:
        num_trials: how many trials there will be; None if only the method knows.
        unit: the unit of training length.
        ends: how many trials end at which length, ascending, as the rule predicts; empty if all
            trials train to completion.
        predicted_units: total training according to `ends`; None without rungs and length.
        most_units: total training if every trial trains to the end, or the search's own limit.
        brackets: the brackets of a halving search.
        estimate: the same from a simulation, if there are rungs.
        notes: sentences about when the search may end earlier.
        warnings: sentences about settings that are likely to disappoint.
    """

    num_trials: int | None
    unit: str
    ends: dict[int, int] = field(default_factory=dict)
    predicted_units: int | None = None
    most_units: int | None = None
    brackets: list[BracketPlan] = field(default_factory=list)
    estimate: Estimate | None = None
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def predicted_share(self) -> float | None:
        """Return `predicted_units` as a share of full training."""
        if self.predicted_units is None or not self.most_units:
            return None
        return self.predicted_units / self.most_units

    def lines(self) -> list[str]:
        """Return the classic table as text."""
        if self.num_trials is None:
            return ["as many trials as the method creates"]
        if not self.ends:
            return [f"{self.num_trials} trials, train to completion"]
        return [f"{count} trials end at {units} {self.unit}" for units, count in self.ends.items()]


def preview_of(config: Mapping[str, Any]) -> tuple[Preview, str]:
    """Predict the search of a whole configuration; also return the unit of training length."""
    searcher = config["searcher"]
    length, unit = searcher.get("max_length"), searcher.get("time_metric") or "batches"
    if isinstance(length, dict):
        ((unit, number),) = length.items()
        length = int(number)
    seed = config["reproducibility"]["experiment_seed"]
    found = preview(searcher, config["hyperparameters"], seed, length, config.get("repeat"))
    return found, str(unit)


def preview(
    searcher: dict[str, Any],
    hyperparameters: dict[str, Any],
    seed: int = 0,
    max_length: int | None = None,
    repeat: int | None = None,
) -> Preview:
    """Predict a search; `max_length` is the length of trials that no rung ends."""
    settings = Settings.from_dict(searcher, repeat)
    found = _of_whole(settings, searcher, hyperparameters, seed, max_length)
    most, notes = settings.stop_when.get("max_total_units"), []
    if patience := settings.stop_when.get("no_improvement_for"):
        notes.append(f"Ends earlier after {patience} trials in a row without improvement.")
    if most is not None:
        notes.append(f"Ends earlier after {most:,} {settings.time_metric} in all.")
        units = [
            None if n is None else min(n, most) for n in (found.predicted_units, found.most_units)
        ]
        found = replace(found, predicted_units=units[0], most_units=units[1])
    return replace(found, notes=notes)


def _of_whole(
    settings: Settings,
    searcher: dict[str, Any],
    hyperparameters: dict[str, Any],
    seed: int,
    max_length: int | None,
) -> Preview:
    """Predict a search that nothing ends early."""
    if settings.is_halving:
        return _of_halving(settings, searcher, hyperparameters, seed)
    if settings.name == "pbt":
        return _of_population(settings)
    counts = {"single": 1, "random": settings.max_trials}
    if settings.name == "grid":
        counts["grid"] = len(Space(hyperparameters).grid())
    trials = counts.get(settings.name)
    if trials is not None and settings.name != "random":
        trials *= settings.repeat
    units = None if trials is None or max_length is None else trials * max_length
    warnings = [*_about_ranges(settings, hyperparameters), *_about_model(settings)]
    return Preview(
        trials, settings.time_metric, predicted_units=units, most_units=units, warnings=warnings
    )


def _of_halving(
    settings: Settings, searcher: dict[str, Any], hyperparameters: dict[str, Any], seed: int
) -> Preview:
    brackets = plan_brackets(settings)
    ends = predicted_ends(brackets, settings.divisor)
    return Preview(
        num_trials=settings.max_trials,
        unit=settings.time_metric,
        ends=ends,
        predicted_units=sum(units * count for units, count in ends.items()),
        most_units=settings.max_trials * settings.max_time,
        brackets=brackets,
        estimate=estimate(settings, searcher, hyperparameters, seed),
        warnings=[*_about_rungs(settings, brackets), *_about_model(settings)],
    )


def _of_population(settings: Settings) -> Preview:
    generations = max(settings.max_time // settings.interval, 1)
    replaced = max(int(settings.population * settings.quantile), 1)
    units = settings.population * settings.max_time
    decided = generations - 1
    ends = {settings.interval * (g + 1): replaced for g in range(decided)}
    warnings = []
    if not decided:
        warnings.append(
            "there is one generation, so no member is ever replaced: this is a random search. "
            "Lower `interval` or raise `max_time`."
        )
    return Preview(
        num_trials=settings.population + decided * replaced,
        unit=settings.time_metric,
        ends=ends | {settings.max_time: settings.population},
        predicted_units=units,
        most_units=units,
        warnings=warnings,
    )


def predicted_ends(brackets: list[BracketPlan], divisor: float) -> dict[int, int]:
    """Return how many trials end at which length if every rung keeps its best 1/divisor."""
    ends: dict[int, int] = {}
    for bracket in brackets:
        left = bracket.max_trials
        for units in bracket.units[:-1]:
            going_on = max(int(left / divisor), 1)
            ends[units] = ends.get(units, 0) + left - going_on
            left = going_on
        ends[bracket.units[-1]] = ends.get(bracket.units[-1], 0) + left
    return dict(sorted(ends.items()))


def estimate(
    settings: Settings, searcher: dict[str, Any], hyperparameters: dict[str, Any], seed: int
) -> Estimate:
    """Simulate the search several times, on synthetic curves and with random samples."""
    brackets = plan_brackets(settings)
    validate_at = sorted({units for bracket in brackets for units in bracket.units})
    num_slots = sum(bracket.max_concurrent for bracket in brackets)
    rounds = 1 if settings.max_trials > _MANY_TRIALS else _ROUNDS
    outcomes = [
        simulate(
            Searcher({**searcher, "sampler": "random"}, hyperparameters, seed + i),
            SyntheticCurves(seed + i),
            num_slots,
            validate_at,
        )
        for i in range(rounds)
    ]
    units = sorted(outcome.units for outcome in outcomes)
    median = int(statistics.median(units))
    full = int(statistics.median(outcome.num_full for outcome in outcomes))
    share = median / (settings.max_trials * settings.max_time)
    return Estimate(median, units[0], units[-1], full, share)


def _about_rungs(settings: Settings, brackets: list[BracketPlan]) -> list[str]:
    warnings = []
    first = min(bracket.units[0] for bracket in brackets)
    if first <= 1 and any(len(bracket.units) > 1 for bracket in brackets):
        better = replace(settings, max_rungs=max(settings.max_rungs - 1, 1))
        fewer = (
            f"max_rungs: {max(max(len(b.units) for b in plan_brackets(better)) - 1, 1)}"
            if settings.name == "adaptive_asha"
            else f"num_rungs: {max(settings.num_rungs - 1, 1)}"
        )
        warnings.append(
            f"the first rung is at {first} {settings.time_metric}: trials have hardly trained by "
            f"then, so their ranking is almost random. Remove a rung (`{fewer}`) or raise "
            "`max_time`."
        )
    if any(len(set(bracket.units)) < len(bracket.units) for bracket in brackets):
        warnings.append("some rungs coincide; remove rungs or raise `max_time`.")
    return warnings


def _about_model(settings: Settings) -> list[str]:
    enough = FEWEST_SCORED if settings.sampler == "auto" else ENOUGH
    if settings.sampler == "random" or settings.max_trials >= 2 * enough:
        return []
    what = "all" if settings.max_trials <= enough else f"at least the first {enough}"
    return [
        f"`sampler: {settings.sampler}` learns from {enough} results on, so {what} of these "
        f"{settings.max_trials} trials are random. A model needs {2 * enough} trials or more to "
        "help."
    ]


def _about_ranges(settings: Settings, hyperparameters: dict[str, Any]) -> list[str]:
    searched = Space(hyperparameters).searched
    if settings.name != "single" or not searched:
        return []
    names = ", ".join(leaf.name for leaf in searched)
    return [f"a single experiment draws one sample from ranges and does not search: {names}."]
