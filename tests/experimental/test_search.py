"""`client.search`: functions and trial classes of scripts and notebooks become experiments."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from determined.experimental.client import Determined, ExperimentState
from tests.support.lab import Lab

pytestmark = [pytest.mark.slow, pytest.mark.multiprocess, pytest.mark.timeout(300)]

# Neither a guard around the search nor an installed helper is needed.
_SCRIPT = """
from determined.experimental import client
from helper import square

OFFSET = 0.3

def objective(hparams):
    print("called with", hparams["x"])
    return square(hparams["x"] - OFFSET)

space = {"x": {"type": "double", "minval": -1, "maxval": 1}}
found = client.search(objective, space, metric="loss", max_trials=3)
print(found.id, found.best_trial.hparams["x"], found.best_validation)
"""
_TRIAL = """
import torch
from determined import pytorch
from determined.experimental import client

class Line(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(1, 1))
        rate = context.get_hparam("rate")
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=rate))

    def data(self):
        x = torch.linspace(-1, 1, 16).unsqueeze(1)
        return pytorch.DataLoader(torch.utils.data.TensorDataset(x, 2 * x), batch_size=4)

    build_training_data_loader = build_validation_data_loader = data

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = self.loss(batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"validation_loss": self.loss(batch)}

    def loss(self, batch):
        return torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])

space = {"rate": {"type": "categorical", "vals": [0.1]}}
found = client.search(Line, space, "validation_loss", max_trials=1, max_length={"epochs": 2})
print(found.state.name, found.best_validation < 2, len(found.list_checkpoints()))
"""


@pytest.fixture(autouse=True)
def _home(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(lab.home.path))
    monkeypatch.setenv("DET_SLOTS", "2")
    monkeypatch.delenv("DET_STORAGE", raising=False)


def _script(folder: Path, text: str) -> list[str]:
    (folder / "script.py").write_text(text)
    return [sys.executable, "-W", "ignore", str(folder / "script.py")]


def _run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    command = _script(folder, text)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=250)


def test_a_script_searches_and_everything_is_stored(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def square(x):\n    return x * x\n")
    ran = _run(tmp_path, _SCRIPT)
    assert ran.returncode == 0, ran.stderr + lab.account()
    number, x, loss = ran.stdout.split()
    assert float(loss) == (float(x) - 0.3) ** 2
    assert f"client.get_experiment({number})" in ran.stderr

    found = Determined(home=lab.home.path).get_experiment(int(number))
    trials = found.list_trials()
    assert found.name == "objective"
    assert [trial.best_validation for trial in trials] == [
        (trial.hparams["x"] - 0.3) ** 2 for trial in trials
    ]
    assert all(any("called with" in line for line in trial.iter_logs()) for trial in trials)
    (code,) = lab.home.snapshots.glob("*/tree")
    assert {"det_target.pkl", "det_target.py", "helper.py", "script.py"} <= {
        path.name for path in code.iterdir()
    }
    assert (code / "det_target.py").read_text().startswith("def objective(hparams):")


def test_a_search_outlives_its_script(lab: Lab, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    text = f"""
import os, time
from determined.experimental import client

def waits(hparams):
    while not os.path.exists({str(gate)!r}):
        time.sleep(0.05)
    return {{"loss": 1.0, "width": hparams["n"]}}

client.search(waits, {{"n": 3}}, "loss", max_trials=2)
"""
    process = subprocess.Popen(_script(tmp_path, text), cwd=tmp_path, stderr=subprocess.DEVNULL)
    client = Determined(home=lab.home.path)
    try:
        lab.until(client.list_experiments)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(30)
    gate.touch()
    (found,) = client.list_experiments()
    assert found.wait(timeout=200, progress=False) is ExperimentState.COMPLETED
    assert [trial.best_validation for trial in found.iter_trials()] == [1.0, 1.0]


def test_errors_of_the_function_are_shown(lab: Lab, tmp_path: Path) -> None:
    text = """
from determined.experimental import client

def broken(hparams):
    return 1 / hparams["zero"]

try:
    client.search(broken, {"zero": 0}, "loss", max_trials=5)
except Exception as error:
    print(type(error).__name__, error)

def half(hparams):
    return None if hparams["x"] else 0.5

vals = {"type": "categorical", "vals": [0, 1]}
found = client.search(half, {"x": vals}, "loss", searcher={"name": "grid"})
print(found.best_validation, found.state.name)
"""
    ran = _run(tmp_path, text)
    assert ran.returncode == 0, ran.stderr + lab.account()
    assert ran.stdout.startswith("DeterminedError Experiment 1 has no result: ")
    assert " of 5 trials failed, the last one (trial " in ran.stdout  # 3 or more: two run at once
    assert 'return 1 / hparams["zero"]' in ran.stdout
    assert "ZeroDivisionError: division by zero" in ran.stdout
    assert ran.stdout.rstrip().endswith("0.5 COMPLETED")
    assert "1 of 2 trials failed" in ran.stderr
    assert "half must return 'loss' as a number, or a dict of metrics, got None" in ran.stderr


def test_a_function_reports_and_is_stopped_early(lab: Lab, tmp_path: Path) -> None:
    text = """
from determined.experimental import client

def trains(hparams, context):
    for epoch in range(1, 5):
        metrics = {"loss": hparams["x"] / epoch, "epochs": epoch}
        context.train.report_validation_metrics(epoch, metrics)
        if context.preempt.should_preempt():
            return

halving = {"name": "async_halving", "num_rungs": 2, "max_time": 4, "time_metric": "epochs"}
found = client.search(
    trains, {"x": {"type": "double", "minval": 1, "maxval": 2}}, "loss", 4,
    searcher=halving, config={"name": "halved", "resources": {"slots_per_trial": 1}},
)
print(found.name, found.num_trials)
"""
    ran = _run(tmp_path, text)
    assert ran.returncode == 0, ran.stderr + lab.account()
    assert ran.stdout == "halved 4\n"
    found = Determined(home=lab.home.path).get_experiment(1)
    assert {trial.steps_completed for trial in found.iter_trials()} <= {1, 2, 3, 4}
    assert any(trial.reason.startswith("stopped at ") for trial in found.iter_trials())


def test_a_trial_class_of_a_script_is_trained(lab: Lab, tmp_path: Path) -> None:
    ran = _run(tmp_path, _TRIAL)
    assert ran.returncode == 0, ran.stderr + lab.account()
    assert ran.stdout == "COMPLETED True 1\n"


_NOTEBOOK = """
import nbformat
from nbclient import NotebookClient

notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
NotebookClient(notebook, timeout=250, kernel_name="python3").execute()
nbformat.write(notebook, "done.ipynb")
"""
_CELLS = [
    "from determined.experimental import client\nfactor = 3",
    "def objective(hparams):\n    return factor * hparams['x'] ** 2",
    "found = client.search(objective, {'x': {'type': 'int', 'minval': 1, 'maxval': 4}}, 'loss', 2)",
    "found.best_validation == factor * found.best_trial.hparams['x'] ** 2",
]


def test_a_notebook_cell_is_searched(lab: Lab, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", f"CELLS = {_CELLS!r}\n{_NOTEBOOK}"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert ran.returncode == 0, ran.stderr[-3000:] + lab.account()
    cells: list[Any] = json.loads((tmp_path / "done.ipynb").read_text())["cells"]
    assert cells[3]["outputs"][0]["data"]["text/plain"] == ["True"]
    shown = json.dumps(cells[2]["outputs"])
    assert "client.get_experiment(1)" in shown
    assert "<progress value='1.0000'" in shown


def test_what_cannot_be_searched_is_refused(lab: Lab, tmp_path: Path) -> None:
    import threading

    client, lock = Determined(home=lab.home.path), threading.Lock()
    with pytest.raises(ValueError, match="must take one argument, the hyperparameters, or two"):
        client.search(lambda a, b, c: 0, {}, "loss", 1)
    with pytest.raises(ValueError, match="<lambda> uses something that cannot be sent"):
        client.search(lambda hparams: lock.locked(), {}, "loss", 1)
    with pytest.raises(ValueError, match="must be a function or a trial class, got 3"):
        client.search(3, {}, "loss", 1)  # type: ignore[arg-type]  # what is refused
    with pytest.raises(ValueError, match="subclass of determined.pytorch.PyTorchTrial"):
        client.search(dict, {}, "loss", 1)
    with pytest.raises(ValueError, match="`config` must not have 'entrypoint'"):
        client.search(lambda hparams: 0, {}, "loss", 1, config={"entrypoint": "true"})
