"""Turn what folders say into records of experiments, trials and runs that the old store lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from determined.config import stored
from determined.platform.rules.states import State
from determined.platform.runs.found_runs import FoundExperiment, FoundRun, FoundTrial
from determined.platform.search import events as search
from determined.platform.search.searcher import Searcher, Step
from determined.platform.supervisor.forks import add_fork
from determined.platform.supervisor.searches.restoring import LOST
from determined.store import Experiment, NewTrial, SearchStep, Transaction, columns_of

_RESTORED = "restored from its folder"
_PLAIN = ("single", "random", "grid")
_SEARCH_LOST = (
    "the record of its search was lost with the old store: what its trials did is kept, and a new "
    "experiment can start from their checkpoints"
)


class Records:
    """Adds what is missing, within the first transaction of a rebuild."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._restoration = transaction.restoration
        self._known = {record.id: record for record in self._restoration.experiments()}
        self.restored: list[str] = []
        self.lost: list[str] = []
        self.strangers: list[FoundRun] = []
        """The last runs of trials that the search of their experiment does not know any more."""
        self.changed: set[int] = set()
        """Trials of which something was missing, so that their journals must be read."""

    def complete(self, found: FoundExperiment) -> None:
        """Add the experiment, or those of its trials and runs that are missing."""
        known = self._known.get(found.id)
        if known is not None:
            self._complete_known(known, found)
        elif found.config is None:
            self.lost.append(f"experiment {found.id}: nothing in {found.path} says what it was")
        else:
            self._add(found, found.config)
        if found.creation is not None and found.creation.fork is not None:
            self._link(found.id, found.creation.fork)

    def _link(self, experiment_id: int, fork: dict[str, Any]) -> None:
        """Say again of which trial the one of an experiment is a fork.

        Its runs may have had the values of its parent.
        """
        trials = self._transaction.trials(experiment_id)
        if len(trials) != 1 or self._transaction.forks.find(trials[0].id) is not None:
            return
        (trial,) = trials
        parent = self._restoration.trial(fork["parent_trial_id"])
        if parent is None:
            self.lost.append(
                f"experiment {experiment_id}: trial {fork['parent_trial_id']}, of which it is a "
                "fork"
            )
            return
        seed = parent.seed if fork["seed"] is None else fork["seed"]
        self._transaction.update_trial(trial.id, hparams=fork["hparams"], seed=seed)
        add_fork(self._transaction, trial, fork)
        self.changed.add(trial.id)

    # An experiment of which nothing is known

    def _add(self, found: FoundExperiment, config: dict[str, Any]) -> None:
        self.restored.append(f"experiment {found.id}")
        if self._restoration.steps(found.id):
            self._add_with_search(found, config)
            return
        steps = _begin_anew(config) if found.creation is not None else []
        created = [a for step in steps for a in step.actions if isinstance(a, search.Create)]
        requests = {trial.last.request_id for trial in found.trials}
        is_restored = bool(created) and requests <= {action.request_id for action in created}
        is_live = any(trial.last.folder.is_locked for trial in found.trials)
        if is_restored:
            state = State.ACTIVE if is_live else State.PAUSED
        elif is_live:
            state = State.ACTIVE
        else:
            done = all(_outcome(trial) is State.COMPLETED for trial in found.trials)
            state = State.COMPLETED if done and found.trials else State.ERROR
        self._restoration.add_experiment(_experiment(found, config, state, is_restored))
        for trial in found.trials:
            self._add_trial(found.id, trial, is_open=is_restored, state=state)
        if is_restored:
            self._record(found.id, steps, created, requests, state)

    def _add_with_search(self, found: FoundExperiment, config: dict[str, Any]) -> None:
        """Add an experiment whose search and maybe trials are known: only its record was lost."""
        states = {trial.state for trial in self._transaction.trials(found.id)}
        state = State.PAUSED if State.PAUSED.value in states else State.ACTIVE
        if _is_over(self._restoration.steps(found.id)):
            state = State.COMPLETED
        values = _experiment(found, config, state, True)
        self._restoration.add_experiment(values)
        self._complete_known(self._transaction.experiment(found.id), found)

    def _record(
        self,
        experiment_id: int,
        steps: Iterable[Step],
        created: Iterable[search.Create],
        there: set[str],
        state: State,
    ) -> None:
        """Record the first steps of a search, and create the trials that never ran."""
        for step in steps:
            actions = [search.to_json(action) for action in step.actions]
            self._transaction.record_search(experiment_id, None, step.record, actions)
        for action in created:
            if action.request_id not in there:
                values = (action.request_id, action.trial_seed, action.hparams, state.value)
                self._transaction.create_trial(NewTrial(experiment_id, *values))

    # An experiment that is known

    def _complete_known(self, known: Experiment, found: FoundExperiment) -> None:
        is_open = not State(known.state).is_terminal and "DELET" not in known.state
        steps = self._restoration.steps(known.id)
        requests = _created(steps)
        trials = {trial.id: trial for trial in self._transaction.trials(known.id)}
        for trial in found.trials:
            old = trials.get(trial.id)
            if old is not None:
                self._add_runs(trial, is_open and not State(old.state).is_terminal)
            elif is_open and trial.last.request_id not in requests:
                self.strangers.append(trial.last)
                self.lost.append(
                    f"trial {trial.id} of experiment {known.id}: its search no longer knows it "
                    f"and will try its values again; its files stay in {trial.last.folder.path}"
                )
            else:
                self.restored.append(f"trial {trial.id} of experiment {known.id}")
                self._add_trial(known.id, trial, is_open=is_open, state=State(known.state))
        here = {trial.request_id for trial in self._transaction.trials(known.id)}
        numbers = [step.number for step in steps]
        if is_open and (numbers != list(range(1, len(steps) + 1)) or here != requests):
            self.lost.append(f"the search of experiment {known.id}")
            environment = known.environment | {LOST: _SEARCH_LOST}
            self._transaction.update_experiment(known.id, environment=environment)

    # Trials and runs

    def _add_trial(
        self, experiment_id: int, found: FoundTrial, *, is_open: bool, state: State
    ) -> None:
        is_open = is_open or found.last.folder.is_locked
        if found.id in {trial.id for trial in self._transaction.trials(experiment_id)}:
            self._add_runs(found, is_open)
            return
        outcome = _outcome(found)
        trial_state = State.PAUSED if state is State.PAUSED else State.ACTIVE
        values = {
            "id": found.id,
            "experiment_id": experiment_id,
            "request_id": found.last.request_id,
            "task_id": found.last.cluster["task_id"],
            "seed": found.last.trial["trial_seed"],
            "hparams": found.last.trial["hparams"],
            "state": (trial_state if is_open else outcome).value,
            "reason": _RESTORED,
            "run_id": found.last.run_id,
            "created": found.runs[0].created,
            "started": found.runs[0].created,
            "ended": None if is_open else _ended(found.last),
        }
        self._restoration.add_trial(values)
        self.changed.add(found.id)
        self._add_runs(found, is_open)

    def _add_runs(self, found: FoundTrial, is_open: bool) -> None:
        """Add the runs that are missing; of an open trial the supervisor ends the last."""
        known = {run.run_id for run in self._restoration.runs(found.id)}
        for run in found.runs:
            if run.run_id not in known:
                self.changed.add(found.id)
                is_last = run is found.last
                self._restoration.add_run(_run(found.id, run, is_open and is_last))


def _created(steps: Iterable[SearchStep]) -> set[str]:
    """The request ids of the trials that a search has asked for."""
    actions = (action for step in steps for action in step.actions or ())
    return {action["request_id"] for action in actions if action["kind"] == search.Create.kind}


def _is_over(steps: Iterable[SearchStep]) -> bool:
    """Whether a search has ended, and was not continued since."""
    is_over = False
    for step in steps:
        is_over = is_over and step.event["event"]["kind"] != search.LimitsRaised.kind
        is_over = is_over or any(a["kind"] == search.Shutdown.kind for a in step.actions or ())
    return is_over


def _begin_anew(config: dict[str, Any]) -> list[Step]:
    """The first steps of a search whose trials do not depend on one another; none of others."""
    settings = config["searcher"]
    if settings["name"] not in _PLAIN or settings.get("sampler", "random") != "random":
        return []
    seed = stored(config).reproducibility.experiment_seed
    repeat = config.get("repeat")
    searcher = Searcher(settings, config["hyperparameters"], seed, repeat=repeat)
    first = searcher.handle(search.InitialTrials())
    created = [action for action in first.actions if isinstance(action, search.Create)]
    return [first, *(searcher.handle(search.TrialCreated(a.request_id)) for a in created)]


def _outcome(trial: FoundTrial) -> State:
    """How a trial that will not continue has ended, according to its last run."""
    end = trial.last.end
    is_done = end is not None and end.exit_code == 0 and end.stopped_by is None
    return State.COMPLETED if is_done else State.ERROR


def _ended(run: FoundRun) -> float:
    return run.created if run.end is None or run.end.ended_at is None else run.end.ended_at


def _experiment(
    found: FoundExperiment, config: dict[str, Any], state: State, is_restored: bool
) -> dict[str, Any]:
    creation = found.creation
    created = creation.created if creation is not None else found.path.stat().st_mtime
    environment: dict[str, Any] = {"creation": creation.creation if creation else None}
    if not is_restored:
        environment[LOST] = _SEARCH_LOST
    return {
        "id": found.id,
        "owner": creation.owner if creation is not None else found.path.owner(),
        "config": config,
        "original_config": creation.original_config if creation is not None else "",
        "parent_id": creation.parent_id if creation is not None else None,
        "snapshot_id": creation.snapshot if creation is not None else None,
        "environment": environment,
        "state": state.value,
        "reason": _SEARCH_LOST if state is State.ERROR else _RESTORED,
        "progress": 1.0 if state is State.COMPLETED else 0.0,
        **columns_of(stored(config)),
        "created": created,
        "started": found.trials[0].runs[0].created if found.trials else None,
        "ended": _last_end(found) if state.is_terminal else None,
    }


def _last_end(found: FoundExperiment) -> float | None:
    return max((_ended(trial.last) for trial in found.trials), default=None)


def _run(trial_id: int, found: FoundRun, is_open: bool) -> dict[str, Any]:
    end = found.end
    return {
        "trial_id": trial_id,
        "run_id": found.run_id,
        "allocation_id": found.cluster["allocation_id"],
        "folder": str(found.folder.path),
        "host": found.cluster["agent_id"],
        "slots": found.cluster["slot_ids"],
        "steps_completed": found.trial["steps_completed"],
        "from_checkpoint": found.cluster.get("latest_checkpoint"),
        "exit_code": None if is_open or end is None else end.exit_code,
        "reason": "" if is_open else _RESTORED,
        "created": found.created,
        "started": None if end is None else end.started_at,
        "ended": None if is_open else _ended(found),
    }
