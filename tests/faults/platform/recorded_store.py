"""A store at work with every write on record: `python -m tests.faults.platform.recorded_store`."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from determined import journal
from determined.store import NewExperiment, NewTrial, Transaction, Writer
from tests.support.store_log import StoreLog

ROUNDS, REPORTS = 12, 4


def work(home: Path) -> StoreLog:
    """Create trials durably, and take reports in as they come; both are marked when they return."""
    log = StoreLog(home)
    writer = Writer(home)
    writer._connection.execute("PRAGMA wal_autocheckpoint=15")  # several times in this short life
    with writer.transaction() as transaction:
        config = {"checkpoint_storage": {"type": "shared_fs"}}
        new = NewExperiment(config, "me", "test", searcher_metric="loss")
        experiment_id = transaction.create_experiment(new).id
    log.mark("0")
    for number in range(1, ROUNDS + 1):
        with writer.transaction() as transaction:
            _create(transaction, experiment_id, number)
        log.mark(str(number))
        for step in range(1, REPORTS + 1):
            with writer.transaction(durable=False) as transaction:
                record = journal.Metrics("training", step, {"loss": 1 / step, "text": "x" * 400})
                transaction.read_journal(f"{number}", number, 1, [record], step)
    writer.close()
    return log


def _create(transaction: Transaction, experiment_id: int, number: int) -> None:
    trial = transaction.create_trial(NewTrial(experiment_id, f"request-{number}", 1, {}))
    transaction.create_run(trial.id, folder="f", slots=[], steps_completed=0)


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(pickle.dumps(work(Path(sys.argv[1])).entries))
