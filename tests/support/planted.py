"""A small run with many knobs, to plant differences with; it is trained in forked processes."""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from determined._os.together import Command
from tests.support.workers import SERVER, leave_the_server

LENGTH, PERIOD = 40, 10
SCRIPT = """
import json
import sys

import torch
from determined import pytorch
from determined.pytorch.callbacks import ExponentialMovingAverage

KNOBS = json.loads(sys.argv[1])
torch.set_num_threads(KNOBS.get("threads", 1))
if "packages" in KNOBS:
    sys.path.insert(0, KNOBS["packages"])
    import fancy


class Data(torch.utils.data.Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(60, 4, generator=generator)[: KNOBS.get("length", 60)]
        if "sample" in KNOBS:
            self.x[KNOBS["sample"], 2] += 0.5

    def __getitem__(self, index):
        x = self.x[index]
        if KNOBS.get("augment"):
            x = x + KNOBS["augment"] * torch.randn(4)
        return x, x.sum(0, keepdim=True)

    def __len__(self):
        return len(self.x)


class Counting(pytorch.PyTorchCallback):
    def __init__(self, step):
        self.count, self.step = 0, step

    def on_training_batch_end(self, epoch_idx, batch_idx, metrics):
        self.count += self.step if batch_idx == 30 else 1

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state_dict):
        self.count = state_dict["count"]


class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        model = torch.nn.Sequential(
            torch.nn.Linear(4, 8),
            torch.nn.Dropout(KNOBS.get("dropout", 0.1)),
            torch.nn.Linear(8, 1),
        )
        if KNOBS.get("frozen"):
            model[0].weight.requires_grad_(False)
        self.model = context.wrap_model(model.to(getattr(torch, KNOBS.get("dtype", "float32"))))
        self.dtype = self.model[0].weight.dtype
        self.optimizer = context.wrap_optimizer(
            torch.optim.Adam(self.model.parameters(), lr=0.01, eps=KNOBS.get("eps", 1e-8))
        )
        scheduler = torch.optim.lr_scheduler.MultiStepLR(
            self.optimizer, [KNOBS.get("milestone", 35)]
        )
        context.wrap_lr_scheduler(scheduler, pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH)

    def build_callbacks(self):
        return {
            "counting": Counting(KNOBS.get("count", 1)),
            "average": ExponentialMovingAverage(self.context, decay=KNOBS.get("decay", 0.9)),
        }

    def build_training_data_loader(self):
        data = Data()
        sampler = None
        if "swap" in KNOBS:
            order = list(range(len(data)))
            one, two = KNOBS["swap"]
            order[one], order[two] = order[two], order[one]
            sampler = order
        return pytorch.DataLoader(data, batch_size=4, sampler=sampler, drop_last=False)

    def build_validation_data_loader(self):
        return pytorch.DataLoader(Data(), batch_size=20)

    def train_batch(self, batch, epoch_idx, batch_idx):
        x, y = (part.to(self.dtype) for part in batch)
        if KNOBS.get("flip") == batch_idx:
            with torch.no_grad():
                self.model[2].weight[0, 3].neg_()
        if KNOBS.get("draw") == batch_idx:
            torch.rand(1)
        loss = ((self.model(x) - y) ** 2).mean()
        if "packages" in KNOBS:
            loss = loss * fancy.FACTOR
        if KNOBS.get("wide"):  # a sum that threads share, each adding up its own part
            loss = loss + (torch.linspace(0, 1, 200_000) * self.model[0].weight[0, 0]).sin().mean()
        self.context.backward(loss)
        if "rate" in KNOBS and batch_idx >= 30:
            self.optimizer.param_groups[0]["lr"] = KNOBS["rate"]
        self.context.step_optimizer(self.optimizer, clip_grad_norm=KNOBS.get("clip"))
        return {"loss": loss}

    def evaluate_batch(self, batch):
        x, y = (part.to(self.dtype) for part in batch)
        return {"error": ((self.model(x) - y) ** 2).mean()}


if __name__ == "__main__":
    with pytorch.init(
        seed=KNOBS.get("seed", 3),
        checkpoint_storage=KNOBS["storage"],
        run_id=KNOBS["name"],
        aggregation_frequency=KNOBS.get("accumulation", 1),
        enable_tensorboard_logging=False,
    ) as context:
        pytorch.Trainer(Trial(context), context).fit(
            max_length=pytorch.Batch(LENGTH),
            checkpoint_period=pytorch.Batch(PERIOD),
            validation_period=pytorch.Batch(KNOBS.get("validation", 20)),
            reporting_period=pytorch.Batch(5),
            checkpoint_policy="none",
            progress=False,
        )
""".replace("LENGTH", str(LENGTH)).replace("PERIOD", str(PERIOD))


def train(folder: Path, name: str, script: str = SCRIPT, **knobs: Any) -> Path:
    """Train a run in a folder of its own; return that of its checkpoints."""
    (train_one,) = launchable([prepare(folder, name, script, **knobs)])
    train_one.join()
    assert train_one.exitcode == 0, (folder / name / "log").read_text()
    return folder / name / "checkpoints"


def prepare(folder: Path, name: str, script: str = SCRIPT, **knobs: Any) -> Command:
    """Lay a run out, ready to be trained."""
    place = folder / name
    code = place / "code"
    code.mkdir(parents=True)
    (code / "train.py").write_text(script)
    told = {"storage": str(place / "checkpoints"), "name": name, **knobs}
    environment = {"DET_TRACKING": "off"}
    argv = (sys.executable, str(code / "train.py"), json.dumps(told))
    return Command(argv, environment, code, place / "log")


def launchable(commands: Sequence[Command]) -> list[Any]:
    """Start processes for commands: forks of one that has torch loaded."""
    processes = [SERVER.Process(target=_run, args=(command,)) for command in commands]
    for process in processes:
        process.start()
    return processes


def launch(commands: Sequence[Command]) -> None:
    """Run two commands that need each other."""
    processes = launchable(commands)
    for process in processes:
        process.join(60)
    for process, command in zip(processes, commands, strict=True):
        if process.exitcode is None:
            process.kill()
        assert process.exitcode == 0, command.last_output()


def _run(command: Command) -> None:
    log = os.open(command.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    leave_the_server()
    os.environ.update(command.environment)
    os.chdir(command.folder)
    _, script, *arguments = command.argv
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")
