"""Follow an experiment or a trial until it ends; Ctrl-C only stops watching."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from determined.cli._commands.errors import ERROR, HELD, INTERRUPTED, OK, complain, use_colour
from determined.cli._commands.platform import warn_if_full
from determined.cli._present.layout import printable, state_text
from determined.cli._present.tables import brief, percent

if TYPE_CHECKING:
    from determined.cli._present.logs import LogPrinter
    from determined.platform.queries.logs import LogFilter
    from determined.platform.queries.outcome import Outcome
    from determined.platform.service import Service
    from determined.store import Experiment, Trial

_OVER = ("COMPLETED", "CANCELED", "ERROR", "DELETED", "DELETE_FAILED")
_CLEAR = "\r\x1b[K"
_POLL_SECONDS = 0.2
_WAKE_SECONDS = 2.0
_PROGRESS_SECONDS = 0.5
_SETTLE_SECONDS = 10.0


class ProgressLine:
    """One line on stderr that is drawn over; nothing where stderr is no terminal."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty() and use_colour(sys.stderr)
        self._text = ""
        self._is_drawn = False

    def show(self, text: str | None = None) -> None:
        """Draw the line, with a new text or as it was."""
        if text is not None and text != self._text:
            self._text, self._is_drawn = text, False
        if self._is_terminal and self._text and not self._is_drawn:
            width = shutil.get_terminal_size().columns - 3  # a ^C fits behind it
            sys.stderr.write(f"{_CLEAR}{printable(self._text)[:width]}")
            sys.stderr.flush()
            self._is_drawn = True

    def clear(self) -> None:
        """Make room for other output."""
        if self._is_drawn:
            sys.stdout.flush()
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._is_drawn = False


class Follower:
    """Watches one experiment: its logs, if asked for, and its progress."""

    def __init__(self, service: Service, experiment_id: int) -> None:
        self._service = service
        self._id = experiment_id
        self._line = ProgressLine()
        self._next_wake = 0.0
        self._warns_of_full_disk = not service.home.is_full  # else it was told already
        self._next_progress = 0.0

    def logs(self, wanted: LogFilter, printer: LogPrinter, trial_id: int | None = None) -> None:
        """Show the lines of all trials, or of one, until it is over."""
        from determined.platform.queries.logs import LogFollower

        follower = LogFollower(self._service.reader, wanted)
        is_over = False
        while True:
            is_last = is_over  # what was written before it was over is read once more
            trials = [trial_id] if trial_id is not None else [t.id for t in self._trials()]
            entries = follower.poll(trials)
            if entries:
                self._line.clear()
            for entry in entries:
                printer.show(entry)
            self._line.show()
            if is_last:
                return
            is_over = self._trial_is_over(trial_id) if trial_id else self._is_over()
            if not is_over:
                self._pause(_POLL_SECONDS)

    @property
    def is_over(self) -> bool:
        """Whether the experiment has ended, or has paused itself."""
        return self._is_over()

    def settle(self, trial_id: int) -> None:
        """Wait until it is clear what the end of a trial means for its experiment.

        Where it was the last one, the experiment ends a moment later; where none has trained yet,
        the others may fail for the same reason, and the experiment pauses itself.
        """
        deadline = time.monotonic() + _SETTLE_SECONDS
        failed = self._service.trial(trial_id).state == "ERROR"
        while not self._is_over():
            trials = self._trials()
            if any(trial.state not in _OVER for trial in trials):
                if not failed or any(trial.total_batches for trial in trials):
                    return
            elif time.monotonic() > deadline:
                return
            self._pause(_POLL_SECONDS)

    def wait(self, polling_seconds: float) -> None:
        """Wait until the experiment is over."""
        while not self._is_over():
            self._pause(min(polling_seconds, _POLL_SECONDS))

    def detached(self, again: str) -> int:
        """Say that the experiment keeps running, and how to follow it again."""
        self._line.clear()
        state = self._service.experiment(self._id).state
        if state in _OVER:
            complain("interrupted")
            return INTERRUPTED
        click.echo(
            f"\nDetached: experiment {self._id} keeps running. `{again}` follows it again, `det "
            f"experiment kill {self._id}` ends it.",
            err=True,
        )
        return INTERRUPTED

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._line.clear()

    def _pause(self, seconds: float) -> None:
        now = time.monotonic()
        if now >= self._next_wake:
            self._next_wake = now + _WAKE_SECONDS
            self._service.wake_if_needed()
            self._warns_of_full_disk = self._warns_of_full_disk and not warn_if_full(self._service)
        if now >= self._next_progress:
            self._next_progress = now + _PROGRESS_SECONDS
            self._line.show(progress_text(self._service, self._id))
        time.sleep(seconds)

    def _trials(self) -> list[Trial]:
        from determined.store import TrialFilter

        return self._service.reader.trials(TrialFilter(experiment_id=self._id)).rows

    def _is_over(self) -> bool:
        return is_over(self._service.experiment(self._id))

    def _trial_is_over(self, trial_id: int) -> bool:
        if self._service.trial(trial_id).state in _OVER:
            return True
        return has_paused_itself(self._service.experiment(self._id))


def has_paused_itself(experiment: Experiment) -> bool:
    """Whether it waits for a person. A pause that somebody asked for has no reason."""
    return experiment.state == "PAUSED" and bool(experiment.reason)


def is_over(experiment: Experiment) -> bool:
    """Whether nothing more will happen unless somebody acts."""
    return experiment.state in _OVER or has_paused_itself(experiment)


def exit_code(experiment: Experiment) -> int:
    """What a command that waited for an experiment returns."""
    if has_paused_itself(experiment):
        return HELD
    return OK if experiment.state == "COMPLETED" else ERROR


def guarded(follower: Follower, again: str, work: Callable[[], int]) -> int:
    """Do the work; Ctrl-C stops watching and prints how to follow it again."""
    try:
        return work()
    except KeyboardInterrupt:
        return follower.detached(again)
    finally:
        follower.close()


def progress_text(service: Service, experiment_id: int) -> str:
    """One line on how far an experiment is."""
    from determined.store import TrialFilter

    reader = service.reader
    experiment = service.experiment(experiment_id)
    trials = reader.trials(TrialFilter(experiment_id=experiment_id)).rows
    running = {run.trial_id for run in reader.unfinished_runs()}
    counts = {
        "running": sum(t.id in running for t in trials),
        "waiting": sum(t.id not in running and t.state not in _OVER for t in trials),
        "done": sum(t.state in _OVER for t in trials),
    }
    states = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    parts = [f"experiment {experiment_id} {experiment.state}", percent(experiment.progress)]
    parts.append(f"trials: {states}" if states else "no trials yet")
    if experiment.best_validation is not None:
        best = f"{experiment.searcher_metric} {experiment.best_validation:.6g}"
        parts.append(f"best {best} (trial {experiment.best_trial_id})")
    if experiment.state == "PAUSED":
        parts.append(f"`det experiment activate {experiment_id}` resumes it")
    return "  ".join(parts)


def show_outcome(service: Service, experiment_id: int, *, with_traceback: bool = True) -> None:
    """Tell how an experiment ended: its best trial and how to load it, or what went wrong.

    Whoever has just seen the logs needs no traceback.
    """
    from determined.platform.queries.outcome import outcome
    from determined.store import TrialFilter

    experiment = service.experiment(experiment_id)
    reason = f": {printable(experiment.reason)}" if experiment.reason else "."
    say_state(f"Experiment {experiment_id}", experiment.state, reason)
    if has_paused_itself(experiment):
        click.echo(
            f"`det experiment activate {experiment_id}` goes on with the next trials, `det "
            f"experiment continue {experiment_id}` runs the failed ones again as well."
        )
    trials = service.reader.trials(TrialFilter(experiment_id=experiment_id)).rows
    failed = [trial for trial in trials if trial.state == "ERROR"]
    if failed:
        show_failure(service, failed[0], len(failed), with_traceback=with_traceback)
    best = outcome(service.reader, experiment)
    if best.best_trial is not None:
        _show_best(experiment, best.best_trial)
    elif experiment.searcher_metric is not None:
        _show_why_none_is_best(service, experiment)
    if best.checkpoint is not None:
        _show_checkpoint(best)


def say_state(what: str, state: str, reason: str) -> None:
    """Print one sentence, with the state in its colour on a terminal."""
    colours = use_colour(sys.stdout)
    click.echo(f"{what} is {state_text(state) if colours else state}{reason}", color=colours)


def _show_checkpoint(best: Outcome) -> None:
    """Tell where the best checkpoint is, and how to get at what is in it."""
    assert best.checkpoint is not None
    steps, uuid = best.checkpoint.steps_completed, best.checkpoint.uuid
    click.echo(f"Checkpoint: {uuid} (after {steps} batches)")
    if best.path is None:
        click.echo(f"Get it:     det checkpoint download {uuid}")
        return
    click.echo(f"            {printable(best.path)}")
    for number, line in enumerate(best.python):
        click.echo(f"{'            ' if number else 'In Python:  '}{printable(line)}")


def _show_why_none_is_best(service: Service, experiment: Experiment) -> None:
    """Name the validation metrics that were reported instead of the searcher's, if any were."""
    names = [n for group, n in service.reader.metrics.names(experiment.id) if group == "validation"]
    if names and experiment.searcher_metric not in names:
        click.echo(
            f"Best trial: none, because no validation has {experiment.searcher_metric!r}, the "
            f"searcher.metric. The reported metrics are {', '.join(sorted(names))}."
        )


def _show_best(experiment: Experiment, trial: Trial) -> None:
    value = f"{experiment.searcher_metric} {experiment.best_validation:.6g}"
    click.echo(f"Best trial: {trial.id}, {printable(value)}")
    if trial.hparams:
        click.echo(f"            {printable(brief(trial.hparams))}")


def show_failure(
    service: Service, trial: Trial, count: int = 1, *, with_traceback: bool = True
) -> None:
    """Show the end of a failed trial's traceback, and where there is more."""
    from determined.platform.queries.outcome import last_log_lines

    others = f" ({count - 1} more failed)" if count > 1 else ""
    click.echo(f"Trial {trial.id}{others}: {printable(trial.reason)}")
    for line in last_log_lines(service.reader, trial) if with_traceback else ():
        click.echo(f"    {printable(line)}")
    click.echo(f"Its log: det trial logs {trial.id}")
