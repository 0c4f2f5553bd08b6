"""What the supervisor holds in memory. All of it can be read from the store again."""

from __future__ import annotations

import dataclasses
import logging
from collections import deque
from collections.abc import Iterator

from determined.journal import Checkpoint, Control
from determined.platform.homes.home import Home
from determined.platform.rules.forking import ForkedRun
from determined.platform.rules.states import State
from determined.platform.runs.folder import RunExit, RunFolder
from determined.platform.search.events import Event, Progress, TrialExited, event_from_json
from determined.platform.search.searcher import Searcher
from determined.platform.supervisor.forks import forked_run
from determined.platform.supervisor.searches.restoring import Helper, restore_search
from determined.store import Experiment, Run, Transaction, Trial

logger = logging.getLogger("determined.supervisor")

_SMALLEST_PROGRESS = 0.01


@dataclasses.dataclass
class LiveRun:
    """A run whose end is not recorded yet."""

    experiment_id: int
    trial_id: int
    run_id: int
    allocation_id: str
    folder: RunFolder
    slots: tuple[int, ...]
    steps_completed: int
    from_checkpoint: str | None
    created: float
    seconds_before: float
    """How long earlier runs of the trial took."""
    preempted: str = ""
    """Why it is preempted for others, if it is."""
    offsets: dict[str, int] = dataclasses.field(default_factory=dict)
    """How far its journals were read, by path."""
    has_reported: bool = False
    """Whether its training code has reported anything yet."""
    is_watched: bool = False
    """Whether a task is starting it, or waiting for its end."""
    end: RunExit | None = None
    """How its processes ended; its journals may not have been read to their end."""
    control: Control | None = None
    """The content of its control file."""
    asked_since: float | None = None
    """When it was first asked to stop, by the monotonic clock."""
    last_measure: str = ""
    """The strongest measure taken so far to end it."""
    fault: str = ""
    """Why its reports cannot be read, if so: it is ended, and counts as failed."""
    forked: ForkedRun | None = None
    """What it trains, if its trial is a fork."""
    unrecorded: list[Checkpoint] = dataclasses.field(default_factory=list)
    """Checkpoints that it published but could not report, known once it has ended."""

    @classmethod
    def of(
        cls,
        run: Run,
        experiment_id: int,
        seconds_before: float,
        forked: ForkedRun | None = None,
    ) -> LiveRun:
        return cls(
            experiment_id,
            run.trial_id,
            run.run_id,
            run.allocation_id,
            RunFolder(run.folder),
            tuple(run.slots),
            run.steps_completed,
            run.from_checkpoint,
            run.created,
            seconds_before,
            run.preempted,
            forked=forked,
        )


@dataclasses.dataclass
class LiveExperiment:
    """An unfinished experiment, its search and its unfinished trials."""

    record: Experiment
    searcher: Searcher | None
    """None when it cannot continue: then the experiment ends as soon as its runs have."""
    trials: dict[int, Trial]
    requests: dict[str, int]
    """All trials of the search, finished ones too, by request id."""
    failure: str = ""
    """Why there is no search."""
    helper: Helper | None = None
    """What the search must ask outside the loop; None for a search that decides at once."""
    pending_events: deque[tuple[int, Event]] = dataclasses.field(default_factory=deque)
    """Events that wait for the search, with their numbers in the store."""
    slot_seconds_before: float = 0.0
    """The time of the slots of the runs that had ended when it was loaded."""
    has_noted_missing_metric: bool = False
    """Whether a note says that validations lack the searcher's metric."""

    @property
    def id(self) -> int:
        return self.record.id

    @property
    def state(self) -> State:
        return State(self.record.state)

    def is_news(self, trial_id: int, progress: float) -> bool:
        """Whether a trial has made enough progress since the last that its search knows."""
        if self.searcher is None:
            return False
        request_id = self.trials[trial_id].request_id
        pending = [
            event.progress
            for _, event in self.pending_events
            if isinstance(event, Progress) and event.request_id == request_id
        ]
        known = max([self.searcher.state.by_request[request_id].progress, *pending])
        return progress > known and progress >= min(1.0, known + _SMALLEST_PROGRESS)

    def has_pending_exit(self, request_id: str) -> bool:
        """Whether a trial is over, but its search does not know yet and may still act on it."""
        return any(
            isinstance(event, TrialExited) and event.request_id == request_id
            for _, event in self.pending_events
        )


class LiveState:
    """Experiments by id, live runs by trial."""

    def __init__(self, home: Home, *, is_copy: bool = False) -> None:
        self.home = home
        self.is_copy = is_copy
        """Whether the home is a copy: nothing outside it may be touched, and nothing started."""
        self.notice = ""
        """A note for runs that save: that there is no room left."""
        self.must_exit = False
        """Whether the supervisor has to make way for another, which sees the home differently."""
        self.experiments: dict[int, LiveExperiment] = {}
        self.runs: dict[int, LiveRun] = {}
        self.version = 0
        """Grows with every change that may decide who runs next."""
        self.garbage: set[int] = set()
        """Experiments that asked for a collection since the last one began."""

    def load(self, transaction: Transaction) -> None:
        """Read everything unfinished from the store; runs that are watched stay so."""
        self.version += 1
        watched = self.runs
        self.experiments = {
            record.id: load_experiment(self.home, transaction, record)
            for record in transaction.unfinished_experiments()
        }
        owners = {
            trial_id: live.id for live in self.experiments.values() for trial_id in live.trials
        }
        self.runs = {
            run.trial_id: LiveRun.of(
                run,
                owners[run.trial_id],
                transaction.seconds_run(run.trial_id),
                forked_run(transaction, run),
            )
            for run in transaction.unfinished_runs()
            if run.trial_id in owners
        }
        for trial_id, run in self.runs.items():
            old = watched.get(trial_id)
            if old is not None and old.run_id == run.run_id:
                # A task that waits for its end will write to this object; the store has the rest.
                old.preempted, old.offsets = run.preempted, {}
                self.runs[trial_id] = old

    def waiting(self) -> Iterator[tuple[LiveExperiment, Trial]]:
        """Trials that are active and have no run."""
        for live in self.experiments.values():
            if live.state is State.ACTIVE:
                for trial in live.trials.values():
                    is_wanted = trial.state == State.ACTIVE.value and not trial.is_held
                    if is_wanted and trial.id not in self.runs:
                        yield live, trial

    @property
    def is_idle(self) -> bool:
        """Whether nothing will happen without a command."""
        has_pending_events = any(live.pending_events for live in self.experiments.values())
        return not self.runs and not has_pending_events and not any(True for _ in self.waiting())


def load_experiment(home: Home, transaction: Transaction, record: Experiment) -> LiveExperiment:
    """Restore an experiment with its search."""
    searcher, helper, failure = None, None, ""
    try:
        searcher, helper = restore_search(home, transaction, record)
    except Exception as error:  # one broken search must not stop the others
        logger.exception("the search of experiment %s cannot be restored", record.id)
        failure = f"its search cannot be restored: {type(error).__name__}: {error}"
    trials = transaction.trials(record.id)
    over = [state.value for state in State if state.is_terminal]
    pending_events = transaction.pending_events(record.id)
    return LiveExperiment(
        record,
        searcher,
        {trial.id: trial for trial in trials if trial.state not in over},
        {trial.request_id: trial.id for trial in trials},
        failure,
        helper,
        deque((step.number, event_from_json(step.event["event"])) for step in pending_events),
        transaction.slot_seconds_run(record.id),
    )
