"""Train a generator against a discriminator on scikit-learn's handwritten digits.

python train.py
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch

NOISE = 16
SHADES = " .:-=+*#%@"


def digits(train: bool) -> TensorDataset:
    """Return images of 64 numbers from -1 to 1: every fifth one is kept for validation."""
    images = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1
    held_out = torch.arange(len(images)) % 5 == 0
    return TensorDataset(images[~held_out if train else held_out])


class GANTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.generator = context.wrap_model(
            nn.Sequential(
                nn.Linear(NOISE, 128),
                nn.BatchNorm1d(128),
                nn.ReLU(),
                nn.Linear(128, 256),
                nn.BatchNorm1d(256),
                nn.ReLU(),
                nn.Linear(256, 64),
                nn.Tanh(),
            )
        )
        self.discriminator = context.wrap_model(
            nn.Sequential(
                nn.Linear(64, 256),
                nn.LeakyReLU(0.2),
                nn.Dropout(0.3),
                nn.Linear(256, 128),
                nn.LeakyReLU(0.2),
                nn.Dropout(0.3),
                nn.Linear(128, 1),
            )
        )
        self.generator_optimizer = context.wrap_optimizer(
            torch.optim.Adam(self.generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
        )
        self.discriminator_optimizer = context.wrap_optimizer(
            torch.optim.Adam(self.discriminator.parameters(), lr=5e-4, betas=(0.5, 0.999))
        )
        self.loss = nn.BCEWithLogitsLoss()
        self.fixed_noise = torch.randn(500, NOISE, generator=torch.Generator().manual_seed(1))

    def build_training_data_loader(self) -> pytorch.DataLoader:
        batch_size = self.context.get_per_slot_batch_size()
        return pytorch.DataLoader(
            digits(train=True), batch_size=batch_size, shuffle=True, drop_last=True
        )

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(digits(train=False), batch_size=120)

    def train_batch(
        self, batch: pytorch.TorchData, epoch_idx: int, batch_idx: int
    ) -> dict[str, torch.Tensor]:
        (real,) = batch
        is_real, is_fake = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        verdicts = self.context.to_device(torch.cat([is_real, is_fake]))
        noise = self.context.to_device(torch.randn(len(real), NOISE))
        fake = self.generator(noise)

        both = torch.cat([real, fake.detach()])
        discriminator_loss = self.loss(self.discriminator(both), verdicts)
        self.context.backward(discriminator_loss)
        self.context.step_optimizer(self.discriminator_optimizer)

        generator_loss = self.loss(self.discriminator(fake), verdicts[: len(real)])
        # The loss backpropagates through the discriminator, but must not change its gradients.
        self.context.backward(generator_loss, only=self.generator_optimizer)
        self.context.step_optimizer(self.generator_optimizer)
        return {"discriminator_loss": discriminator_loss, "generator_loss": generator_loss}

    def evaluate_batch(self, batch: pytorch.TorchData, batch_idx: int) -> dict[str, torch.Tensor]:
        """Measure how far each unseen digit is from the most similar of 500 generated ones."""
        (real,) = batch
        generated = self.generator(self.context.to_device(self.fixed_noise))
        return {"distance": torch.cdist(real, generated).amin(dim=1).mean()}


def draw(images: torch.Tensor) -> str:
    """Return images side by side, as text."""
    levels = ((images + 1) / 2 * (len(SHADES) - 1)).round().int().reshape(-1, 8, 8)
    lines = levels.transpose(0, 1).tolist()
    return "\n".join(
        "   ".join("".join(SHADES[p] * 2 for p in row) for row in line) for line in lines
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Generate handwritten digits.")
    parser.add_argument("--epochs", type=int, default=100)
    args = parser.parse_args()

    with pytorch.init(hparams={"global_batch_size": 64}, seed=7) as context:
        trainer = pytorch.Trainer(GANTrial(context), context)
        trainer.fit(
            max_length=pytorch.Epoch(args.epochs),
            validation_period=pytorch.Epoch(10),
            checkpoint_policy="none",
        )

    if context.distributed.rank == 0:
        trial = pytorch.load_trial_from_checkpoint_path(trainer.latest_checkpoint, GANTrial)
        trial.generator.eval()
        with torch.no_grad():
            print(draw(trial.generator(trial.fixed_noise[:5])))
            batch = digits(train=False)[:]
            generated = trial.evaluate_batch(batch, 0)["distance"]
        noise = torch.cdist(batch[0], torch.rand(500, 64) * 2 - 1).amin(dim=1).mean()
        print(f"Distance of real digits to generated ones: {generated:.2f}, to noise: {noise:.2f}")


if __name__ == "__main__":
    main()
