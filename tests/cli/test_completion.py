"""Shells complete commands, options, ids and names: bash itself, the others by their protocol."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined import journal
from determined.store import NewExperiment, NewTrial, Writer
from tests.cli.det import run_det

_UUID = "0b2f4f0e-5a0c-4e86-8a5c-6f7c4d1f9a11"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Records of twelve experiments, one trial, one checkpoint and a project."""
    folder = tmp_path_factory.mktemp("records") / "home"
    writer = Writer(folder)
    with writer.transaction() as transaction:
        space = transaction.registry.create_workspace("our space", "me")
        transaction.registry.create_project(space.id, "vision", "me")
        for number in range(12):
            transaction.create_experiment(NewExperiment({}, "me", f"number {number + 1}"))
        trial = transaction.create_trial(NewTrial(3, "request", 1, {}))
        run = transaction.create_run(trial.id, folder="x", slots=[], steps_completed=0)
        saved = journal.Checkpoint(_UUID, 5, {"state": 1}, {})
        transaction.read_journal("j", trial.id, run.run_id, [saved], 1)
        for number in range(1, 13):
            transaction.update_experiment(number, state="COMPLETED")
        transaction.update_experiment(2, state="PAUSED")
        transaction.registry.create_model("spirals", "me")
    writer.close()
    yield folder
    assert not (folder / "supervisor.log").exists()


def _det_folder(tmp_path: Path) -> Path:
    """A folder with a `det` for PATH, as an installation has it."""
    script = tmp_path / "bin" / "det"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m determined.cli "$@"\n')
    script.chmod(0o755)
    return script.parent


def _in_bash(home: Path, folder: Path, *words: str) -> list[str]:
    """Ask a real bash what the last of the words may become."""
    program = f"""
eval "$(det completion bash)"
COMP_WORDS=({" ".join(f"'{word}'" for word in words)})
COMP_CWORD={len(words) - 1}
$(complete -p det | sed 's/.*-F \\([^ ]*\\).*/\\1/') det
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    environment = {**os.environ, "DET_HOME": str(home)}
    environment["PATH"] = f"{folder}{os.pathsep}{environment['PATH']}"
    answer = subprocess.run(
        ["bash", "--norc", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr == ""
    return [line for line in answer.stdout.split("\n") if line]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_commands_options_ids_and_names(home: Path, tmp_path: Path) -> None:
    folder = _det_folder(tmp_path)
    for words, found in (
        (("det", "exp"), ["experiment", "export"]),
        (("det", "e", "li"), ["list", "list-trials", "list-checkpoints"]),
        (("det", "e", "compare", "--to"), ["--top"]),
        (("det", "e", "describe", "1"), ["12", "11", "10", "1"]),
        (("det", "e", "describe", "3,1"), ["3,12", "3,11", "3,10", "3,1"]),
        (("det", "t", "logs", ""), ["1"]),
        (("det", "c", "verify", "0"), [_UUID]),
        (("det", "c", "verify", f"x,{_UUID[:4]}"), [f"x,{_UUID}"]),
        (("det", "e", "list", "--state", "DELET"), ["deleting", "delete_failed"]),
        (("det", "e", "activate", ""), ["2"]),
        (("det", "e", "pause", ""), []),
        (("det", "e", "kill", ""), ["2"]),
        (("det", "e", "archive", "1"), ["12", "11", "10", "1"]),
        (("det", "m", "describe", "s"), ["spirals"]),
        (("det", "m", "register-version", "spirals", "0"), [_UUID]),
        (("det", "no-such", "x"), []),
        (("det", "sh"), []),  # there is no `shell` here
    ):
        assert _in_bash(home, folder, *words) == found, words


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_ids_with_what_they_mean(shell: str, home: Path) -> None:
    answer = run_det(
        environment={
            "DET_HOME": str(home),
            "_DET_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": "det e describe 1",
            "COMP_CWORD": "1" if shell == "fish" else "3",
        }
    )
    assert answer.returncode == 0
    assert "number 12 (COMPLETED)" in answer.stdout
    assert answer.stderr == ""


def test_names_of_projects_depend_on_the_workspace(home: Path) -> None:
    for line, found in (
        ("det e move 1 our", "our space"),
        ("det e move 1 'our space' v", "vision"),
    ):
        environment = {"DET_HOME": str(home), "_DET_COMPLETE": "fish_complete"}
        environment |= {"COMP_WORDS": line, "COMP_CWORD": line.rpartition(" ")[2]}
        assert found in run_det(environment=environment).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(shell: str, home: Path) -> None:
    answer = run_det("completion", shell)
    assert answer.returncode == 0
    assert f"_DET_COMPLETE={shell}_complete" in answer.stdout
    if interpreter := shutil.which(shell):
        subprocess.run([interpreter, "-n"], input=answer.stdout, text=True, check=True)
    assert run_det("completion", "tcsh").returncode == 2


def test_nothing_is_suggested_where_nothing_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_text("no database")
    for home in (tmp_path / "nowhere" / "home", tmp_path):
        environment = {"DET_HOME": str(home), "_DET_COMPLETE": "bash_complete"}
        environment |= {"COMP_WORDS": "det e describe ", "COMP_CWORD": "3"}
        answer = run_det(environment=environment)
        assert (answer.returncode, answer.stdout.strip(), answer.stderr) == (0, "", "")
