"""A tiny net. It writes down when it trained a batch: the first of each run and every so many.

Variables: BATCHES, VALIDATE_EVERY, SAVE_EVERY, MARK_EVERY; MARKS is the file for run, batch, time.
"""

import os
import time
from pathlib import Path

import torch

from determined import pytorch


def setting(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr"))
        self.optimizer = context.wrap_optimizer(optimizer)
        self.marks = os.environ.get("MARKS")
        self.mark_every = setting("MARK_EVERY", 1 << 60)
        self.has_begun = False

    def build_training_data_loader(self):
        data = torch.utils.data.TensorDataset(torch.ones(80, 8), torch.ones(80, 1))
        return pytorch.DataLoader(data, batch_size=4)

    build_validation_data_loader = build_training_data_loader

    def loss(self, batch):
        return torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])

    def train_batch(self, batch, epoch_idx, batch_idx):
        if self.marks and (batch_idx % self.mark_every == 0 or not self.has_begun):
            self.has_begun = True
            run = os.environ.get("DET_TRIAL_RUN_ID", "0")
            with Path(self.marks).open("a") as file:
                file.write(f"{run} {batch_idx} {time.time()}\n")
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
