"""Experiments of another home are brought into this one: all of them, once, and nothing else."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from determined.platform.supervisor import presence
from determined.store import check
from tests.cli.det import call_det, run_det
from tests.cli.scripts import ENDLESS, STEPS
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(200)]


@pytest.fixture
def labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Lab, Lab]]:
    """A home with an experiment of its own, and another one whose experiments are to come."""
    monkeypatch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "60")
    monkeypatch.setenv("DET_SLOTS", "2")
    found = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        found.append(Lab(tmp_path / name))
    here, there = found
    here.wait(here.create(STEPS, name="own"))
    grid = {"type": "categorical", "vals": [0.3, 0.1]}
    there.wait(
        there.create(
            STEPS,
            name="brought",
            searcher={"name": "grid", "metric": "loss"},
            hyperparameters={"lr": grid},
            labels=["kept"],
        )
    )
    there.until(lambda: not there.service.reader.has_chores())
    yield here, there
    for lab in found:
        lab.close()


def _import(here: Lab, there: Lab, *words: str, code: int = 0) -> str:
    presence.stop(here.home)
    here.service.close()
    done = run_det(
        "store",
        "import",
        str(there.home.path),
        *words,
        environment={"DET_HOME": str(here.home.path)},
    )
    assert done.returncode == code, done
    assert check(here.home.path) == []
    return done.stdout + done.stderr


def _told(lab: Lab, number: int) -> dict[str, Any]:
    """What a user sees of an experiment, without ids and paths."""
    record, trials = lab.experiment(number), lab.trials(number)
    reader = lab.service.reader
    return {
        "record": (record.name, record.labels, record.state, record.progress, record.num_trials),
        "best": (record.best_validation, record.checkpoint_count, record.checkpoint_size),
        "trials": [(t.request_id, t.hparams, t.state, t.best_validation) for t in trials],
        "rows": [
            [
                (r.group, r.steps_completed, r.metrics)
                for r in reader.metrics.reports(t.id, "training")
            ]
            for t in trials
        ],
        "summaries": [reader.metrics.summaries(t.id) for t in trials],
        "logs": [lab.log(run).split("ends at")[1:] for run in lab.runs(number)],
        "checkpoints": sorted((c.uuid, c.state, c.resources) for c in lab.checkpoints(number)),
    }


def _det(lab: Lab, *words: str) -> str:
    answer = call_det(*words, home=lab.home.path)
    assert answer.code == 0, answer
    return answer.output


def test_an_experiment_is_here_as_it_was_there(labs: tuple[Lab, Lab]) -> None:
    here, there = labs
    assert "Experiment 1 is new: here it is 2." in _import(here, there)
    assert _told(here, 2) == _told(there, 1)
    assert here.experiment(1).name == "own"
    for checkpoint in here.checkpoints(2):
        if checkpoint.state == "COMPLETED":
            assert (here.home.checkpoints / checkpoint.uuid / "state").exists()
            assert "whole" in _det(here, "c", "verify", checkpoint.uuid)
    assert all(str(here.home.path) in run.folder for run in here.runs(2))
    assert _det(here, "t", "logs", str(here.trials(2)[0].id)).count("ends at 20") == 1
    assert list((here.home.path / "imports").iterdir()) == []
    before = _told(there, 1)
    here.service.delete_experiments([2])  # its files here are this home's
    assert _told(there, 1) == before


def test_a_checkpoint_deleted_here_does_not_come_again(labs: tuple[Lab, Lab]) -> None:
    here, there = labs
    _import(here, there)
    uuid = next(c.uuid for c in here.checkpoints(2) if c.state == "COMPLETED")
    here.service.delete_checkpoints([uuid])
    _import(here, there)
    assert not (here.home.checkpoints / uuid).exists()
    assert (there.home.checkpoints / uuid).exists()


def test_repeating_an_import_adds_only_what_is_new(labs: tuple[Lab, Lab]) -> None:
    here, there = labs
    _import(here, there)
    here.service.change(2, notes="mine", labels=["changed"])
    assert "Experiment 1 is here already: here it is 2." in _import(here, there)
    there.wait(there.create(STEPS, name="later"))
    said = _import(here, there)
    assert "Experiment 1 is here already" in said
    assert "Experiment 2 is new: here it is 3." in said
    assert [here.experiment(n).name for n in (1, 2, 3)] == ["own", "brought", "later"]
    assert (here.experiment(2).notes, here.experiment(2).labels) == ("mine", ["changed"])
    assert len(here.service.reader.experiments().rows) == 3


def test_an_experiment_that_grew_brings_its_new_trials(labs: tuple[Lab, Lab]) -> None:
    here, there = labs
    number = there.create(
        STEPS,
        hyperparameters={"lr": {"type": "double", "minval": 0.1, "maxval": 0.2}},
        searcher={"name": "random", "metric": "loss", "max_trials": 1},
    )
    there.wait(number)
    there.until(lambda: not there.service.reader.has_chores())
    _import(here, there, "--experiment", str(number))
    here.service.change(2, notes="mine")
    there.service.continue_experiment(number, max_trials=2)
    there.until(lambda: len(there.trials(number)) == 2)
    there.wait(number)
    there.until(lambda: not there.service.reader.has_chores())
    assert f"Experiment {number} has grown: here it is 2." in _import(
        here, there, "--experiment", "2"
    )
    assert _told(here, 2) == _told(there, number)
    assert here.experiment(2).notes == "mine"


def test_an_experiment_that_runs_is_refused(labs: tuple[Lab, Lab]) -> None:
    here, there = labs
    number = there.create(ENDLESS)
    there.until(lambda: there.runs(number))
    said = _import(here, there, code=1)
    assert "Experiment 1 is new" in said
    assert f"Experiment {number} of {there.home.path} has not ended there" in said
    assert len(here.service.reader.experiments().rows) == 2
    there.service.kill(number)
    there.wait(number)


_KILLED = """
import os, signal, sys
from pathlib import Path
from determined.platform.maintenance import importing
from determined.platform.homes.home import Home
moment, here, there = sys.argv[1:]
calls = 0
def dying(*arguments, before=getattr(importing, moment), **named):
    global calls
    calls += 1
    if calls == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return before(*arguments, **named)
setattr(importing, moment, dying)
importing.import_home(Home(here), Path(there))
"""


@pytest.mark.parametrize("moment", ["_copy_whole", "_move"])
def test_an_import_that_is_killed_is_completed_by_the_next(
    labs: tuple[Lab, Lab], moment: str
) -> None:
    here, there = labs
    presence.stop(here.home)
    words = [sys.executable, "-c", _KILLED, moment, str(here.home.path), str(there.home.path)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    _import(here, there)
    assert _told(here, 2) == _told(there, 1)
    assert len(here.service.reader.experiments().rows) == 2


def test_checkpoints_outside_the_other_home_are_never_deleted(
    labs: tuple[Lab, Lab], tmp_path: Path
) -> None:
    here, there = labs
    shared = {"type": "shared_fs", "host_path": str(tmp_path / "shared")}
    number = there.create(STEPS, checkpoint_storage=shared)
    there.wait(number)
    there.until(lambda: not there.service.reader.has_chores())
    _import(here, there, "--experiment", str(number))
    saved = sorted(path.name for path in (tmp_path / "shared").iterdir())
    here.service.delete_experiments([2])
    assert sorted(path.name for path in (tmp_path / "shared").iterdir()) == saved


def test_what_cannot_be_imported_is_named(labs: tuple[Lab, Lab], tmp_path: Path) -> None:
    here, there = labs
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    for other, words in ((nothing, "is no home"), (here.home.path, "is this home itself")):
        answer = call_det("store", "import", str(other), home=here.home.path)
        assert answer.code == 1
        assert words in answer.errors
    presence.stop(there.home)
    with sqlite3.connect(there.home.path / "store.db") as connection:
        connection.execute("DELETE FROM setting")
    connection.close()
    answer = call_det("store", "import", str(there.home.path), home=here.home.path)
    assert "has no id yet" in answer.errors
    assert json.loads(_det(here, "e", "list", "--json"))[0]["name"] == "own"
