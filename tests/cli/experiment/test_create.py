"""`det experiment create`: from files to a running experiment, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.det import det_on_a_terminal, run_det, told_by
from tests.cli.scripts import FAILING, STEPS
from tests.support.lab import Lab
from tests.support.messages import documented

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


_CONFIG = """
name: from a file
entrypoint: python3 script.py
searcher: {name: single, metric: loss}
hyperparameters: {lr: 0.25}
max_restarts: 0
"""


def _code(tmp_path: Path, script: str, config: str = _CONFIG) -> tuple[str, str]:
    folder = tmp_path / "my code"
    folder.mkdir()
    (folder / "script.py").write_text(script)
    (folder / "config.yaml").write_text(config)
    return str(folder / "config.yaml"), str(folder)


def test_an_experiment_is_created_followed_and_summed_up(lab: Lab, tmp_path: Path) -> None:
    told = told_by("e", "create", *_code(tmp_path, STEPS), "-f")
    lines = told.splitlines()
    assert lines[0].startswith("Preparing files... ")
    assert lines[0].endswith(" and 2 files")
    assert lines[1] == "Created experiment 1"
    assert lines[2] == f"Checkpoints go to {lab.home.checkpoints}"
    assert lines[3] == "Following first trial with ID 1"
    assert any("| ends at 20" in line for line in lines)
    assert "Experiment 1 is COMPLETED" in told
    assert "Best trial: 1, loss 0.3" in told
    (kept,) = [c for c in lab.checkpoints(1) if c.state == "COMPLETED" and c.steps_completed == 20]
    assert f"Checkpoint: {kept.uuid} (after 20 batches)" in told
    assert f"            {lab.home.checkpoints / kept.uuid}\n" in told
    assert lines[-1] == "To see this log again: det trial logs 1"


def test_a_paused_experiment_waits_to_be_activated(lab: Lab, tmp_path: Path) -> None:
    told = told_by("e", "create", *_code(tmp_path, STEPS), "--paused", "--config", "name=other")
    assert "`det experiment activate 1` starts it" in told
    assert lab.experiment(1).state == "PAUSED"
    assert lab.experiment(1).name == "other"
    assert told_by("e", "activate", "1") == "Activated experiment 1\n"
    assert "Experiment 1 is COMPLETED" in told_by("e", "wait", "1")


_SEARCH = """
entrypoint: python3 script.py
searcher: {name: random, metric: loss, max_trials: 6, max_concurrent_trials: 1}
hyperparameters: {lr: {type: double, minval: 0.1, maxval: 1.0}}
max_restarts: 0
"""


def test_whoever_waits_hears_that_a_search_has_paused_itself(lab: Lab, tmp_path: Path) -> None:
    answer = run_det("e", "create", *_code(tmp_path, FAILING, _SEARCH), "-f")
    assert answer.returncode == 4, answer.stderr
    assert "Experiment 1 is PAUSED: paused: the last 3 trials failed" in answer.stdout
    assert "`det experiment continue 1` runs the failed ones again" in answer.stdout
    assert "continues" not in answer.stdout
    told = told_by("e", "wait", "1", code=4)
    assert told == ""
    assert "the third layer is missing" in run_det("e", "wait", "1").stdout
    assert run_det("e", "logs", "-f", "1").returncode == 4
    assert run_det("e", "continue", "1", "-f").returncode == 4  # they fail again
    (tmp_path / "my code").joinpath("script.py").write_text(STEPS)
    assert told_by("e", "kill", "1") == "Killed experiment 1\n"
    assert run_det("e", "wait", "1").returncode == 1


def test_a_hook_that_changes_the_machine_needs_a_yes(lab: Lab, tmp_path: Path) -> None:
    words = _code(tmp_path, "print('ran')")
    hook = tmp_path / "my code" / "startup-hook.sh"
    hook.write_text("export A=1\napt-get() { :; }; apt-get x\n")
    told = told_by("e", "create", *words, code=1)
    assert "startup-hook.sh would change this machine" in told
    assert "line 2 (`apt-get() { :; }; apt-get x`)" in told
    assert "--allow-host-changes" in told
    assert "There are no experiments yet" in told_by("e", "list")
    with det_on_a_terminal("e", "create", *words, "--paused") as terminal:
        terminal.until("Run it? [y/N]")
        terminal.type("y\n")
        assert terminal.end() == 0
    told_by("e", "kill", "1")
    told = told_by("e", "create", *words, "--allow-host-changes", "-f")
    assert "ran" in told


def test_a_template_gives_what_the_configuration_leaves_open(lab: Lab, tmp_path: Path) -> None:
    config, folder = _code(tmp_path, STEPS)
    template = tmp_path / "template.yaml"
    template.write_text("description: from the template\nname: not taken\n")
    told_by("e", "create", config, folder, "--paused", "--template", str(template))
    assert lab.experiment(1).description == "from the template"
    assert lab.experiment(1).name == "from a file"
    assert "description: from the template" in told_by("e", "config", "1")
    told_by("e", "kill", "1")


def test_nothing_is_created_when_something_is_wrong(lab: Lab, tmp_path: Path) -> None:
    config, folder = _code(tmp_path, STEPS)
    told = told_by("e", "create", config, str(tmp_path / "no such folder"), code=1)
    assert "no such folder" in told
    told = told_by("e", "create", config, folder, "--config", "searcher.max_trials=many", code=1)
    assert "searcher.max_trials" in told
    told = told_by("e", "create", config, folder, "--project_id", "99", code=1)
    assert "There is no project 99." in told
    assert "There are no experiments yet" in told_by("e", "list")


def test_a_script_that_is_not_in_the_code_is_refused_at_once(lab: Lab, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("entrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\n")
    (tmp_path / "empty").mkdir()
    folder = str(tmp_path / "empty")
    told = told_by("e", "create", str(config), folder, code=1)
    line = told.splitlines()[-1]
    documented("the script of the `entrypoint` is not in the folder", line, folder)
    assert "no folder was given" in told_by("e", "create", str(config), code=1)
    (tmp_path / "empty" / "startup-hook.sh").write_text("touch train.py\n")
    assert "Created experiment 1" in told_by("e", "create", "--paused", str(config), folder)


def test_a_metric_that_is_never_reported_is_told_at_the_first_validation(lab: Lab) -> None:
    number = lab.create(STEPS, searcher={"name": "single", "metric": "val_loss"})
    told = told_by("e", "wait", str(number))
    documented("no validation has the `searcher.metric`", told.splitlines()[1])
    (run,) = lab.runs(number)
    (line,) = [line for line in lab.log(run).splitlines() if "val_loss" in line]
    told = line[line.index("The validation") :]
    documented("a validation without the `searcher.metric`, in the log", told)
    assert "at step 10 " in line
    (event,) = [e for e in lab.service.reader.events(experiment_id=number) if e.kind == "metric"]
    assert event.level == "warn"
    assert event.text.startswith("validations have no `val_loss`, the searcher.metric; reported")
