"""What a search decided about one trial, and why."""

from __future__ import annotations

from determined.store import Reader, SearchStep, Trial


def decisions_about(reader: Reader, trial: Trial) -> list[SearchStep]:
    """The steps of a search that concern a trial, each with the reason for this trial only."""
    found = []
    for step in reader.search_steps(trial.experiment_id):
        mine = [a for a in step.actions if a.get("request_id") == trial.request_id]
        reasons = [str(action["reason"]) for action in mine if action.get("reason")]
        if reasons:
            sentence = " ".join(reasons)
            found.append(
                SearchStep(step.experiment_id, step.number, step.time, step.event, mine, sentence)
            )
    return found
