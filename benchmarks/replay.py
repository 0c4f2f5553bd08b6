"""What a second core gains a replay: a gradient-norm curve, in one process and in two, in turns.

    python -m benchmarks.replay [--batches 8000] [--rounds 3]

Trains one trial with one thread that keeps ten checkpoints, then replays all of it with
`callbacks.GradientNorm`, from the beginning in one process and cut at a checkpoint in two. Prints
seconds, seconds of the processor, and the median of the ratios one / two. Where other programs
have the cores, the ratio says little: the one that idle cores would give is the seconds of the
processor of one process over half of those of two.
"""

from __future__ import annotations

import argparse
import pathlib
import resource
import statistics
import tempfile
import time

from determined.config import Completion, load
from determined.platform.debugging.replay import Replays
from determined.platform.homes.home import Home
from determined.platform.service import Service
from determined.platform.supervisor import presence
from determined.store import TrialFilter

_SCRIPT = """
import torch
from determined import pytorch

class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        layers = [torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256)]
        self.model = context.wrap_model(torch.nn.Sequential(*layers))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters()))

    def build_training_data_loader(self):
        x = torch.randn(4096, 256, generator=torch.Generator().manual_seed(1))
        return pytorch.DataLoader(torch.utils.data.TensorDataset(x), batch_size=128, shuffle=True)

    def build_validation_data_loader(self):
        return None

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = torch.nn.functional.mse_loss(self.model(batch[0]), batch[0])
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

if __name__ == "__main__":
    torch.set_num_threads(1)
    with pytorch.init() as context:
        pytorch.Trainer(Trial(context), context).fit(
            max_length=pytorch.Batch(BATCHES), checkpoint_period=pytorch.Batch(BATCHES // 10)
        )
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="determined-benchmark-") as name:
        folder = pathlib.Path(name)
        service = Service(Home(folder / "home"))
        try:
            replays = _trained(service, folder, options.batches)
            _measure(replays, folder, options.batches, options.rounds)
        finally:
            presence.stop(service.home)
            service.close()


def _trained(service: Service, folder: pathlib.Path, batches: int) -> Replays:
    code = folder / "code"
    code.mkdir()
    (code / "script.py").write_text(_SCRIPT.replace("BATCHES", str(batches)))
    storage = {"type": "shared_fs", "host_path": str(folder / "checkpoints")}
    config = {
        "name": "replayed",
        "entrypoint": "python3 script.py",
        "searcher": {"name": "single", "metric": "loss"},
        "checkpoint_storage": {"save_trial_latest": 20, **storage},
    }
    loaded = load(config, completion=Completion(created=1, checkpoint_storage=storage))
    number = service.create(loaded, service.take_snapshot(code), code)
    while service.experiment(number).state not in ("COMPLETED", "ERROR"):
        service.wake_if_needed()
        time.sleep(0.2)
    (trial,) = service.reader.trials(TrialFilter(experiment_id=number)).rows
    return Replays(service.reader, service.home, trial, service.experiment(number))


def _measure(replays: Replays, folder: pathlib.Path, batches: int, rounds: int) -> None:
    ratios, idle = [], []
    for number in range(rounds):
        taken = {}
        for processes in (1, 2) if number % 2 == 0 else (2, 1):
            place = folder / f"{number}-{processes}"
            place.mkdir()
            taken[processes] = _replay(replays, place, batches, processes)
        ratios.append(taken[1][0] / taken[2][0])
        idle.append(taken[1][1] / (taken[2][1] / 2))
        for processes, (seconds, cpu) in sorted(taken.items()):
            print(f"round {number}: {processes} process(es) {seconds:.1f} s, processor {cpu:.1f} s")
    print(f"one / two: {statistics.median(ratios):.2f} (median of {rounds})")
    print(f"on idle cores, by seconds of the processor: {statistics.median(idle):.2f}")


def _replay(
    replays: Replays, place: pathlib.Path, batches: int, processes: int
) -> tuple[float, float]:
    began, before = time.monotonic(), _cpu_seconds()
    intervals = replays.plan(1, batches, processes)
    assert len(intervals) == processes
    found = replays.run(
        intervals,
        place,
        callbacks=["determined.pytorch.callbacks:GradientNorm"],
        processes=processes,
    )
    assert found.checked.departure is None, str(found)
    return time.monotonic() - began, _cpu_seconds() - before


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
