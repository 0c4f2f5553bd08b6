"""The rungs of a search as a table: which trials reached them, their ranks, and what followed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict

from determined.platform.search.methods.bracket import Bracket
from determined.platform.search.methods.halving import Halving
from determined.platform.search.sampling.results import WORST
from determined.platform.search.search_state import FAILED, INVALID, PAUSED, PAUSING, Trial
from determined.platform.search.searcher import Searcher

_MOST_ROWS = 200


_DECISION = re.compile(
    r"(stopped|paused|continues|promoted)(?: at| from) (\d+) [^:]+: "
    r"rank (\d+) of (\d+)(?:, the best (\d+) continues?)?(?:, .*)?"
)


_DID = {
    "stopped": "was stopped at",
    "paused": "was paused at",
    "continues": "went on at",
    "promoted": "was promoted from",
}


@dataclass(frozen=True)
class _Place:
    """A rung, and how many results it has."""

    units: int
    next_units: int
    unit: str
    count: int


class RungRow(TypedDict):
    """A trial at a rung; `metric` is null if it failed there."""

    trial_id: int
    rank: int
    metric: float | None
    outcome: str
    sentence: str


class RungJson(TypedDict):
    """A rung: how many results it has, how many trials continued, and the best trials."""

    units: int
    seen: int
    kept: int
    rows: list[RungRow]


class BracketJson(TypedDict):
    number: int
    max_trials: int
    rungs: list[RungJson]


def brackets_of(
    searcher: Searcher, trial_ids: dict[str, int], reasons: dict[str, str]
) -> list[BracketJson]:
    """The brackets of a search; trial ids and last reasons are given by request id."""
    method = searcher._method
    if not isinstance(method, Halving):
        return []
    sign = 1 if searcher.settings.smaller_is_better else -1
    by_bracket: dict[int, list[Trial]] = {}
    for trial in searcher.state.trials:
        by_bracket.setdefault(trial.bracket, []).append(trial)
    return [
        {
            "number": bracket.index,
            "max_trials": bracket.max_trials,
            "rungs": [
                _rung(bracket, r, by_bracket.get(bracket.index, []), sign, trial_ids, reasons)
                for r in range(len(bracket.rungs))
            ],
        }
        for bracket in method.brackets
    ]


def _rung(
    bracket: Bracket,
    r: int,
    trials: list[Trial],
    sign: int,
    trial_ids: dict[str, int],
    reasons: dict[str, str],
) -> RungJson:
    here = sorted((t for t in trials if len(t.values) > r), key=lambda trial: trial.values[r])
    last = len(bracket.rungs) - 1
    place = _Place(
        bracket.rungs[r].units, bracket.rungs[min(r + 1, last)].units, bracket.unit, len(here)
    )
    rows: list[RungRow] = []
    for rank, trial in enumerate(here[:_MOST_ROWS], start=1):
        outcome = _outcome(trial, r, is_top=r == last)
        value = trial.values[r]
        trial_id = trial_ids.get(trial.request_id, 0)
        reason = reasons.get(trial.request_id, "")
        rows.append(
            {
                "trial_id": trial_id,
                "rank": rank,
                "metric": None if value >= WORST else sign * value,
                "outcome": outcome,
                "sentence": _sentence(place, outcome, trial_id, rank, reason),
            }
        )
    return {
        "units": bracket.rungs[r].units,
        "seen": len(here),
        "kept": sum(trial.rung > r for trial in here),
        "rows": rows,
    }


def _outcome(trial: Trial, r: int, *, is_top: bool) -> str:
    if trial.rung > r:
        return "promoted"
    if trial.values[r] >= WORST or trial.status in (*FAILED, INVALID):
        return "failed"
    if is_top:
        return "completed"
    return "waiting" if trial.status in (PAUSING, PAUSED) else "stopped"


def step_sentence(action: dict[str, Any], trial_ids: dict[str, int], unit: str) -> str:
    """What a search decided, as a sentence."""
    trial_id = trial_ids.get(action.get("request_id", ""))
    who = "" if trial_id is None else f"Trial {trial_id}"
    if action.get("kind") == "create":
        return f"{who or 'A new trial'} was created: {action['reason']}."
    return sentence_of(who, str(action["reason"]), unit)


def sentence_of(who: str, reason: str, unit: str) -> str:
    """A reason of a search, such as `stopped at 3 epochs: rank 5 of 9, ...`, as a sentence."""
    found = _DECISION.fullmatch(reason)
    if found is None:
        return f"{who}: {reason}." if who else f"{reason[:1].upper()}{reason[1:]}."
    verb, units, rank, count, kept = found.groups()
    place = f"it was {ordinal(int(rank))} of the {amount(int(count), 'results')} there"
    if kept:
        best = "best one goes" if kept == "1" else f"best {kept} go"
        place += f", and {'only ' if verb in ('stopped', 'paused') else ''}the {best} on"
    return f"{who} {_DID[verb]} {amount(int(units), unit)}: {place}."


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th ..."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ending}"


def amount(number: int, unit: str) -> str:
    """1 epoch, 2 epochs."""
    one = {"batches": "batch"}.get(unit, unit.removesuffix("s"))
    return f"{number:,} {one if number == 1 else unit}"


def _sentence(at: _Place, outcome: str, trial_id: int, rank: int, reason: str) -> str:
    """Who, what happened at this rung, and why."""
    who = f"Trial {trial_id}"
    place = f"{ordinal(rank)} of {at.count} by now"
    if outcome == "promoted":
        return f"{who} went on to {amount(at.next_units, at.unit)}; here it is {place}."
    if outcome == "completed":
        return f"{who} finished at {amount(at.units, at.unit)}, the last rung; it is {place}."
    if outcome == "failed":
        return f"{who} {reason or 'failed'}."
    if outcome == "waiting":
        return f"{who} waits at {amount(at.units, at.unit)} for others; it is {place}."
    if reason:
        return sentence_of(who, reason, at.unit)
    return f"{who} was stopped at {amount(at.units, at.unit)}; it is {place}."
