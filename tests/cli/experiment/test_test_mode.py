"""`det experiment create --test-mode`: one batch of any entrypoint, and nothing stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.cli.det import run_det
from tests.support.line_trial import LAUNCH, MODEL, TRAIN

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(600)]

CORE = """
from determined import core
with core.init() as ctx:
    for op in ctx.searcher.operations():
        for batch in range(op.length):
            ctx.train.report_training_metrics(batch + 1, {"loss": 1.0})
        ctx.train.report_validation_metrics(op.length, {"loss": 1.0})
        with ctx.checkpoint.store_path({"steps_completed": op.length}) as (path, _):
            (path / "state").write_text("x")
        op.report_completed(1.0)
"""
ENDLESS = """
import itertools, time
from determined import core
with core.init() as ctx:
    for step in itertools.count(1):
        ctx.train.report_validation_metrics(step, {"other": 1.0})
        time.sleep(0.05)
        if ctx.preempt.should_preempt():
            break
"""


class Bench:
    """A folder with code, a place for temporary files, and a home that must stay as it is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code = folder / "code"
        self.temporary = folder / "tmp"
        self.home = folder / "home"
        self.storage = folder / "storage"
        for made in (self.code, self.temporary):
            made.mkdir()

    def command(self, entrypoint: str, script: str, **config: Any) -> list[str]:
        (self.code / "script.py").write_text(script)
        values = {
            "entrypoint": entrypoint,
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 5000}},
            "checkpoint_storage": {"type": "shared_fs", "host_path": str(self.storage)},
            "resources": {"slots_per_trial": 1},
            **config,
        }
        (self.folder / "config.yaml").write_text(yaml.safe_dump(values))
        return ["e", "create", "-t", str(self.folder / "config.yaml"), str(self.code)]

    def environment(self) -> dict[str, str]:
        return {"DET_HOME": str(self.home), "TMPDIR": str(self.temporary), "DET_SLOTS": "2"}

    def run(self, entrypoint: str, script: str, **config: Any) -> subprocess.CompletedProcess[str]:
        command = self.command(entrypoint, script, **config)
        return run_det(*command, environment=self.environment())

    def leftovers(self) -> list[str]:
        """Files that a test left, and processes that speak of its folder."""
        files = [path for path in self.temporary.rglob("*") if not path.is_dir()]
        files += [path for path in self.storage.rglob("*") if not path.is_dir()]
        found = [str(path) for path in [*files, *self.temporary.glob("determined-test-*")]]
        found += [str(self.home)] * self.home.exists()
        for process in psutil.process_iter(["pid", "cmdline"]):
            if str(self.temporary) in " ".join(process.info["cmdline"] or ()):
                found.append(str(process))
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    deadline = time.monotonic() + 30
    while made.leftovers() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert made.leftovers() == []


def test_a_trial_class_is_tried_on_one_batch(bench: Bench) -> None:
    hparams = {"lr": {"type": "log", "minval": -3, "maxval": -1}, "global_batch_size": 4}
    done = bench.run("script:Line", MODEL, hyperparameters=hparams)
    assert done.returncode == 0, done.stdout + done.stderr
    stages = ["scheduling", "training", "validation", "checkpointing"]
    assert [line.split()[0] for line in done.stdout.splitlines() if line.endswith(" ok")] == stages
    last = done.stdout.splitlines()[-1]
    assert last.startswith("The test passed: it trained for 1 batch, validated and saved in ")
    assert last.endswith("Nothing was kept.")


def test_a_script_with_fit_is_tried_on_one_batch_on_two_ranks(bench: Bench) -> None:
    (bench.code / "train.py").write_text(TRAIN.replace("Batch(6)", "Epoch(9999)"))
    hparams = {"lr": 0.1, "global_batch_size": 4}
    searcher = {"name": "adaptive_asha", "metric": "loss", "max_trials": 50}
    searcher |= {"max_time": 9999, "time_metric": "epochs"}
    done = bench.run(
        f"{LAUNCH} python3 train.py",
        MODEL,
        hyperparameters=hparams,
        searcher=searcher,
        resources={"slots_per_trial": 2},
        integrations={"on_end": f"touch {bench.storage}-called"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "it trained for 1 batch, validated and saved in " in done.stdout
    assert not Path(f"{bench.storage}-called").exists()


def test_a_core_script_gets_an_operation_of_one_batch(bench: Bench) -> None:
    done = bench.run("python3 script.py", CORE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "it trained for 1 batch, validated and saved in " in done.stdout


def test_a_loop_without_end_is_asked_to_stop_once_it_has_reported(bench: Bench) -> None:
    done = bench.run("python3 script.py", ENDLESS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "note: the validation metrics are `other`; searcher.metric is `loss`" in done.stderr
    assert "note: no training metrics were reported" in done.stderr
    assert "note: no checkpoint was saved" in done.stderr
    assert "The test passed: it validated in " in done.stdout


def test_a_script_that_fails_shows_its_log_and_fails_the_test(bench: Bench) -> None:
    done = bench.run("python3 script.py", "print('so far so good')\n1 / 0\n")
    assert done.returncode == 1
    assert "so far so good" in done.stdout
    assert "ZeroDivisionError" in done.stdout
    assert "det: the test failed: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failure_counts_though_a_restart_would_go_on(bench: Bench) -> None:
    script = CORE.replace("op.report_completed(1.0)", "raise OSError('after the save')")
    done = bench.run("python3 script.py", script, max_restarts=3)
    assert done.returncode == 1, done.stdout
    assert "OSError: after the save" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_test_and_all_that_runs(bench: Bench, number: int) -> None:
    command = bench.command("python3 script.py", "import time\ntime.sleep(600)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "determined.cli", *command],
        env={**os.environ, **bench.environment()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list(bench.temporary.rglob("keeper.json")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    _, told = process.communicate(timeout=90)
    assert (process.returncode, told.splitlines()[-1]) == (
        3,
        "det: interrupted: the test was stopped, and nothing was kept",
    )


def test_a_wrong_configuration_starts_nothing(bench: Bench) -> None:
    done = bench.run("python3 script.py", "", max_restarts=-1)
    assert done.returncode == 1
    assert "max_restarts: expected an integer >= 0" in done.stderr


def test_a_trial_class_can_be_tried_in_this_process(bench: Bench) -> None:
    hparams = {"lr": 0.1, "global_batch_size": 4}
    command = bench.command("script:Line", MODEL, hyperparameters=hparams)
    done = run_det(*command, "--local", environment=bench.environment())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == (
        "The test passed: script:Line trained, validated and saved on one batch. Nothing was kept."
    )
    told = run_det(*bench.command("python3 a.py", ""), "--local", environment=bench.environment())
    assert told.returncode == 1
    assert "--local needs an entrypoint `module:Class`" in told.stderr
    assert run_det("e", "create", "--local", "c.yaml").returncode == 2
    assert run_det("e", "create", "-t", "--paused", "c.yaml").returncode == 2
