"""`det trial` and `det checkpoint` on real trials."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.det import det_on_a_terminal, run_det
from tests.cli.scripts import ENDLESS, STEPS
from tests.support.lab import Lab
from tests.support.messages import documented
from tests.support.saving import is_collected

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def _det(*words: str, code: int = 0) -> str:
    answer = run_det(*words)
    assert answer.returncode == code, answer.stderr
    assert "Traceback" not in answer.stderr
    return answer.stderr if code else answer.stdout


def test_a_trial_is_described_with_runs_and_decisions(lab: Lab) -> None:
    number = lab.create(
        STEPS,
        searcher={"name": "random", "metric": "loss", "max_trials": 1},
        hyperparameters={"lr": {"type": "double", "minval": 0.1, "maxval": 0.9}},
    )
    lab.wait(number)
    told = _det("t", "describe", "1")
    assert "Hyperparameters:\n  lr: 0." in told
    assert "Decisions of the search:\n" in told
    assert "a random sample" in told
    assert "| finished" in told
    data = json.loads(_det("t", "describe", "1", "--json"))
    assert data["summary_metrics"]["avg_metrics"]["zero"]["max"] == 0
    assert [run["exit_code"] for run in data["runs"]] == [0]
    kinds = [kind for step in data["workloads"] for kind in step]
    assert (kinds.count("training"), kinds.count("validation")) == (20, 2)
    assert kinds[-1] == "checkpoint"
    assert data["workloads"][-1]["checkpoint"]["state"] == "STATE_COMPLETED"
    assert data["totalBatchesProcessed"] == 20
    page = json.loads(_det("t", "describe", "1", "--json", "--limit", "3", "--pages", "1"))
    assert [step["training"]["totalBatches"] for step in page["workloads"]] == [1, 2, 3]
    assert "avg_metrics,zero,20,0" in _det("t", "describe", "1", "--metrics-summary", "--csv")


_ELSEWHERE = """
from determined import core
with core.init() as context:
    here = {"threads": 2, "ranks": 1, "torch": "2.9"}
    context.train._report_environment(here, ["2 threads instead of 1"])
    context.train.report_validation_metrics(1, {"loss": 1.0})
"""


def test_the_environment_of_each_run_is_described(lab: Lab) -> None:
    lab.wait(lab.create(_ELSEWHERE, searcher={"name": "single", "metric": "loss"}))
    told = _det("t", "describe", "1")
    assert "Environment:\n  run 1: 2 threads, 1 process, torch 2.9\n" in told
    assert "    not as before: 2 threads instead of 1\n" in told
    (found,) = json.loads(_det("t", "describe", "1", "--json"))["environments"]
    assert found["environment"]["threads"] == 2
    assert found["differences"] == ["2 threads instead of 1"]


def test_killing_a_trial_ends_it_alone(lab: Lab) -> None:
    number = lab.create(ENDLESS)
    lab.until(lambda: lab.trials(number)[0].total_batches > 0)
    assert _det("trial", "kill", "1") == "Killed trial 1\n"
    lab.until(lambda: lab.trials(number)[0].state == "CANCELED")
    lab.service.kill(number)
    lab.wait(number)


def test_debugging_stops_at_breakpoints_and_changes_nothing(lab: Lab) -> None:
    script = STEPS.replace("    while steps", "    if steps: breakpoint()\n    while steps")
    script = script.replace("if steps: breakpoint()", "if DEBUGS and steps: breakpoint()")
    script = "import os\nDEBUGS = 'DET_RUN_DIR' not in os.environ\n" + script
    number = lab.create(script, hyperparameters={"lr": 0.5})
    lab.wait(number)
    lab.until(lambda: is_collected(lab, number))
    before = (lab.experiment(number), lab.trials(number), lab.checkpoints(number))
    reports = list(lab.service.reader.metrics.reports(1))
    files = sorted(lab.home.path.rglob("*"))
    with det_on_a_terminal("t", "debug", "1") as terminal:
        terminal.until("Debugging trial 1 from batch 20")
        terminal.until("(Pdb)")
        terminal.type("print('hp', info.trial.hparams, 'from', steps)\n")
        terminal.until("hp {'lr': 0.5} from 20")
        terminal.type("steps = 18\n")
        terminal.type("continue\n")
        assert terminal.end() == 0
    assert "ends at 20" in terminal.output
    answer = run_det("t", "debug", "1", "--from-beginning")
    assert "starts\x1b[0m at 0" in answer.stdout
    assert before == (lab.experiment(number), lab.trials(number), lab.checkpoints(number))
    assert reports == list(lab.service.reader.metrics.reports(1))
    assert files == sorted(lab.home.path.rglob("*"))


def test_debugging_gives_the_exit_code_and_leaves_nothing(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.wait(lab.create("raise SystemExit(7)"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    told = _det("t", "debug", "1", code=7)
    assert "from the beginning" in told
    assert list((tmp_path / "tmp").iterdir()) == []
    told = _det("t", "debug", "1", "--keep", code=7)
    (kept,) = (tmp_path / "tmp").iterdir()
    assert f"Its files are in {kept}" in told
    assert (kept / "workdir" / "script.py").exists()


def test_a_checkpoint_is_described_and_downloaded(lab: Lab, tmp_path: Path) -> None:
    lab.wait(lab.create(STEPS))
    (found,) = [c for c in lab.checkpoints(1) if c.steps_completed == 20]
    assert found.uuid in _det("c", "describe", found.uuid)
    data = json.loads(_det("c", "describe", found.uuid, "--json"))
    assert data["steps_completed"] == 20
    target = tmp_path / "mine"
    assert _det("c", "download", found.uuid, "-q", "-o", str(target)) == f"{target}\n"
    assert (target / "state").read_text() == "20"
    assert f"Local checkpoint path:\n{target}\n" in _det(
        "checkpoint", "download", found.uuid, "-o", str(target)
    )
    documented("a checkpoint is not there", _det("c", "describe", "no-such-uuid", code=1))


_FROZEN = """
import torch
from determined import pytorch

class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        layers = torch.nn.Linear(256, 256).requires_grad_(False), torch.nn.Linear(256, 1)
        self.model = context.wrap_model(torch.nn.Sequential(*layers))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(layers[1].parameters(), 0.1))

    def build_training_data_loader(self):
        return pytorch.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 256)), 2)

    def build_validation_data_loader(self):
        return None

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = (self.model(batch[0]) ** 2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

with pytorch.init() as context:
    pytorch.Trainer(Trial(context), context).fit(
        max_length=pytorch.Batch(8), checkpoint_period=pytorch.Batch(2), latest_checkpoint="latest"
    )
"""


def test_shared_weights_take_room_once_and_a_download_may_join_them(
    lab: Lab, tmp_path: Path
) -> None:
    storage: dict[str, Any] = {"type": "shared_fs", "host_path": str(lab.home.checkpoints)}
    storage |= {"save_frozen": "once", "save_trial_latest": 4}
    assert lab.wait(lab.create(_FROZEN, checkpoint_storage=storage)).state == "COMPLETED"
    *_, newest = sorted(lab.checkpoints(1), key=lambda c: c.steps_completed)
    sizes = {part["what"]: part["bytes"] for part in json.loads(_det("store", "df", "--json"))}
    assert newest.size > 256 * 256 * 4
    for part in ("checkpoints", "experiment 1"):
        assert newest.size < sizes[part] < 1.5 * newest.size + 100_000, sizes
    plain, joined = tmp_path / "plain", tmp_path / "joined"
    _det("checkpoint", "download", newest.uuid, "-q", "-o", str(plain))
    _det("checkpoint", "download", newest.uuid, "-q", "--joined", "-o", str(joined))
    assert (plain / "frozen").is_dir()
    assert not (joined / "frozen").exists()
    (weights,) = torch.load(joined / "state_dict.pth", weights_only=True)["models_state_dict"]
    assert {name: tuple(w.shape) for name, w in weights.items()} == {
        **{"0.weight": (256, 256), "0.bias": (256,)},
        **{"1.weight": (1, 256), "1.bias": (1,)},
    }


def test_a_download_that_was_cut_short_is_completed(lab: Lab, tmp_path: Path) -> None:
    lab.wait(lab.create(STEPS))
    (found,) = [c for c in lab.checkpoints(1) if c.steps_completed == 20]
    target = tmp_path / "mine"
    _det("c", "download", found.uuid, "-q", "-o", str(target))
    (target / "state").write_text("2")  # one byte of two
    _det("c", "download", found.uuid, "-q", "-o", str(target))
    assert (target / "state").read_text() == "20"
    assert (target / "metadata.json").exists()


def test_a_damaged_or_deleted_checkpoint_is_refused(lab: Lab, tmp_path: Path) -> None:
    lab.wait(lab.create(STEPS))
    kept = next(c for c in lab.checkpoints(1) if c.steps_completed == 20)
    (lab.home.checkpoints / kept.uuid / "state").unlink()
    target = tmp_path / "mine"
    told = _det("c", "download", kept.uuid, "-o", str(target), code=1)
    assert "state" in told
    assert not target.exists()
    lab.until(lambda: {c.state for c in lab.checkpoints(1)} == {"COMPLETED", "DELETED"})
    gone = next(c for c in lab.checkpoints(1) if c.steps_completed == 10)
    told = _det("c", "download", gone.uuid, "-o", str(target), code=1)
    documented("a checkpoint that was deleted is downloaded", told, gone.uuid)
