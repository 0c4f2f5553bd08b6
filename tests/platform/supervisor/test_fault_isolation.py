"""What breaks in one place stays there: damaged journals, odd reports, bad commands."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from determined.platform.service import RefusedError
from determined.store import Event
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

# In its first run, a journal appears whose middle has changed after it was written.
DAMAGED_JOURNAL = """
import os, pathlib
from determined import core, journal
with core.init() as ctx:
    for step in range(1, 6):
        ctx.train.report_training_metrics(step, {"loss": float(step)})
    if os.environ["DET_TRIAL_RUN_ID"] == "1":
        draft = pathlib.Path("draft")
        writer = journal.JournalWriter(draft)
        writer.append([journal.Metrics("training", 6, {"loss": 6.0})])
        end = draft.stat().st_size
        writer.append([journal.Metrics("training", s, {"loss": 7.0}) for s in (7, 8)])
        with draft.open("r+b") as file:
            file.seek(end + 12)
            file.write(b"?")
        draft.rename(journal.new_journal_path(pathlib.Path(os.environ["DET_RUN_DIR"])))
    else:
        ctx.train.report_validation_metrics(5, {"loss": 1.0})
"""

# A whole record with values that no report of this library has.
TALKS_NONSENSE = """
import os, pathlib, time
from determined import journal
writer = journal.JournalWriter(journal.new_journal_path(pathlib.Path(os.environ["DET_RUN_DIR"])))
writer.append([journal.Metrics(["no", "group"], "no step", 7)])
time.sleep(60)
"""


# Somebody else writes where the next record belongs; the training knows nothing of it.
OVERWRITTEN = """
import os, pathlib, time
from determined import journal
path = journal.new_journal_path(pathlib.Path(os.environ["DET_RUN_DIR"]))
journal.JournalWriter(path).append([journal.Progress(0.5)])
with open(path, "a") as file:
    file.write("something else")
time.sleep(1000)
"""


def events(lab: Lab, experiment_id: int, kind: str) -> list[Event]:
    found = lab.service.reader.events(experiment_id=experiment_id)
    return [event for event in found if event.kind == kind]


def test_a_corrupt_journal_fails_its_run_only(lab: Lab) -> None:
    experiment_id = lab.create(DAMAGED_JOURNAL, max_restarts=2)
    other = lab.create("pass")
    assert lab.wait(other).state == "COMPLETED"
    assert lab.wait(experiment_id).state == "COMPLETED"
    (trial,) = lab.trials(experiment_id)
    reports = lab.service.reader.metrics.reports(trial.id, "training")
    assert [report.steps_completed for report in reports] == [1, 2, 3, 4, 5]
    assert trial.restarts == 1
    (event,) = events(lab, experiment_id, "damaged_journal")
    assert "is corrupt at byte" in event.text


def test_reports_that_make_no_sense_end_their_run_only(lab: Lab) -> None:
    experiment_id = lab.create(TALKS_NONSENSE)
    other = lab.create("pass")
    assert lab.wait(other).state == "COMPLETED"
    ended = lab.wait(experiment_id)
    assert ended.state == "ERROR"
    assert "its reports cannot be recorded" in lab.trials(experiment_id)[0].reason
    assert len(events(lab, experiment_id, "damaged_journal")) == 1


def test_a_run_whose_journal_is_spoilt_does_not_go_on_unheard(lab: Lab) -> None:
    experiment_id = lab.create(OVERWRITTEN)
    assert lab.wait(experiment_id).state == "ERROR"
    (trial,) = lab.trials(experiment_id)
    assert "is corrupt at byte" in trial.reason
    assert trial.progress == 0.5


def test_what_a_run_said_before_the_damage_is_kept_if_it_ends_at_once(lab: Lab) -> None:
    experiment_id = lab.create(
        OVERWRITTEN.replace("time.sleep(1000)", "os._exit(0)"),
        searcher={"name": "grid", "metric": "loss"},
        hyperparameters={"number": {"type": "int", "minval": 1, "maxval": 8, "count": 8}},
    )
    lab.wait(experiment_id)
    trials = lab.trials(experiment_id)
    assert all("is corrupt at byte" in trial.reason for trial in trials)
    assert [trial.progress for trial in trials] == [0.5] * 8
    assert len(events(lab, experiment_id, "damaged_journal")) == 8


def test_a_command_that_cannot_be_understood_blocks_nobody(lab: Lab) -> None:
    with pytest.raises(RefusedError, match="The supervisor failed to do this: KeyError"):
        lab.service.ask("kill", {"experiment": 1})
    with pytest.raises(RefusedError, match="does not know the command 'dance'"):
        lab.service.ask("dance", {})
    assert lab.wait(lab.create("pass")).state == "COMPLETED"


def test_a_search_that_cannot_be_restored_fails_its_experiment_only(lab: Lab) -> None:
    broken = lab.create("import time; time.sleep(100)")
    lab.until(lambda: lab.runs(broken))
    lab.kill_supervisor()
    _spoil_search(lab.home.path, broken)
    assert lab.wait(lab.create("pass")).state == "COMPLETED"
    ended = lab.wait(broken)
    assert ended.state == "ERROR"
    assert "its search cannot be restored" in ended.reason
    assert lab.trials(broken)[0].state == "ERROR"


def _spoil_search(home: Path, experiment_id: int) -> None:
    connection = sqlite3.connect(home / "store.db")
    with connection:
        changes = ('{"event": {"type": "from another world"}}', experiment_id)
        connection.execute("UPDATE search_step SET event=? WHERE experiment_id=?", changes)
    connection.close()


def test_a_run_that_is_not_wanted_any_more_is_not_started(lab: Lab) -> None:
    script = "import time; time.sleep(100)"
    experiment_id = lab.create(script, paused=True)
    lab.service.activate(experiment_id)
    lab.service.pause(experiment_id)
    lab.until(lambda: not lab.service.reader.unfinished_runs())
    assert lab.experiment(experiment_id).state == "PAUSED"
    lab.service.kill(experiment_id)
    assert lab.wait(experiment_id).state == "CANCELED"


def test_one_that_hangs_after_invalid_hyperparameters_is_killed(lab: Lab) -> None:
    script = """
import signal, time
from determined import core
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ctx = core.init()
ctx.train.report_early_exit(core.EarlyExitReason.INVALID_HP)
time.sleep(300)
"""
    ended = lab.wait(lab.create(script))
    assert (lab.trials(ended.id)[0].reason, ended.state) == ("invalid hyperparameters", "COMPLETED")
