"""Restore the search of an experiment from the store, with the process that it asks, if any.

A model and a user's own method take time and memory, so they run in processes of their own and
are asked outside the loop (`background/slow_searches.py`). All others decide within microseconds.
"""

from __future__ import annotations

import shutil
from typing import Any

from determined.errors import RefusedError, StoreError
from determined.platform.homes.creation import experiment_folder
from determined.platform.homes.home import Home
from determined.platform.homes.snapshot import load_snapshot, working_copy
from determined.platform.runs.environment import load_environment
from determined.platform.runs.variables import variables_for_device
from determined.platform.search.events import Action, Event
from determined.platform.search.processes.custom_process import CustomProcess, LazyOracle
from determined.platform.search.processes.model_process import ModelProcess, missing_packages
from determined.platform.search.sampling.model import Model, ProposalRequest
from determined.platform.search.searcher import Searcher
from determined.platform.search.space import Point
from determined.store import Experiment, Transaction

Helper = LazyOracle | ModelProcess

ORIGIN = "searched_with"
"""In an experiment's environment: the sections with which its search began, once it differs."""
LOST = "search_lost"
"""In an experiment's environment: why its search cannot continue, after a store was rebuilt."""
ORIGIN_SECTIONS = ("searcher", "hyperparameters", "reproducibility")


def check_search(config: dict[str, Any]) -> None:
    """Refuse a configuration from which no search can begin."""
    searcher = config["searcher"]
    if sentence := missing_packages(searcher.get("sampler", "random")):
        raise RefusedError(sentence)
    try:
        Searcher(searcher, config["hyperparameters"], 0, repeat=config.get("repeat"))
    except ValueError as error:
        raise RefusedError(str(error)) from error


def restore_search(
    home: Home, transaction: Transaction, record: Experiment
) -> tuple[Searcher, Helper | None]:
    """Return the search as it was, and the helper that must be asked outside the loop, if any."""
    if LOST in record.environment:
        raise StoreError(record.environment[LOST])
    searcher = origin_of(record)["searcher"]
    sampler = searcher.get("sampler", "random")
    if searcher["name"] == "custom":
        oracle = LazyOracle(lambda: start_method(home, record))
        return _restored(transaction, record, oracle, None), oracle
    if sampler == "random":
        return _restored(transaction, record, None, None), None
    model = ModelProcess(sampler, origin_of(record)["hyperparameters"])
    return _restored(transaction, record, None, model), model


def rehearse(
    transaction: Transaction, record: Experiment, event: Event
) -> tuple[Searcher, list[Action]]:
    """Return what a search would do, with random samples; a user's method is not asked."""
    searcher = _restored(transaction, record, None, _NoModel())
    is_custom = searcher.settings.name == "custom"
    return searcher, [] if is_custom else searcher.handle(event).actions


def _restored(
    transaction: Transaction, record: Experiment, oracle: LazyOracle | None, model: Model | None
) -> Searcher:
    origin = origin_of(record)
    # A new process of a user's method needs all events; others continue from a snapshot.
    is_custom = origin["searcher"]["name"] == "custom"
    snapshot = None if is_custom else transaction.searcher_state(record.id)
    after = 0 if snapshot is None else int(snapshot["num_events"])
    return Searcher.restore(
        origin["searcher"],
        origin["hyperparameters"],
        origin["reproducibility"]["experiment_seed"],
        snapshot,
        [step.event for step in transaction.search_steps(record.id, after)],
        oracle,
        model,
        record.config.get("repeat"),  # never changes; older experiments have none
    )


class _NoModel:
    """A model without answers, for a rehearsal: random samples replace them."""

    def propose(self, request: ProposalRequest) -> Point:
        raise LookupError


def origin_of(record: Experiment) -> dict[str, Any]:
    """The sections of the configuration with which a search began, before it was continued."""
    origin: dict[str, Any] = record.environment.get(ORIGIN) or record.config
    return origin


def start_method(home: Home, record: Experiment) -> CustomProcess:
    """Start the process of a user's method, with the experiment's code and interpreter."""
    folder = experiment_folder(home, record)
    recorded = load_environment(folder)
    code = folder / "search" / "code"
    shutil.rmtree(code, ignore_errors=True)  # left by an earlier process
    code.parent.mkdir(mode=0o700, exist_ok=True)
    if record.snapshot_id is None:
        code.mkdir()
    else:
        working_copy(load_snapshot(home.snapshots, record.snapshot_id), code)
    variables = dict(recorded.variables)
    configured = record.configuration.environment.environment_variables
    for assignment in variables_for_device(configured.as_dict(), "cpu"):
        name, _, value = assignment.partition("=")
        variables[name] = value
    origin = origin_of(record)
    return CustomProcess(
        origin["searcher"],
        origin["hyperparameters"],
        origin["reproducibility"]["experiment_seed"],
        code,
        python=recorded.interpreter,
        log=folder / "search" / "log",
        variables=variables,
    )
