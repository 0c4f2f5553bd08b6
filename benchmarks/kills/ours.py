"""`determined.pytorch`: `latest_checkpoint="latest"`."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.kills import digits
from determined import pytorch


class DigitsTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(digits.build())
        optimizer = torch.optim.Adam(self.model.parameters(), lr=digits.RATE)
        self.optimizer = context.wrap_optimizer(optimizer)

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(digits.dataset(), batch_size=digits.BATCH_SIZE, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(digits.dataset(), batch_size=2000)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
        loss = digits.loss_of(self.model, *batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        digits.tell_batch(batch_idx + 1)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, torch.Tensor]:
        images, labels = batch
        return {"loss": torch.nn.functional.cross_entropy(self.model(images), labels)}


def main() -> None:
    options = digits.options()
    period = pytorch.Batch(options.every) if options.every else pytorch.Epoch(1)
    storage = str(options.folder)
    with pytorch.init(seed=digits.SEED, name="kills", checkpoint_storage=storage) as context:
        trial = DigitsTrial(context)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Epoch(digits.EPOCHS),
            checkpoint_period=period,
            latest_checkpoint="latest",
            progress=False,
        )
    digits.tell_weights(trial.model)


if __name__ == "__main__":
    main()
