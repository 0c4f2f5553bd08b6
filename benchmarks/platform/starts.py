"""How long a start takes, warm and cold: one trial, many tiny trials, and `det run`.

    python -m benchmarks.platform.starts [--rounds 7] [--trials 64] [--json FILE]

Warm and cold take turns, so that both see the same machine; medians are shown with the load. One
round before the first is not counted: it loads the helper.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from determined.config import Completion, load
from determined.platform.home import Home
from determined.platform.service import Service
from determined.platform.supervisor import presence

_SCRIPT = """
import json, os, time
import torch
from determined import pytorch

class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr"))
        self.optimizer = context.wrap_optimizer(optimizer)

    def build_training_data_loader(self):
        data = torch.utils.data.TensorDataset(torch.ones(80, 8), torch.ones(80, 1))
        return pytorch.DataLoader(data, batch_size=4)

    build_validation_data_loader = build_training_data_loader

    def loss(self, batch):
        return torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])

    def train_batch(self, batch, epoch_idx, batch_idx):
        if batch_idx == 0 and (file := os.environ.get("FIRST_BATCH")):
            open(file, "w").write(str(time.monotonic()))
        loss = self.loss(batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"loss": self.loss(batch)}

with pytorch.init(hparams={"lr": 0.1}) as context:
    pytorch.Trainer(Trial(context), context).fit(max_length=pytorch.Batch(20))
"""
_ONLY_REPORTS = "import torch\nprint(torch.ones(1).sum().item())\n"


def main() -> None:
    """Measure everything, print a table, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    os.environ.update(DET_SLOTS=str(arguments.slots), OMP_NUM_THREADS="1", DET_TRACKING="off")
    os.environ["DET_WARM_IDLE_SECONDS"] = "60"  # leave no helper behind
    with tempfile.TemporaryDirectory(prefix="det-bench-") as name:
        folder = Path(name)
        os.environ["DET_HOME"] = str(folder / "home")
        home = Home(folder / "home")
        try:
            results = {
                "create to first batch": _in_turns(
                    arguments.rounds,
                    warm=lambda: first_batch(home, folder, warm=True),
                    cold=lambda: first_batch(home, folder, warm=False),
                ),
                "det run": _in_turns(
                    arguments.rounds,
                    warm=lambda: script(folder, [sys.executable, "-m", "determined.cli", "run"]),
                    cold=lambda: script(folder, [sys.executable]),
                ),
                f"{arguments.trials} trials of 20 batches": _in_turns(
                    1 if arguments.trials > 16 else 3,
                    warm=lambda: many_trials(home, folder, arguments.trials, warm=True),
                    cold=lambda: many_trials(home, folder, arguments.trials, warm=False),
                    rehearse=False,
                ),
            }
        finally:
            presence.stop(home)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1))


def _in_turns(
    rounds: int, *, warm: Callable[[], float], cold: Callable[[], float], rehearse: bool = True
) -> dict[str, Any]:
    """Call both in turns and say how they compare."""
    if rehearse:
        warm()
        time.sleep(5)
    seconds: dict[str, list[float]] = {"warm": [], "cold": []}
    loads = []
    for number in range(rounds):
        names = ("warm", "cold") if number % 2 else ("cold", "warm")
        for name in names:
            seconds[name].append((warm if name == "warm" else cold)())
            loads.append(os.getloadavg()[0])
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ratio = statistics.median(w / c for w, c in zip(seconds["warm"], seconds["cold"], strict=True))
    sys.stdout.write(
        f"{warm.__code__.co_names[0]:14} warm {medians['warm']:7.2f} s  cold {medians['cold']:7.2f}"
        f" s  ratio {ratio:.2f}  ({rounds} rounds, load {min(loads):.1f}-{max(loads):.1f})\n"
    )
    sys.stdout.flush()
    return {"seconds": seconds, "medians": medians, "ratio": ratio, "loads": loads}


def first_batch(home: Home, folder: Path, *, warm: bool) -> float:
    """Return the seconds from `create` to the first batch of a trial."""
    mark = folder / "first-batch"
    mark.unlink(missing_ok=True)
    began = time.monotonic()
    _create_and_wait(home, folder, warm, {"name": "single"}, [f"FIRST_BATCH={mark}"])
    return float(mark.read_text()) - began


def many_trials(home: Home, folder: Path, trials: int, *, warm: bool) -> float:
    """Return the seconds that a search of so many trials takes."""
    began = time.monotonic()
    searcher = {"name": "random", "max_trials": trials, "max_concurrent_trials": 16}
    _create_and_wait(home, folder, warm, searcher, [])
    return time.monotonic() - began


def script(folder: Path, command: list[str]) -> float:
    """Return the seconds that a script which needs torch for a moment takes."""
    path = folder / "script.py"
    path.write_text(_ONLY_REPORTS)
    began = time.monotonic()
    subprocess.run([*command, str(path)], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def _create_and_wait(
    home: Home, folder: Path, warm: bool, searcher: dict[str, Any], variables: list[str]
) -> None:
    code = folder / "code"
    code.mkdir(exist_ok=True)
    (code / "train.py").write_text(_SCRIPT)
    config = {
        "name": "starts",
        "entrypoint": "python3 train.py",
        "searcher": {"metric": "loss", **searcher},
        "hyperparameters": {"lr": {"type": "double", "minval": 0.01, "maxval": 0.1}},
        "max_restarts": 0,
        "environment": {"warm_start": warm, "environment_variables": variables},
    }
    storage = {"type": "shared_fs", "host_path": str(home.checkpoints)}
    service = Service(home)
    loaded = load(config, completion=Completion(created=0, checkpoint_storage=storage))
    experiment_id = service.create(loaded, service.take_snapshot(code), code)
    while True:
        found = service.reader.experiment(experiment_id)
        if found is not None and found.state in ("COMPLETED", "ERROR", "CANCELED"):
            break
        time.sleep(0.01)
    service.close()
    if found.state != "COMPLETED":
        raise RuntimeError(f"the experiment ended as {found.state}: {found.reason}")


if __name__ == "__main__":
    main()
