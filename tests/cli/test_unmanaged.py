"""`det` on scripts that were started by hand: what works, and what is refused in a sentence."""

from __future__ import annotations

import json

import pytest

from tests.cli.det import told_by
from tests.support import tracked
from tests.support.lab import Lab
from tests.support.messages import documented

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

_SCRIPT = """
from determined import core

with core.init() as context:
    context.train.report_training_metrics(10, {"loss": 0.5})
    context.train.report_validation_metrics(10, {"loss": 0.25})
    with context.checkpoint.store_path({"steps_completed": 10}) as (path, uuid):
        (path / "weights").write_text("w")
    raise ValueError("bad luck")
"""


def test_the_commands_of_an_experiment_work_or_say_why_not(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_HOME", str(lab.home.path))
    assert tracked.run(lab.home.path, tracked.write(lab.folder, _SCRIPT))[0] == 1
    lab.until(lambda: lab.service.has_store and lab.service.reader.experiment(1))
    lab.wait(1)
    listed = told_by("e", "list")
    assert "train.py" in listed
    assert "unmanaged" in listed
    (told,) = json.loads(told_by("e", "list", "--json"))
    assert (told["unmanaged"], told["state"]) == (True, "ERROR")
    assert "ValueError: bad luck" in told_by("e", "describe", "1")
    assert "ValueError: bad luck" in told_by("t", "describe", "1")
    assert "Traceback (most recent call last)" in told_by("e", "logs", "1")
    (checkpoint,) = lab.checkpoints(1)
    assert checkpoint.uuid in told_by("e", "lc", "1")
    target = lab.folder / "copy"
    told_by("c", "download", checkpoint.uuid, "-o", str(target))
    assert (target / "weights").read_text() == "w"
    for words in (("e", "pause"), ("e", "activate"), ("e", "cancel"), ("e", "kill")):
        refused = told_by(*words, "1", code=1)
        assert refused.startswith("det: experiment 1 is unmanaged: its script was started manually")
        assert refused.count("\n") == 1
    assert "trial 1 is unmanaged" in told_by("t", "kill", "1", code=1)
    assert "unmanaged" in told_by("e", "continue", "1", code=1)
    assert "without code" in told_by("e", "download-model-def", "1", code=1)
    assert "its code is not stored" in told_by("t", "debug", "1", code=1)
    told_by("e", "archive", "1")
    assert "train.py" not in told_by("e", "list")
    assert "train.py" in told_by("e", "list", "--all")


_NAMED = """
from determined import core

with core.init(
    name="first try",
    project="vision/resnets",
    labels=["baseline", "small"],
    description="to see whether it works",
    hparams={"lr": 0.1},
    metric="accuracy",
    smaller_is_better=False,
) as context:
    context.train.report_validation_metrics(10, {"accuracy": 0.5})
    context.train.report_validation_metrics(20, {"accuracy": 0.25})
    print("best", context.train.get_experiment_best_validation())
"""


def test_a_script_says_what_its_run_is_called_and_where_it_belongs(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_HOME", str(lab.home.path))
    status, output, errors = tracked.run(lab.home.path, tracked.write(lab.folder, _NAMED))
    assert (status, output, errors) == (0, "best 0.5\n", "")
    lab.until(lambda: lab.service.has_store and lab.service.reader.experiment(1))
    experiment = lab.wait(1)
    assert (experiment.name, experiment.labels) == ("first try", ["baseline", "small"])
    assert experiment.description == "to see whether it works"
    assert (experiment.searcher_metric, experiment.best_validation) == ("accuracy", 0.5)
    (trial,) = lab.trials(1)
    assert trial.hparams == {"lr": 0.1}
    config = experiment.config
    assert (config["workspace"], config["project"]) == ("vision", "resnets")
    listed = json.loads(told_by("project", "list", "vision", "--json"))
    assert [one["name"] for one in listed] == ["resnets"]
    # A second run is filed there, too; in a trial of the platform the arguments have no effect.
    tracked.run(lab.home.path, tracked.write(lab.folder, _NAMED))
    managed = lab.create(_NAMED, name="of the platform", searcher={"name": "single", "metric": "m"})
    assert lab.wait(managed).name == "of the platform"
    (run,) = lab.runs(managed)
    line = next(line for line in lab.log(run).splitlines() if "no effect" in line)
    documented("`init(name=...)` in a trial of the platform", line[line.index("`name`") :])
    lab.until(lambda: len(lab.service.reader.experiments().rows) == 3)
    places = {one.name: one.project_id for one in lab.service.reader.experiments().rows}
    assert places == {"first try": experiment.project_id, "of the platform": 1}
    assert experiment.project_id != 1
