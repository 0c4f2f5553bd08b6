"""Accelerate: `save_state`, `load_state` and a stateful loader with a seedable sampler."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, ProjectConfiguration, set_seed
from torch.utils.data import DataLoader

from benchmarks.kills import digits


class Progress:
    """What the loop has done, saved along with the rest."""

    def __init__(self) -> None:
        self.epoch = self.batch = 0

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "batch": self.batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.batch = state["epoch"], state["batch"]


def main() -> None:
    options = digits.options()
    set_seed(digits.SEED)
    accelerator = Accelerator(
        cpu=True,
        dataloader_config=DataLoaderConfiguration(
            use_seedable_sampler=True, use_stateful_dataloader=True
        ),
        project_config=ProjectConfiguration(
            project_dir=str(options.folder), automatic_checkpoint_naming=True, total_limit=3
        ),
    )
    model = digits.build()
    optimizer = torch.optim.Adam(model.parameters(), lr=digits.RATE)
    loader = DataLoader(digits.dataset(), batch_size=digits.BATCH_SIZE, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    progress = Progress()
    accelerator.register_for_checkpointing(progress)
    saved = sorted(
        (options.folder / "checkpoints").glob("checkpoint_*"), key=lambda p: int(p.name[11:])
    )
    if saved:
        accelerator.load_state(str(saved[-1]))
        accelerator.project_configuration.iteration = int(saved[-1].name[11:]) + 1
    for epoch in range(progress.epoch, digits.EPOCHS):
        loader.set_epoch(epoch)
        for images, labels in loader:
            accelerator.backward(digits.loss_of(model, images, labels))
            optimizer.step()
            optimizer.zero_grad()
            progress.batch += 1
            if options.every and progress.batch % options.every == 0:
                accelerator.save_state()
            digits.tell_batch(progress.batch)
        progress.epoch = epoch + 1
        if not options.every:
            accelerator.save_state()
    digits.tell_weights(accelerator.unwrap_model(model))


if __name__ == "__main__":
    main()
