"""`det experiment list`, `list-trials` and `list-checkpoints`."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from tests.cli.det import det_on_a_terminal, told_by
from tests.cli.scripts import STEPS
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def test_lists_and_descriptions_agree_in_every_form(lab: Lab, tmp_path: Path) -> None:
    number = lab.create(STEPS, hyperparameters={"lr": 0.5}, labels=["a", "b"])
    lab.wait(number)
    (row,) = csv.DictReader(io.StringIO(told_by("e", "list", "--csv")))
    assert row["ID"] == "1"
    assert row["State"] == "COMPLETED"
    (data,) = json.loads(told_by("e", "ls", "--json"))
    assert (data["id"], data["labels"]) == (1, ["a", "b"])
    (described,) = json.loads(told_by("e", "describe", "1", "--metrics", "--json"))
    assert described["experiment"]["state"] == "STATE_COMPLETED"
    assert described["experiment"]["config"] == described["config"]
    assert (described["experiment"]["id"], described["experiment"]["numTrials"]) == (1, 1)
    steps = described["trials"][0]["workloads"]
    assert [list(step) for step in steps].count(["training"]) == 20
    (tenth, _) = [step["validation"] for step in steps if "validation" in step]
    assert tenth["totalBatches"] == 10
    assert tenth["metrics"]["avgMetrics"] == {"loss": 0.6, "nothing": 0}
    (plain,) = json.loads(told_by("e", "describe", "1", "--json"))
    assert "workloads" not in plain["trials"][0]
    told_by("e", "describe", "1", "--metrics", "--outdir", str(tmp_path / "out"))
    written = (tmp_path / "out" / "workloads.csv").read_text()
    rows = list(csv.DictReader(io.StringIO(written)))
    assert [row["Training Metric: zero"] for row in rows] == ["0"] * 20
    assert rows[19]["Validation Metric: nothing"] == "0"
    assert {"experiments.csv", "trials.csv"} < {path.name for path in (tmp_path / "out").iterdir()}
    table = told_by("e", "describe", "1")
    assert "18 steps with training metrics only" in table
    assert "# of Batches" in told_by("e", "lt", "1")


def test_lists_on_a_terminal_of_80_columns_keep_what_matters(lab: Lab) -> None:
    number = lab.create(STEPS, hyperparameters={"lr": 0.25, "note": "x" * 100}, name="n" * 40)
    lab.wait(number)
    for words, kept in (
        (("e", "list"), ("Name", "COMPLETED", "loss 0.3", "Duration")),
        (("e", "list-trials", "1"), ("COMPLETED", "Best loss", "0.3", "Duration")),
        (("e", "describe", "1"), ("Best trial: 1, loss 0.3", "Best loss")),
    ):
        with det_on_a_terminal(*words, columns=80) as terminal:
            assert terminal.end() == 0
        assert all(text in terminal.output for text in kept), terminal.output
        rows = [re.sub(r"\x1b\[\d*m", "", line) for line in terminal.output.splitlines()]
        assert all(len(row) <= 80 for row in rows if "|" in row)
    assert told_by("e", "list", "--csv").startswith(
        "ID,Owner,Name,Parent ID,State,Progress,Started,Ended,Resource Pool\n"
    )
    assert told_by("e", "list-trials", "1", "--csv").startswith(
        "Trial ID,State,H-Params,Started,Ended,# of Batches\n"
    )


def test_the_best_checkpoints_come_first(lab: Lab) -> None:
    number = lab.create(
        STEPS, hyperparameters={"lr": 0.5}, checkpoint_storage={"save_trial_best": 9}
    )
    lab.wait(number)
    rows = list(csv.DictReader(io.StringIO(told_by("e", "lc", "1", "--csv"))))
    assert [row["# of Batches"] for row in rows] == ["10", "20"]
    best = list(csv.DictReader(io.StringIO(told_by("e", "lc", "1", "--best", "1", "--csv"))))
    assert [row["# of Batches"] for row in best] == ["20"]
    assert told_by("e", "lc", "1", "--best", "0", "--csv").count("\n") == 1


def test_lists_come_in_pages(lab: Lab) -> None:
    for _ in range(3):
        lab.create(STEPS, paused=True)

    def ids(*words: str) -> list[int]:
        return [row["id"] for row in json.loads(told_by("e", "list", "--json", *words))]

    assert ids() == [3, 2, 1]
    assert ids("--limit", "2", "--pages", "1") == [3, 2]
    assert ids("--limit", "1", "--offset", "1", "--pages", "1") == [2]
    assert ids("--offset", "2") == [1]
    for number in (1, 2, 3):
        lab.service.kill(number)
