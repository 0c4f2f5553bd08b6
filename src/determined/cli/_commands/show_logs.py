"""What `det experiment logs` and `det trial logs` have in common."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from determined.cli._commands.errors import HELD, OK
from determined.cli._commands.log_options import log_filter

if TYPE_CHECKING:
    from determined.platform.queries.logs import LogFilter
    from determined.platform.service import Service


@dataclass(frozen=True)
class LogRequest:
    """The options of `log_options`, read."""

    wanted: LogFilter
    follow: bool
    head: int | None
    tail: int | None
    utc: bool
    as_json: bool

    @property
    def is_partial(self) -> bool:
        """Whether lines may have been left out."""
        from determined.platform.queries.logs import LogFilter

        return self.wanted != LogFilter()

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> LogRequest:
        """Read the options; at most one of head, tail and follow."""
        follow, head, tail = options["follow"], options["head"], options["tail"]
        if sum([follow, head is not None, tail is not None]) > 1:
            raise click.UsageError("Use at most one of --head, --tail and --follow.")
        names = ("rank_id", "level", "timestamp_after", "timestamp_before", "search")
        wanted = log_filter(**{name: options[name] for name in names})
        return cls(wanted, follow, head, tail, options["utc"], options["as_json"])


def show_logs(
    service: Service, experiment_id: int, trial_id: int | None, request: LogRequest
) -> int:
    """Show the log of one trial, or of all trials of an experiment."""
    from determined.cli._present.log_output import LogPrinter
    from determined.platform.queries.logs import read_logs, tail_logs
    from determined.store import TrialFilter

    printer = LogPrinter(names_trials=trial_id is None, utc=request.utc, as_json=request.as_json)
    if request.follow:
        return _follow(service, experiment_id, trial_id, request, printer)
    only = TrialFilter(experiment_id=experiment_id)
    trials = [trial_id] if trial_id else [t.id for t in service.reader.trials(only).rows]
    runs = [run for number in trials for run in service.reader.runs(number)]
    if request.tail is not None:
        entries = iter(tail_logs(runs, request.wanted, request.tail))
    else:
        entries = itertools.islice(read_logs(runs, request.wanted), request.head)
    for entry in entries:
        printer.show(entry)
    return OK


def _follow(
    service: Service, experiment_id: int, trial_id: int | None, request: LogRequest, printer: Any
) -> int:
    from determined.cli._present.following import Follower, guarded, has_paused_itself, show_outcome

    follower = Follower(service, experiment_id)
    again = f"det experiment logs -f {experiment_id}"
    if trial_id is not None:
        again = f"det trial logs -f {trial_id}"

    def work() -> int:
        follower.logs(request.wanted, printer, trial_id)
        follower.close()
        if trial_id is None and not request.as_json:
            show_outcome(service, experiment_id, with_traceback=request.is_partial)
        if trial_id is None and has_paused_itself(service.experiment(experiment_id)):
            return HELD
        return OK

    return guarded(follower, again, work)
