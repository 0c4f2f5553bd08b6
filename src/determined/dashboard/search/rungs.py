"""The rungs of a search as a table: which trials reached them, their ranks, and what followed."""

from __future__ import annotations

from typing_extensions import TypedDict

from determined.platform.search.methods.bracket import Bracket
from determined.platform.search.methods.halving import Halving
from determined.platform.search.sampling.results import WORST
from determined.platform.search.search_state import FAILED, INVALID, PAUSED, PAUSING, Trial
from determined.platform.search.searcher import Searcher

_MOST_ROWS = 200


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
    rows: list[RungRow] = []
    for rank, trial in enumerate(here[:_MOST_ROWS], start=1):
        outcome = _outcome(trial, r, is_top=r == len(bracket.rungs) - 1)
        value = trial.values[r]
        rows.append(
            {
                "trial_id": trial_ids.get(trial.request_id, 0),
                "rank": rank,
                "metric": None if value >= WORST else sign * value,
                "outcome": outcome,
                "sentence": _sentence(outcome, trial, rank, len(here), reasons),
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


def _sentence(outcome: str, trial: Trial, rank: int, count: int, reasons: dict[str, str]) -> str:
    if outcome == "promoted":
        return f"continued; rank {rank} of {count} by now"
    known = reasons.get(trial.request_id, "")
    return known or f"{outcome}; rank {rank} of {count} by now"
