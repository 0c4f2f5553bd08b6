"""Runs of a script: told apart, found again, named, listed, trained by one process at a time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from determined import pytorch
from determined.errors import RunInUseError
from determined.pytorch._identity.identity import (
    Identity,
    identity_in_0_2,
    identity_of_program,
    run_id_before_0_2,
)
from determined.storage import SharedFSStorageManager
from determined.storage._runs import list_runs
from determined.storage.local.run_lock import live_holder, lock_run
from tests.support.messages import documented
from tests.support.terminal import Ended, file_script, run_in_pipes
from tests.support.trials import LineTrial
from tests.support.workers import run_workers

SCRIPT = """
    import argparse, os, sys, time
    from determined import pytorch
    from tests.support.trials import LineTrial

    parser = argparse.ArgumentParser()
    parser.add_argument("lr", type=float, nargs="?", default=0.1)
    parser.add_argument("seed", type=int, nargs="?")
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()

    class Net(LineTrial):
        learning_rate = options.lr

        def train_batch(self, batch, epoch_idx, batch_idx):
            while os.path.exists("hold"):
                print("training", flush=True)
                time.sleep(0.05)
            return super().train_batch(batch, epoch_idx, batch_idx)

    with pytorch.init(seed=options.seed, checkpoint_storage="storage") as context:
        trial = Net(context)
        latest = os.environ.get("LATEST", "latest") or None
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Epoch(options.epochs), latest_checkpoint=latest, progress=False
        )
        print("TRAINED", len([entry for entry in trial.log if entry[0] == "train_batch"]))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "work" / "train.py"
    path.write_text(textwrap.dedent(SCRIPT))
    return path


def run(script: Path, *arguments: str, **environment: str) -> Ended:
    words = {"DET_PROGRESS": "off", **environment}
    ended = run_in_pipes(file_script(script, *arguments), deadline_seconds=60, **words)
    assert ended.exit_code == 0, ended.errors
    return ended


def trained(ended: Ended) -> int:
    return int(ended.output.split("TRAINED")[1])


def runs_in(script: Path) -> list[str]:
    return [run.run_id for run in list_runs(SharedFSStorageManager(script.parent / "storage"))]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def line(text: str, words: str) -> str:
    return next(found for found in text.splitlines() if words in found)


@pytest.mark.multiprocess
def test_arguments_and_seeds_make_other_runs_and_a_length_does_not(script: Path) -> None:
    first = [run(script, *words.split()) for words in ("0.1 1", "0.1 2", "0.001 1")]
    assert [trained(ended) for ended in first] == [3, 3, 3]
    assert len(set(runs_in(script))) == 3
    longer = run(script, "0.1", "1", "--epochs", "3")
    assert trained(longer) == 6
    assert len(set(runs_in(script))) == 3

    said = line(first[1].errors, "Other runs")
    (mine,) = re.findall(r"^Run (\S+)", said)
    (other,) = re.findall(r'run_id="(\S+)"', said)
    assert mine.startswith("train-0.1-2-seed-2-")
    assert other.startswith("train-0.1-1-seed-1-")
    storage = script.parent / "storage"
    documented("`latest`, but only other runs of the script are stored", said, mine, other, storage)


@pytest.mark.multiprocess
def test_a_run_at_its_length_says_so(script: Path) -> None:
    run(script)
    again = run(script)
    assert trained(again) == 0
    said = line(again.errors, "already reached max_length")
    documented("`latest` of a run that is as long as `max_length`", said, *runs_in(script))


@pytest.mark.multiprocess
def test_curves_of_a_resumed_run_are_in_one_directory(script: Path) -> None:
    run(script, "--epochs", "1")
    run(script, "--epochs", "2")
    curves = script.parent / "storage" / "tensorboard"
    (name,) = names_in(curves)
    assert [name] == runs_in(script)
    assert len(list((curves / name).glob("*tfevents*"))) == 2
    run(script, LATEST="")  # anew: its curves must not cross the others
    assert names_in(curves) == [name, f"{name}.2"]
    run(script, "--epochs", "4")
    assert names_in(curves) == [name, f"{name}.2"]
    assert len(list((curves / f"{name}.2").glob("*tfevents*"))) == 2


def wait_for_training(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "training", process.communicate()


def start(script: Path, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, str(script), *arguments],
        cwd=script.parent,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "DET_PROGRESS": "off"},
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for_training(process)
    return process


@pytest.mark.multiprocess
def test_a_second_process_of_a_run_is_told_of_the_first(script: Path) -> None:
    hold = script.parent / "hold"
    hold.touch()
    first = start(script)
    try:
        second = run_in_pipes(file_script(script), DET_PROGRESS="off")
        assert second.exit_code != 0
        said = line(second.errors, "errors.RunInUseError: ").partition(": ")[2]
        assert f"process {first.pid} on {os.uname().nodename}" in said
        (name,) = re.findall(r"The run (\S+)", said)
        (since,) = re.findall(r"since (\S+)\. ", said)
        documented(
            "the same run is started twice", said, name, first.pid, os.uname().nodename, since
        )
    finally:
        first.kill()
        first.communicate()
    hold.unlink()
    assert trained(run(script)) == 3  # what was killed holds nothing


@pytest.mark.multiprocess
def test_a_second_fresh_start_takes_another_name(script: Path) -> None:
    hold = script.parent / "hold"
    hold.touch()
    first = start(script)
    try:
        os.kill(first.pid, signal.SIGSTOP)
        hold.unlink()
        second = run(script, LATEST="")
    finally:
        first.kill()
        first.communicate()
    (name,) = runs_in(script)
    assert name.endswith("-Net-2")
    assert f"starts from scratch as {name}" in second.errors


def test_a_lock_is_free_when_its_process_is_killed_though_children_live(tmp_path: Path) -> None:
    """A pid in a file would mislead: it may be another process's by now."""
    code = f"""
import multiprocessing, pathlib, time
from determined.storage.local.run_lock import lock_run
with lock_run(pathlib.Path({str(tmp_path)!r}), "here", "run"):
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    child.start()
    print(child.pid, flush=True)
    time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        holder = live_holder(tmp_path, "here", "run")
        assert holder is not None
        assert holder["pid"] == process.pid
        with (
            pytest.raises(RunInUseError, match=f"process {process.pid}"),
            lock_run(tmp_path, "here", "run"),
        ):
            pass
        process.kill()
        process.wait()
        with lock_run(tmp_path, "here", "run"):
            assert live_holder(tmp_path, "here", "run") is not None
        assert live_holder(tmp_path, "here", "run") is None
    finally:
        process.kill()
        os.kill(child, signal.SIGKILL)
        process.communicate()


def _train_on_rank(storage: str) -> str:
    with pytorch.init(checkpoint_storage=storage, seed=1) as context:
        trainer = pytorch.Trainer(LineTrial(context), context)
        for length in (2, 4):
            trainer.fit(max_length=pytorch.Batch(length), latest_checkpoint="latest")
        return str(context._run_id)


@pytest.mark.multiprocess
def test_ranks_of_one_job_share_their_run(tmp_path: Path) -> None:
    names = run_workers(2, _train_on_rank, str(tmp_path / "storage"))
    assert len(set(names)) == 1
    curves = tmp_path / "storage" / "tensorboard"
    assert names_in(curves) == [names[0]]


def _train(length: int = 3, **init: Any) -> list[int]:
    """Return the batches that were trained."""
    with pytorch.init(**{"seed": 5, **init}) as context:
        trial = LineTrial(context)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(length), latest_checkpoint="latest"
        )
    return [entry[2] for entry in trial.log if entry[0] == "train_batch"]


def _former(seed: int, patch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    """Save a checkpoint under the name that earlier releases gave."""
    script = str(Path("train.py").resolve())
    patch.setattr(sys, "argv", [script, *arguments])
    patch.setattr(sys.modules["__main__"], "__file__", script, raising=False)
    name = run_id_before_0_2(Identity(script), None, LineTrial)
    _train(run_id=name, seed=seed)


def test_checkpoints_of_the_former_identity_are_continued(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _former(5, monkeypatch, [])
    assert _train(5) == [3, 4]
    assert "from an earlier release" in caplog.text
    assert _train(6) == [5]


@pytest.mark.parametrize(("seed", "arguments"), [(6, []), (5, ["0.1"])])
def test_a_doubtful_former_identity_is_named(
    seed: int,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _former(seed, monkeypatch, arguments)
    assert _train(5) == [0, 1, 2, 3, 4]
    said = line(caplog.text, "earlier release saved").partition("py:")[2].partition(" ")[2]
    (name,) = re.findall(r'run_id="(\w+)"', said)
    storage = os.environ["DET_STORAGE"]
    documented("`latest`, but checkpoints of an earlier release may be meant", said, name, storage)


def _named_by_0_2(patch: pytest.MonkeyPatch, arguments: list[str], hparams: dict[str, Any]) -> None:
    """Save a checkpoint under the name that release 0.2 gave."""
    script = str(Path("train.py").resolve())
    patch.setattr(sys, "argv", [script, *arguments])
    patch.setattr(sys.modules["__main__"], "__file__", script, raising=False)
    name = identity_in_0_2(identity_of_program(5, hparams)).run_id(LineTrial)
    with patch.context() as then:
        then.setattr("determined.pytorch._identity.identity._NAMING", None)
        _train(run_id=name, hparams=hparams)


def test_a_run_that_0_2_named_is_continued_where_it_is_certain(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _named_by_0_2(monkeypatch, ["--lr", "1"], {"length": 64})
    assert _train(5, hparams={"length": 128}) == [0, 1, 2, 3, 4]
    assert "regardless of some of its arguments" in caplog.text
    assert _train(5, hparams={"length": 64}) == [3, 4]
    assert "from an earlier release" in caplog.text


def test_a_run_that_0_2_named_regardless_of_an_argument_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _named_by_0_2(monkeypatch, ["--length", "64"], {})
    assert _train(5) == [0, 1, 2, 3, 4]
    assert "regardless of some of its arguments" in caplog.text


def test_a_run_of_another_length_is_a_run_of_its_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for length in ("64", "128"):
        script = str(Path("train.py").resolve())
        monkeypatch.setattr(sys, "argv", [script, "--length", length])
        monkeypatch.setattr(sys.modules["__main__"], "__file__", script, raising=False)
        assert _train(3) == [0, 1, 2]
    monkeypatch.setattr(sys, "argv", [script])  # the name that 0.2 gave both of them
    assert _train(3) == [0, 1, 2]
    assert "earlier release" not in caplog.text


def test_the_command_lists_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from determined.pytorch.runs import main

    storage = str(tmp_path / "listed")
    with pytest.raises(SystemExit, match="2"):
        main([storage])
    assert f"{storage} does not exist" in capsys.readouterr().err
    Path(storage).mkdir()
    assert main([storage]) == 0
    assert "There are no runs in" in capsys.readouterr().out
    _train(3, run_id="one", checkpoint_storage=storage)
    _train(5, run_id="two", checkpoint_storage=storage)
    with lock_run(Path(storage), storage, "one"):
        assert main([storage]) == 0
    header, two, one = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["run", "batches", "checkpoints"]
    assert two.split()[:3] == ["two", "5", "1"]
    assert one.split()[:3] == ["one", "3", "1"]
    assert f"training (pid {os.getpid()} on" in one
    assert "training" not in two
    with pytest.raises(SystemExit, match="2"):
        main(["ftp://host/x"])
    assert "unknown scheme" in capsys.readouterr().err


def test_checkpoints_say_what_run_they_are_of(tmp_path: Path) -> None:
    _train(3, checkpoint_storage=tmp_path / "said", hparams={"lr": 0.1, "epochs": 3})
    (found,) = SharedFSStorageManager(tmp_path / "said").list()
    facts = found.metadata["run"]
    assert (facts["trial"], facts["seed"]) == ("LineTrial", 5)
    assert json.loads(facts["hparams"]) == {"lr": 0.1, "epochs": 3}
    assert time.strptime(found.manifest.created[:10], "%Y-%m-%d")
