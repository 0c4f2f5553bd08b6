"""Hugging Face `Trainer`: `train(resume_from_checkpoint=True)`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from benchmarks.kills import digits


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = digits.build()

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": digits.loss_of(self.net, images, labels)}


class Tell(TrainerCallback):  # type: ignore[misc]  # untyped where it is not installed
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        digits.tell_batch(state.global_step)


def main() -> None:
    options = digits.options()
    set_seed(digits.SEED)
    arguments = TrainingArguments(
        output_dir=str(options.folder),
        use_cpu=True,
        seed=digits.SEED,
        data_seed=digits.SEED,
        num_train_epochs=digits.EPOCHS,
        per_device_train_batch_size=digits.BATCH_SIZE,
        learning_rate=digits.RATE,
        lr_scheduler_type="constant",
        save_strategy="steps" if options.every else "epoch",
        save_steps=options.every or 500,
        save_total_limit=3,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    images = [{"images": image, "labels": label} for image, label in digits.dataset()]
    model = Model()
    trainer = Trainer(model, arguments, train_dataset=images, callbacks=[Tell()])
    has_begun = options.folder.is_dir() and get_last_checkpoint(str(options.folder)) is not None
    trainer.train(resume_from_checkpoint=has_begun)
    digits.tell_weights(model.net)


if __name__ == "__main__":
    main()
