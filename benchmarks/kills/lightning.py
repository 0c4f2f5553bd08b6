"""Lightning: `ModelCheckpoint(save_last=True)`, `fit(ckpt_path="last")`, a stateful loader."""

from __future__ import annotations

from typing import Any

import torch
from lightning import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torchdata.stateful_dataloader import StatefulDataLoader

from benchmarks.kills import digits


class Module(LightningModule):  # type: ignore[misc]  # untyped where it is not installed
    def __init__(self) -> None:
        super().__init__()
        self.model = digits.build()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return digits.loss_of(self.model, *batch)

    def on_train_batch_end(self, *_: Any) -> None:
        digits.tell_batch(self.trainer.global_step)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=digits.RATE)


def main() -> None:
    options = digits.options()
    seed_everything(digits.SEED, workers=True, verbose=False)
    when = {"every_n_train_steps": options.every} if options.every else {"every_n_epochs": 1}
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=digits.EPOCHS,
        default_root_dir=options.folder,
        callbacks=[ModelCheckpoint(dirpath=options.folder, save_last=True, **when)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        deterministic=True,
    )
    module = Module()
    loader = StatefulDataLoader(digits.dataset(), batch_size=digits.BATCH_SIZE, shuffle=True)
    has_begun = (options.folder / "last.ckpt").exists()
    trainer.fit(module, loader, ckpt_path="last" if has_begun else None)
    digits.tell_weights(module.model)


if __name__ == "__main__":
    main()
