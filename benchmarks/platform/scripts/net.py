"""A tiny net. It writes down when it trained a batch: the first of each run and every so many.

Variables: BATCHES, VALIDATE_EVERY, SAVE_EVERY, MARK_EVERY; MARKS is the file for run, batch, time,
processor time and megabytes.
WIDTH of a hidden layer and BATCH_SIZE make the net larger. With TURNS, the address of a driver, it
waits after every MARK_EVERY batches for its next turn, and tells how long the last one took.
"""

import os
import socket
import time
from pathlib import Path

import torch

from determined import pytorch


def setting(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


def net(width):
    if not width:
        return torch.nn.Linear(8, 1)
    hidden = torch.nn.Linear(width, width)
    return torch.nn.Sequential(
        torch.nn.Linear(8, width),
        torch.nn.ReLU(),
        hidden,
        torch.nn.ReLU(),
        torch.nn.Linear(width, 1),
    )


class Turns:
    def __init__(self, address):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        self.driver = connection.makefile("rw")
        self.began = time.perf_counter()

    def wait(self):
        self.driver.write(f"{time.perf_counter() - self.began}\n")
        self.driver.flush()
        if not self.driver.readline():
            raise SystemExit
        self.began = time.perf_counter()


class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(net(setting("WIDTH", 0)))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr"))
        self.optimizer = context.wrap_optimizer(optimizer)
        self.marks = os.environ.get("MARKS")
        self.mark_every = setting("MARK_EVERY", 1 << 60)
        self.has_begun = False
        self.turns = Turns(os.environ["TURNS"]) if "TURNS" in os.environ else None

    def build_training_data_loader(self):
        data = torch.utils.data.TensorDataset(torch.ones(80, 8), torch.ones(80, 1))
        return pytorch.DataLoader(data, batch_size=setting("BATCH_SIZE", 4))

    build_validation_data_loader = build_training_data_loader

    def loss(self, batch):
        return torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])

    def train_batch(self, batch, epoch_idx, batch_idx):
        if self.turns and batch_idx % self.mark_every == 0:
            self.turns.wait()
        if self.marks and (batch_idx % self.mark_every == 0 or not self.has_begun):
            self.has_begun = True
            run = os.environ.get("DET_TRIAL_RUN_ID", "0")
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            megabytes = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
            with Path(self.marks).open("a") as file:
                moment = f"{time.time()} {time.process_time()} {megabytes}"
                file.write(f"{run} {batch_idx} {moment}\n")
        loss = self.loss(batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"loss": self.loss(batch)}


def period(name: str):
    return pytorch.Batch(setting(name, 0)) if setting(name, 0) else None


with pytorch.init(hparams={"lr": 0.1}) as context:
    pytorch.Trainer(Trial(context), context).fit(
        max_length=pytorch.Batch(setting("BATCHES", 20)),
        validation_period=period("VALIDATE_EVERY"),
        checkpoint_period=period("SAVE_EVERY"),
    )
