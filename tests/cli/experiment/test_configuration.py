"""`det experiment validate` and `schema`."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from determined.config import Completion, load
from determined.platform.machines.slurm import Partition, SlurmTable
from tests.cli.det import run_det, told_by
from tests.cli.scripts import STEPS
from tests.support.lab import Lab

_GOOD = "name: x\nentrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\n"


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good file.yaml"
    path.write_text(_GOOD)
    return path


def test_good_file_shows_its_effective_form(good: Path) -> None:
    answer = run_det("experiment", "validate", str(good), "--config", "max_restarts=2")
    assert answer.returncode == 0
    assert answer.stderr == ""
    effective = load(answer.stdout).effective
    assert effective["max_restarts"] == 2
    assert effective["reproducibility"]["experiment_seed"] > 1_600_000_000
    assert effective["checkpoint_storage"]["type"] == "shared_fs"


def test_home_and_storage_decide_where_checkpoints_go(good: Path, tmp_path: Path) -> None:
    for environment, expected in (
        ({"DET_STORAGE": "", "DET_HOME": str(tmp_path / "h")}, tmp_path / "h" / "checkpoints"),
        ({"DET_STORAGE": str(tmp_path / "s")}, tmp_path / "s"),
    ):
        answer = run_det("e", "validate", "--json", str(good), environment=environment)
        storage = json.loads(answer.stdout)["effective"]["checkpoint_storage"]
        assert storage["host_path"] == str(expected)


_SEARCH = {"searcher": {"name": "random", "metric": "loss", "max_trials": 30, "sampler": "tpe"}}


@pytest.mark.parametrize(
    ("changes", "slots", "at_once"),
    [
        ([], 3, 3),
        (["resources.slots_per_trial=2"], 5, 2),
        (["resources.slots_per_trial=4"], 2, 1),
        (["searcher.max_concurrent_trials=7"], 3, 7),
        (["searcher.sampler=random"], 3, 16),
    ],
)
def test_a_model_runs_as_many_trials_at_once_as_there_are_slots(
    changes: list[str], slots: int, at_once: int
) -> None:
    config = {"entrypoint": "python3 a.py", **_SEARCH}
    storage = {"type": "shared_fs", "host_path": "/x"}
    completion = Completion(count_slots=lambda: slots, checkpoint_storage=storage)
    loaded = load(config, overrides=changes, completion=completion)
    assert loaded.effective["searcher"]["max_concurrent_trials"] == at_once


def test_a_sampler_whose_package_is_missing_is_told(good: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nold = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'optuna' else old(name, *a)\n"
    )
    words = ["e", "validate", str(good), "--config", "searcher.sampler=tpe"]
    words += ["--config", "searcher.name=random", "--config", "searcher.max_trials=30"]
    told = run_det(*words, environment={"PYTHONPATH": str(tmp_path)})
    assert told.returncode == 1
    assert "searcher.sampler: `tpe` needs optuna. Install it: `pip install" in told.stderr
    assert run_det(*words).returncode == 0


def test_bad_file_shows_all_problems_and_fails(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("nam: x\nsearcher: {name: random, metric: loss, max_trials: ten}\n")
    answer = run_det("e", "validate", "c.yaml", cwd=tmp_path)
    assert answer.returncode == 1
    assert answer.stdout == ""
    assert answer.stderr.splitlines() == [
        "c.yaml:1:1: nam: unknown key (did you mean name?)",
        "    1 | nam: x",
        "      | ^",
        "c.yaml:2:52: searcher.max_trials: expected an integer >= 1, got 'ten'",
        "    2 | searcher: {name: random, metric: loss, max_trials: ten}",
        "      |                                                    ^",
        "c.yaml: entrypoint: missing; expected a command (for example `entrypoint: python3 "
        "train.py`)",
    ]


def test_problems_as_json_tell_the_same(tmp_path: Path) -> None:
    answer = run_det("e", "validate", "-", "--json", stdin="nam: x\n")
    told = json.loads(answer.stdout)
    assert answer.returncode == 1
    assert told["valid"] is False
    assert told["effective"] is None
    assert told["problems"][0] == {
        "severity": "error",
        "source": "standard input",
        "line": 1,
        "column": 1,
        "path": "nam",
        "message": "unknown key",
        "hint": "did you mean name?",
    }


def test_notes_go_to_stderr_and_secrets_stay_hidden(good: Path) -> None:
    with good.open("a") as file:
        file.write("scheduling_unit: 5\ndata: {secrets: {token: t0ps3cret}}\n")
    answer = run_det("e", "validate", str(good))
    assert answer.returncode == 0
    assert "note: scheduling_unit: no effect with a script" in answer.stderr
    assert "t0ps3cret" not in answer.stdout + answer.stderr
    assert "********" in answer.stdout


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_unreadable_file_is_told_in_one_line(name: str, tmp_path: Path) -> None:
    answer = run_det("e", "validate", name, cwd=tmp_path)
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"{name}: cannot be read: ")
    assert len(answer.stderr.splitlines()) == 1


def test_schema_is_printed_for_editors() -> None:
    answer = run_det("experiment", "schema")
    assert answer.returncode == 0
    Draft7Validator.check_schema(json.loads(answer.stdout))


def test_a_file_is_checked_for_the_cluster_of_the_home(good: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    environment = {"DET_HOME": str(home)}
    settings = home / "platform.yaml"

    def validate(*changes: str) -> tuple[int, str]:
        words = [word for change in changes for word in ("--config", change)]
        answer = run_det("e", "validate", str(good), *words, environment=environment)
        return answer.returncode, answer.stderr

    settings.write_text("cluster: {type: slurm, slots_per_node: 4}\n")
    SlurmTable("slurm", partitions=(Partition("main", True, 2, cpus=4),)).save(home / "slurm.json")
    assert validate("resources.slots_per_trial=8", "resources.resource_pool=main") == (0, "")
    code, said = validate("resources.slots_per_trial=6")
    assert code == 1
    assert "resources.slots_per_trial" in said
    assert "Use a multiple of 4" in said
    code, said = validate("resources.resource_pool=gold")
    assert code == 0
    assert "Slurm has no partition 'gold', only main: the default one will be used" in said
    code, said = validate('slurm.sbatch_args=["--nodes=4"]')
    assert code == 1
    assert "--nodes cannot be given" in said
    settings.write_text("cluster: {type: slurm, time_limit: soon}\n")
    code, said = validate()
    assert code == 1
    assert "time_limit" in said
    assert "12:00:00" in said


@pytest.mark.multiprocess
@pytest.mark.slow
def test_the_code_comes_back_as_an_archive(lab: Lab, tmp_path: Path) -> None:
    lab.create(STEPS, paused=True)
    told_by("e", "download-model-def", "1", "--output-dir", str(tmp_path / "new"))
    with tarfile.open(tmp_path / "new" / "experiment_1_model_def.tgz") as archive:
        file = archive.extractfile("script.py")
        assert file is not None
        assert file.read().decode() == STEPS
    lab.service.kill(1)


@pytest.mark.multiprocess
@pytest.mark.slow
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
        assert "sesame" not in told_by(*words.split()), words
    whole = told_by("e", "config", "1", "--show-secrets")
    assert whole.count("sesame") == 1 + 3 + 2  # the variable stands there for three devices
    assert load(whole).effective == lab.experiment(1).config
    lab.service.kill(1)
