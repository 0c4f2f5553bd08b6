"""The client works wherever Python runs: threads, forks, other processes, trials, notebooks."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from determined.experimental.client import Determined, ExperimentState
from tests.experimental.searched import LEARNS, Searched, code_folder, searched
from tests.support.lab import Lab, lab
from tests.support.terminal import run_in_terminal

__all__ = ["lab", "searched"]
pytestmark = pytest.mark.multiprocess

_INSIDE = """
import determined as det
from determined import core
from determined.experimental import client

with core.init() as ctx:
    info = det.get_cluster_info()
    me = client.get_trial(info.trial.trial_id)
    experiment = me.get_experiment()
    experiment.add_label("seen from inside")
    print("I am", me.id, me.state.name, me.hparams, flush=True)
    child = client.create_experiment(
        {**experiment.config, "name": "child", "entrypoint": "python3 -c 'print(1)'"},
        parent_id=experiment.id,
    )
    print("made", child.id, flush=True)
    ctx.train.report_validation_metrics(1, {"loss": 1.0})
"""


def test_many_threads_share_one_client(searched: Searched) -> None:
    det, trials = Determined(home=searched.lab.home.path), [1, 2, 3] * 8
    together = threading.Barrier(8)

    def look(trial_id: int) -> tuple[int, int]:
        together.wait(60)
        trial = det.get_trial(trial_id)
        det.create_model(f"model-{threading.get_ident()}-{next(numbers)}")
        return trial.id, len(list(trial.iter_metrics("validation")))

    numbers = iter(range(10**6))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(look, trials))
    assert found == [(trial_id, 3) for trial_id in trials]
    assert len(det.list_models()) == 24


def test_threads_that_end_leave_no_files_open(searched: Searched) -> None:
    process = psutil.Process()
    counts = []
    for _ in range(30):
        thread = threading.Thread(target=searched.experiment.list_trials)
        thread.start()
        thread.join(60)
        counts.append(process.num_fds())
    assert counts[-1] <= counts[5]


def test_a_terminal_shows_a_bar(searched: Searched) -> None:
    script = """
    from determined.experimental import client
    print(client.get_experiment(1).wait().name)
    """
    shown = run_in_terminal(script, DET_HOME=str(searched.lab.home.path))
    bar = f"[{'#' * 30}] experiment 1 COMPLETED 100.0%  3 trials  best loss 0.266667 (trial "
    assert bar in shown
    assert shown.rstrip().endswith("COMPLETED")


def test_a_fork_has_a_connection_of_its_own(searched: Searched) -> None:
    searched.det.list_experiments()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_count_trials, args=(searched.experiment, queue))
    process.start()
    assert queue.get(timeout=90) == (3, "Experiment")
    process.join(60)
    assert process.exitcode == 0
    assert len(searched.experiment.list_trials()) == 3


def _count_trials(experiment: object, queue: object) -> None:
    found = experiment.list_trials()  # type: ignore[attr-defined]
    experiment.set_notes("from a fork")  # type: ignore[attr-defined]
    queue.put((len(found), type(experiment).__name__))  # type: ignore[attr-defined]


def test_another_process_follows_what_this_one_created(lab: Lab) -> None:
    det = Determined(home=lab.home.path)
    config = {
        "name": "followed",
        "entrypoint": "python3 train.py",
        "hyperparameters": {"lr": 0.1},
        "searcher": {"name": "single", "metric": "loss"},
    }
    experiment = det.create_experiment(config, code_folder(lab.folder / "code", LEARNS))
    script = f"""
from determined.experimental import client
experiment = client.get_experiment({experiment.id})
for line in experiment.await_first_trial().iter_logs(follow=True):
    print(line, end="")
print(experiment.wait(timeout=90).name)
"""
    answer = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=100,
        env={**_environment(), "DET_HOME": str(lab.home.path)},
    )
    assert answer.returncode == 0, answer.stderr
    assert "WARNING: <b>ends</b>" in answer.stdout
    assert answer.stdout.endswith("COMPLETED\n")
    assert answer.stderr == ""  # no bar where nobody can see it
    assert experiment.wait() is ExperimentState.COMPLETED


def test_waiting_outlives_the_supervisor(lab: Lab) -> None:
    script = """
import time
from determined import core
with core.init() as ctx:
    time.sleep(1.5)
    ctx.train.report_validation_metrics(1, {"loss": 1.0})
"""
    lab.create(script)
    experiment = Determined(home=lab.home.path).get_experiment(1)
    experiment.await_first_trial()
    lab.kill_supervisor()
    assert experiment.wait(timeout=90) is ExperimentState.COMPLETED
    assert experiment.best_validation == 1.0


def test_a_trial_finds_itself_and_creates_experiments(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DET_HOME", raising=False)
    monkeypatch.delenv("DET_STORAGE", raising=False)
    experiment_id = lab.create(_INSIDE, hyperparameters={"lr": 0.1})
    assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
    det = Determined(home=lab.home.path)
    parent, child = det.list_experiments()
    assert parent.labels == {"seen from inside"}
    assert (child.name, child.parent_id) == ("child", experiment_id)
    assert child.wait(timeout=90) is ExperimentState.COMPLETED, lab.account()
    log = "".join(parent.list_trials()[0].iter_logs())
    assert "I am 1 ACTIVE {'lr': 0.1}" in log
    assert "made 2" in log


def _environment() -> dict[str, str]:
    import os

    return {k: v for k, v in os.environ.items() if k not in ("DET_HOME", "DET_STORAGE")}


def test_importing_the_client_costs_little(tmp_path: Path) -> None:
    script = """
import sys
import determined.experimental.client
heavy = ("torch", "numpy", "pandas", "plotly", "IPython", "pydantic", "yaml", "sqlite3", "rich")
print([name for name in heavy if name in sys.modules])
"""
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert answer.stdout == "[]\n"
