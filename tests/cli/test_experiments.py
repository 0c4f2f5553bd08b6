"""`det experiment` on real experiments: what it prints, changes, and returns."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from determined.config import load
from tests.cli.det import det_on_a_terminal, run_det
from tests.cli.scripts import ENDLESS, FAILING, STEPS
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


def _det(*words: str, code: int = 0) -> str:
    answer = run_det(*words)
    assert answer.returncode == code, answer.stderr
    assert "Traceback" not in answer.stderr
    return answer.stderr if code else answer.stdout


def test_an_experiment_is_created_followed_and_summed_up(lab: Lab, tmp_path: Path) -> None:
    told = _det("e", "create", *_code(tmp_path, STEPS), "-f")
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
    told = _det("e", "create", *_code(tmp_path, STEPS), "--paused", "--config", "name=other")
    assert "`det experiment activate 1` starts it" in told
    assert lab.experiment(1).state == "PAUSED"
    assert lab.experiment(1).name == "other"
    assert _det("e", "activate", "1") == "Activated experiment 1\n"
    assert "Experiment 1 is COMPLETED" in _det("e", "wait", "1")


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
    told = _det("e", "wait", "1", code=4)
    assert told == ""
    assert "the third layer is missing" in run_det("e", "wait", "1").stdout
    assert run_det("e", "logs", "-f", "1").returncode == 4
    assert run_det("e", "continue", "1", "-f").returncode == 4  # they fail again
    (tmp_path / "my code").joinpath("script.py").write_text(STEPS)
    assert _det("e", "kill", "1") == "Killed experiment 1\n"
    assert run_det("e", "wait", "1").returncode == 1


def test_a_hook_that_changes_the_machine_needs_a_yes(lab: Lab, tmp_path: Path) -> None:
    words = _code(tmp_path, "print('ran')")
    hook = tmp_path / "my code" / "startup-hook.sh"
    hook.write_text("export A=1\napt-get() { :; }; apt-get x\n")
    told = _det("e", "create", *words, code=1)
    assert "startup-hook.sh would change this machine" in told
    assert "line 2 (`apt-get() { :; }; apt-get x`)" in told
    assert "--allow-host-changes" in told
    assert "There are no experiments yet" in _det("e", "list")
    with det_on_a_terminal("e", "create", *words, "--paused") as terminal:
        terminal.until("Run it? [y/N]")
        terminal.type("y\n")
        assert terminal.end() == 0
    _det("e", "kill", "1")
    told = _det("e", "create", *words, "--allow-host-changes", "-f")
    assert "ran" in told


def test_a_template_gives_what_the_configuration_leaves_open(lab: Lab, tmp_path: Path) -> None:
    config, folder = _code(tmp_path, STEPS)
    template = tmp_path / "template.yaml"
    template.write_text("description: from the template\nname: not taken\n")
    _det("e", "create", config, folder, "--paused", "--template", str(template))
    assert lab.experiment(1).description == "from the template"
    assert lab.experiment(1).name == "from a file"
    assert "description: from the template" in _det("e", "config", "1")
    _det("e", "kill", "1")


def test_nothing_is_created_when_something_is_wrong(lab: Lab, tmp_path: Path) -> None:
    config, folder = _code(tmp_path, STEPS)
    told = _det("e", "create", config, str(tmp_path / "no such folder"), code=1)
    assert "no such folder" in told
    told = _det("e", "create", config, folder, "--config", "searcher.max_trials=many", code=1)
    assert "searcher.max_trials" in told
    told = _det("e", "create", config, folder, "--project_id", "99", code=1)
    assert "There is no project 99." in told
    assert "There are no experiments yet" in _det("e", "list")


def test_lists_and_descriptions_agree_in_every_form(lab: Lab, tmp_path: Path) -> None:
    number = lab.create(STEPS, hyperparameters={"lr": 0.5}, labels=["a", "b"])
    lab.wait(number)
    (row,) = csv.DictReader(io.StringIO(_det("e", "list", "--csv")))
    assert row["ID"] == "1"
    assert row["State"] == "COMPLETED"
    (data,) = json.loads(_det("e", "ls", "--json"))
    assert (data["id"], data["labels"]) == (1, ["a", "b"])
    (described,) = json.loads(_det("e", "describe", "1", "--metrics", "--json"))
    assert described["experiment"]["state"] == "STATE_COMPLETED"
    assert described["experiment"]["config"] == described["config"]
    assert (described["experiment"]["id"], described["experiment"]["numTrials"]) == (1, 1)
    steps = described["trials"][0]["workloads"]
    assert [list(step) for step in steps].count(["training"]) == 20
    (tenth, _) = [step["validation"] for step in steps if "validation" in step]
    assert tenth["totalBatches"] == 10
    assert tenth["metrics"]["avgMetrics"] == {"loss": 0.6, "nothing": 0}
    (plain,) = json.loads(_det("e", "describe", "1", "--json"))
    assert "workloads" not in plain["trials"][0]
    _det("e", "describe", "1", "--metrics", "--outdir", str(tmp_path / "out"))
    written = (tmp_path / "out" / "workloads.csv").read_text()
    rows = list(csv.DictReader(io.StringIO(written)))
    assert [row["Training Metric: zero"] for row in rows] == ["0"] * 20
    assert rows[19]["Validation Metric: nothing"] == "0"
    assert {"experiments.csv", "trials.csv"} < {path.name for path in (tmp_path / "out").iterdir()}
    table = _det("e", "describe", "1")
    assert "18 steps with training metrics only" in table
    assert "# of Batches" in _det("e", "lt", "1")


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
    assert _det("e", "list", "--csv").startswith(
        "ID,Owner,Name,Parent ID,State,Progress,Started,Ended,Resource Pool\n"
    )
    assert _det("e", "list-trials", "1", "--csv").startswith(
        "Trial ID,State,H-Params,Started,Ended,# of Batches\n"
    )


def test_an_experiment_that_has_not_begun_can_be_described(lab: Lab) -> None:
    number = lab.create(STEPS, paused=True)
    assert "PAUSED" in _det("e", "describe", str(number), "--metrics")
    _det("e", "describe", str(number), "--metrics", "--csv")
    _det("t", "describe", "1")
    assert _det("t", "logs", "1") == ""
    lab.service.kill(number)


def test_the_best_checkpoints_come_first(lab: Lab) -> None:
    number = lab.create(
        STEPS, hyperparameters={"lr": 0.5}, checkpoint_storage={"save_trial_best": 9}
    )
    lab.wait(number)
    rows = list(csv.DictReader(io.StringIO(_det("e", "lc", "1", "--csv"))))
    assert [row["# of Batches"] for row in rows] == ["10", "20"]
    best = list(csv.DictReader(io.StringIO(_det("e", "lc", "1", "--best", "1", "--csv"))))
    assert [row["# of Batches"] for row in best] == ["20"]
    assert _det("e", "lc", "1", "--best", "0", "--csv").count("\n") == 1


def test_a_failed_trial_shows_its_traceback_and_its_log(lab: Lab) -> None:
    number = lab.create(FAILING)
    lab.wait(number)
    for words in (["e", "describe", "1"], ["t", "describe", "1"]):
        told = _det(*words)
        assert "    ValueError: the third layer is missing" in told
        assert "in train" in told
        assert "Its log: det trial logs 1" in told
    answer = run_det("e", "wait", "1")
    assert answer.returncode == 1
    assert "Experiment 1 is ERROR" in answer.stdout


def test_verbs_tell_what_they_did_and_what_they_cannot_do(lab: Lab) -> None:
    number = lab.create(ENDLESS)
    lab.until(lambda: lab.trials(number)[0].total_batches > 0)
    assert "RUNNING" in _det("e", "list")
    assert _det("e", "pause", "1") == "Paused experiment 1\n"
    assert _det("e", "unpause", "1") == "Activated experiment 1\n"
    told = _det("e", "archive", "1", code=1)
    documented("an experiment is archived before it has ended", told)
    assert _det("e", "cancel", "1") == "Canceled experiment 1\n"
    lab.wait(number)
    told = _det("e", "kill", "1")
    assert told == "Experiment 1 had already ended: it is CANCELED\n"
    documented("an experiment that has ended is killed", told)
    assert _det("e", "cancel", "1") == told
    assert _det("t", "kill", "1") == "Trial 1 had already ended: it is CANCELED\n"
    documented("an experiment is paused after its end", _det("e", "pause", "1", code=1))
    assert _det("e", "archive", "1") == "Archived experiment 1\n"
    assert "only archived experiments" in _det("e", "list")
    assert "CANCELED" in _det("e", "list", "-a")
    assert _det("e", "unarchive", "1") == "Unarchived experiment 1\n"
    documented("an experiment is not there", _det("e", "pause", "77", code=1))
    documented("a trial is not there", _det("t", "kill", "77", code=1))


def test_names_labels_and_priorities_can_be_set(lab: Lab) -> None:
    lab.create(STEPS, paused=True)
    _det("e", "set", "name", "1", "a \x1b[31mred name")
    _det("e", "set", "description", "1", "long story")
    _det("e", "set", "priority", "1", "7")
    _det("e", "set", "max-slots", "1", "1")
    _det("e", "label", "add", "1", "good")
    _det("e", "label", "add", "1", "better")
    _det("e", "label", "remove", "1", "good")
    found = lab.experiment(1)
    assert (found.name, found.description) == ("a \x1b[31mred name", "long story")
    assert (found.priority, found.max_slots, found.labels) == (7, 1, ["better"])
    _det("e", "set", "max-slots", "1", "none")
    assert lab.experiment(1).max_slots is None
    _det("e", "set", "max-slots", "1", "many", code=2)
    assert "no trial could ever start" in _det("e", "set", "max-slots", "1", "0", code=1)
    _det("e", "set", "priority", "1", "100", code=2)
    with det_on_a_terminal("e", "describe", "1") as terminal:
        assert terminal.end() == 0
    assert terminal.output.startswith("Experiment 1 is \x1b[33mPAUSED\x1b[0m.")
    assert "\x1b[31m" not in terminal.output
    lab.service.kill(1)


def test_the_code_comes_back_as_an_archive(lab: Lab, tmp_path: Path) -> None:
    lab.create(STEPS, paused=True)
    _det("e", "download-model-def", "1", "--output-dir", str(tmp_path / "new"))
    with tarfile.open(tmp_path / "new" / "experiment_1_model_def.tgz") as archive:
        file = archive.extractfile("script.py")
        assert file is not None
        assert file.read().decode() == STEPS
    lab.service.kill(1)


def test_secrets_are_masked_in_configurations(lab: Lab) -> None:
    storage = {"type": "s3", "bucket": "b", "access_key": "open", "secret_key": "sesame"}
    environment = {"environment_variables": ["DATABASE=sesame"]}
    lab.create(
        STEPS,
        paused=True,
        checkpoint_storage=storage,
        environment=environment,
        hyperparameters={"hf_token": "sesame", "url": "s3://me:sesame@host/data", "lr": 0.5},
    )
    shown = ["e config 1", "e describe 1 --json", "e describe 1", "e lt 1", "t describe 1"]
    for words in (*shown, "t describe 1 --json", "e list --json"):
        assert "sesame" not in _det(*words.split()), words
    whole = _det("e", "config", "1", "--show-secrets")
    assert whole.count("sesame") == 1 + 3 + 2  # the variable stands there for three devices
    assert load(whole).effective == lab.experiment(1).config
    lab.service.kill(1)


def test_lists_come_in_pages(lab: Lab) -> None:
    for _ in range(3):
        lab.create(STEPS, paused=True)

    def ids(*words: str) -> list[int]:
        return [row["id"] for row in json.loads(_det("e", "list", "--json", *words))]

    assert ids() == [3, 2, 1]
    assert ids("--limit", "2", "--pages", "1") == [3, 2]
    assert ids("--limit", "1", "--offset", "1", "--pages", "1") == [2]
    assert ids("--offset", "2") == [1]
    for number in (1, 2, 3):
        lab.service.kill(number)


def test_the_python_that_is_shown_loads_the_best_trial(lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "line"
    folder.mkdir()
    shutil.copy(Path(__file__).parents[1] / "docs" / "line.py", folder)
    (folder / "config.yaml").write_text(
        "name: line\nentrypoint: line:Line\nmax_restarts: 0\n"
        "searcher: {name: single, metric: error, max_length: {batches: 4}}\n"
    )
    told = _det("e", "create", str(folder / "config.yaml"), str(folder), "-f")
    lines = told[told.index("In Python:  ") :].splitlines()[:2]
    code = [line.removeprefix("In Python:").strip() for line in lines]
    script = "\n".join([*code, "print(trial.model.weight.shape)"])
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True
    )
    assert answer.stdout == "torch.Size([1, 1])\n"


def test_a_script_that_is_not_in_the_code_is_refused_at_once(lab: Lab, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("entrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\n")
    (tmp_path / "empty").mkdir()
    folder = str(tmp_path / "empty")
    told = _det("e", "create", str(config), folder, code=1)
    line = told.splitlines()[-1]
    documented("the script of the `entrypoint` is not in the folder", line, folder)
    assert "no folder was given" in _det("e", "create", str(config), code=1)
    (tmp_path / "empty" / "startup-hook.sh").write_text("touch train.py\n")
    assert "Created experiment 1" in _det("e", "create", "--paused", str(config), folder)


def test_a_metric_that_is_never_reported_is_told_at_the_first_validation(lab: Lab) -> None:
    number = lab.create(STEPS, searcher={"name": "single", "metric": "val_loss"})
    told = _det("e", "wait", str(number))
    documented("no validation has the `searcher.metric`", told.splitlines()[1])
    (run,) = lab.runs(number)
    (line,) = [line for line in lab.log(run).splitlines() if "val_loss" in line]
    told = line[line.index("The validation") :]
    documented("a validation without the `searcher.metric`, in the log", told)
    assert "at step 10 " in line
    (event,) = [e for e in lab.service.reader.events(experiment_id=number) if e.kind == "metric"]
    assert event.level == "warn"
    assert event.text.startswith("validations have no `val_loss`, the searcher.metric; reported")
