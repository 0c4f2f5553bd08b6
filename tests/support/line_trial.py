"""A small trial as users write it: `script.py` with the class, `train.py` that fits it."""

from __future__ import annotations

MODEL = """
import torch
from determined import pytorch

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        x = torch.tensor([float(index)])
        return x / 16, 2 * x / 16

class Line(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=context.get_hparams()["lr"])
        self.optimizer = context.wrap_optimizer(optimizer)

    def build_training_data_loader(self):
        return pytorch.DataLoader(Data(), batch_size=self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self):
        return pytorch.DataLoader(Data(), batch_size=self.context.get_per_slot_batch_size())

    def train_batch(self, batch, epoch_idx, batch_idx):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"train_loss": loss}

    def evaluate_batch(self, batch):
        x, y = batch
        return {"loss": torch.nn.functional.mse_loss(self.model(x), y)}
"""
TRAIN = """
import determined as det
from determined import pytorch
from script import Line

with pytorch.init(hparams=det.get_cluster_info().trial.hparams) as context:
    print("ranks", context.distributed.size, flush=True)
    pytorch.Trainer(Line(context), context).fit(
        max_length=pytorch.Batch(6), validation_period=pytorch.Batch(3)
    )
"""
LAUNCH = "python3 -m determined.launch.torch_distributed"
