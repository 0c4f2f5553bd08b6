"""The command that continues an experiment that has ended, or that has paused itself."""

from __future__ import annotations

from typing import Any

from determined.config import stored
from determined.errors import RefusedError
from determined.platform.rules.states import State
from determined.platform.search import events as search
from determined.platform.search.searcher import Searcher
from determined.platform.supervisor.decisions import Decisions
from determined.platform.supervisor.searches.restoring import (
    ORIGIN,
    ORIGIN_SECTIONS,
    rehearse,
)
from determined.store import Experiment, Transaction, columns_of


def continue_experiment(
    decisions: Decisions, transaction: Transaction, arguments: dict[str, Any]
) -> dict[str, Any]:
    """Continue an experiment with a new configuration and higher limits."""
    record = transaction.experiment(arguments["experiment_id"])
    state, config = State(record.state), arguments["config"]
    has_paused_itself = state is State.PAUSED and bool(record.reason)
    if not has_paused_itself and (not state.is_terminal or state is State.DELETED):
        sentence = "only an experiment that has ended can be continued."
        if state is State.PAUSED:
            sentence += f" `det experiment activate {record.id}` resumes it."
        raise RefusedError(f"experiment {record.id} is {state.value}: {sentence}")
    is_single = stored(config).searcher.name == "single"
    event = search.LimitsRaised(
        **arguments["limits"] | {"rerun_failed": is_single or arguments["limits"]["rerun_failed"]},
        rerun_canceled=state is State.CANCELED,
        rerun_finished=is_single,
    )
    if not has_paused_itself:
        _check(transaction, record, event)
    _change(transaction, record, config)
    if is_single and config["hyperparameters"] != record.config["hyperparameters"]:
        _draw_again(transaction, record.id, config)
    if has_paused_itself:
        decisions.continue_paused(record.id, event)
    else:
        decisions.continue_ended(record.id, event)
    return {"state": transaction.experiment(record.id).state}


def _check(transaction: Transaction, record: Experiment, event: search.LimitsRaised) -> None:
    """Refuse what would change nothing."""
    searcher, actions = rehearse(transaction, record, event)
    if searcher.settings.name == "custom":
        if any(not trial.exited for trial in searcher.state.trials):
            raise RefusedError(
                f"experiment {record.id} ended because its search method failed, and cannot be "
                "continued: fix the method and create a new experiment."
            )
        return  # the user's method decides
    if any(isinstance(action, (search.Create, search.Resume)) for action in actions):
        return
    failed = sum(trial.status in ("errored", "canceled") for trial in searcher.state.trials)
    hints = {
        "random": "a larger max_trials or max_length",
        "grid": "a larger max_length",
        "pbt": "a larger max_time",
    }
    hint = hints.get(searcher.settings.name, "a larger max_trials or max_time")
    again = f", or leave out --no-rerun-failed: {failed} did not finish" if failed else ""
    count = len(searcher.state.trials)
    there = "the one trial that it asks for exists"
    if count != 1:
        there = f"all {count} trials that it asks for exist"
    raise RefusedError(
        f"experiment {record.id} has nothing to continue: {there}. Give {hint}{again}."
    )


def _change(transaction: Transaction, record: Experiment, config: dict[str, Any]) -> None:
    origin = {section: record.config[section] for section in ORIGIN_SECTIONS}
    changes: dict[str, Any] = {
        "config": config,
        "environment": {ORIGIN: origin} | record.environment,
    }
    if State(record.state).is_terminal:
        changes |= {"state": State.ACTIVE.value, "reason": "", "progress": 0.0}
        changes["started"] = None  # so that a time limit starts over
    configuration = stored(config)
    if configuration.searcher.name == "single":  # others keep later changes
        changes |= columns_of(configuration)
    transaction.update_experiment(record.id, **changes)


def _draw_again(transaction: Transaction, experiment_id: int, config: dict[str, Any]) -> None:
    """Give the one trial, or all repeats of it, the values of the new configuration."""
    seed = stored(config).reproducibility.experiment_seed
    drawn = Searcher(config["searcher"], config["hyperparameters"], seed)
    create = drawn.handle(search.InitialTrials()).actions[0]
    assert isinstance(create, search.Create)
    for trial in transaction.trials(experiment_id):
        transaction.update_trial(trial.id, hparams=create.hparams)
