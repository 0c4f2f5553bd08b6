"""A home with a store, an experiment and a trial to write about."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from determined import journal
from determined.store import AcceptedRecord, NewExperiment, NewTrial, Reader, Run, Trial, Writer

_numbers = itertools.count(1)


class Home:
    """A store, both sides of it open; `path` is where it lives."""

    def __init__(self, path: Path, *, smaller_is_better: bool = True) -> None:
        self.path = path
        self.writer = Writer(path)
        self.reader = Reader(path)
        self._offsets: dict[str, int] = {}
        with self.writer.transaction() as tx:
            self.experiment_id = tx.create_experiment(
                NewExperiment(
                    config={"checkpoint_storage": {"type": "shared_fs"}},
                    owner="me",
                    name="test",
                    searcher_metric="loss",
                    smaller_is_better=smaller_is_better,
                )
            ).id

    def new_trial(self) -> Trial:
        """A trial of the experiment, without a run."""
        with self.writer.transaction() as tx:
            new = NewTrial(self.experiment_id, f"request-{next(_numbers)}", 1, {"lr": 0.1})
            return tx.create_trial(new)

    def new_run(self, trial: Trial, steps_completed: int = 0) -> Run:
        """The next run of a trial, which has said that it begins."""
        with self.writer.transaction() as tx:
            run = tx.create_run(
                trial.id, folder="runs/1", slots=[0], steps_completed=steps_completed
            )
        self.say(run, journal.RunStarted(run.run_id, steps_completed))
        return run

    def say(self, run: Run, *records: journal.Record) -> list[AcceptedRecord]:
        """Read records as if they stood in the journal of the run."""
        path = f"{run.trial_id}/{run.run_id}/journal-1"
        self._offsets[path] = self._offsets.get(path, 0) + len(records)
        with self.writer.transaction() as tx:
            return tx.read_journal(path, run.trial_id, run.run_id, records, self._offsets[path])

    def trial(self, trial_id: int) -> Trial:
        """The trial as readers see it."""
        found = self.reader.trial(trial_id)
        assert found is not None
        return found

    def close(self) -> None:
        """Close both sides."""
        self.reader.close()
        self.writer.close()


@contextmanager
def a_home(path: Path, *, smaller_is_better: bool = True) -> Iterator[Home]:
    """A home that is closed afterwards."""
    home = Home(path, smaller_is_better=smaller_is_better)
    try:
        yield home
    finally:
        home.close()


def report(
    steps: int, group: str = "training", batches: Sequence[dict[str, float]] = (), **metrics: object
) -> journal.Metrics:
    """A report of metrics at a step."""
    columns = journal.BatchColumns.of(batches) if batches else None
    return journal.Metrics(group, steps, metrics, columns, time=1000.0 + steps)
