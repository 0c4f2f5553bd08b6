from typing import Any, Dict

import layers
import torch
import torch.nn.functional as F

from determined.pytorch import (
    DataLoader,
    LRScheduler,
    MetricReducer,
    PyTorchCallback,
    PyTorchTrial,
    PyTorchTrialContext,
    TorchData,
)


class Accuracy(MetricReducer):
    def __init__(self):
        self.reset()

    def reset(self):
        self.right, self.total = 0, 0

    def update(self, scores):
        self.right += int((scores > 0).sum())
        self.total += len(scores)

    def per_slot_reduce(self):
        return self.right, self.total

    def cross_slot_reduce(self, per_slot_metrics):
        right, total = zip(*per_slot_metrics, strict=True)
        return sum(right) / max(1, sum(total))


class Counting(PyTorchCallback):
    def __init__(self):
        self.epochs = 0

    def on_training_epoch_end(self, epoch_idx):
        self.epochs += 1

    def on_trial_shutdown(self):
        print("epochs", self.epochs, flush=True)

    def state_dict(self):
        return {"epochs": self.epochs}

    def load_state_dict(self, state_dict):
        self.epochs = state_dict["epochs"]


class GANTrial(PyTorchTrial):
    def __init__(self, trial_context: PyTorchTrialContext) -> None:
        self.context = trial_context
        assert self.context.get_data_config()["url"].startswith("https")
        self.dim = self.context.get_hparam("latent")["dim"]
        self.generator = self.context.wrap_model(layers.mlp(self.dim, 4))
        self.discriminator = self.context.wrap_model(layers.mlp(4, 1))
        self.optimizers = [
            self.context.wrap_optimizer(
                torch.optim.Adam(model.parameters(), lr=self.context.get_hparam("lr"))
            )
            for model in (self.generator, self.discriminator)
        ]
        self.scheduler = self.context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.ExponentialLR(self.optimizers[0], 0.9),
            step_mode=LRScheduler.StepMode.MANUAL_STEP,
        )
        self.accuracy = self.context.wrap_reducer(Accuracy(), "accuracy", for_training=False)

    def build_callbacks(self):
        return {"counting": Counting()}

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(self._data(), batch_size=self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(self._data(), batch_size=self.context.get_per_slot_batch_size())

    def _data(self):
        generator = torch.Generator().manual_seed(0)
        return torch.utils.data.TensorDataset(torch.randn(64, 4, generator=generator))

    def train_batch(self, batch: TorchData, epoch_idx: int, batch_idx: int) -> Dict[str, Any]:
        (real,) = batch
        noise = self.context.to_device(torch.randn(len(real), self.dim))
        ones = self.context.to_device(torch.ones(len(real), 1))
        made = self.generator(noise)
        self.discriminator.requires_grad_(False)
        generator_loss = F.binary_cross_entropy_with_logits(self.discriminator(made), ones)
        self.context.backward(generator_loss)
        self.context.step_optimizer(self.optimizers[0])
        self.discriminator.requires_grad_(True)
        real_loss = F.binary_cross_entropy_with_logits(self.discriminator(real), ones)
        made_loss = F.binary_cross_entropy_with_logits(self.discriminator(made.detach()), 0 * ones)
        self.context.backward(real_loss + made_loss)
        self.context.step_optimizer(
            self.optimizers[1],
            clip_grads=lambda params: torch.nn.utils.clip_grad_norm_(params, 1.0),
        )
        if self.context.is_epoch_end():
            self.scheduler.step()
        return {"loss": real_loss + made_loss, "generator_loss": generator_loss}

    def evaluate_batch(self, batch: TorchData, batch_idx: int) -> Dict[str, Any]:
        scores = self.discriminator(batch[0])
        self.accuracy.update(scores)
        return {"score": scores.mean().item()}
