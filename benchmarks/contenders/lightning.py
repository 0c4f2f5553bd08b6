"""Lightning: with its defaults and a logged loss, or with `barebones=True`."""

from __future__ import annotations

import sys
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

from benchmarks.job import Job
from benchmarks.turns import Clock
from benchmarks.workloads import Workload, build

_CHECKPOINT = "end.ckpt"


class Module(LightningModule):  # type: ignore[misc]  # untyped where it is not installed
    def __init__(self, job: Job, workload: Workload) -> None:
        super().__init__()
        self.job = job
        self.workload = workload
        self.model = workload.model

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        inputs, labels = batch
        loss = self.workload.loss(self.model(inputs), labels)
        if not self.job.is_lean:
            self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        inputs, labels = batch
        scores = self.workload.score(self.model(inputs), labels)
        if not self.job.is_lean:
            self.log_dict(scores)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.workload.optimizer(self.model)


def main() -> None:
    job = Job.from_json(sys.argv[1])
    clock = Clock(job)
    workload = build(job, clock)
    options: dict[str, Any] = {}
    if job.is_lean:
        options["barebones"] = True
    if job.validation_batches:
        options |= {"val_check_interval": 1, "check_val_every_n_epoch": None}
        options["enable_checkpointing"] = False
    if job.save_every:
        options["callbacks"] = [ModelCheckpoint(every_n_train_steps=job.save_every)]
    if job.ranks > 1:
        options["strategy"] = "ddp"
    done = job.batches if job.is_resumed else 0
    trainer = Trainer(
        accelerator="cpu",
        devices=job.ranks,
        max_steps=done + -(-job.batches // job.aggregation),
        max_epochs=-1,
        accumulate_grad_batches=job.aggregation,
        **options,
    )
    loader: Any = DataLoader(workload.dataset, workload.batch_size, shuffle=True)
    validation = DataLoader(workload.validation_set, workload.batch_size)
    trainer.fit(
        Module(job, workload),
        loader,
        validation if job.validation_batches else None,
        ckpt_path=_CHECKPOINT if job.is_resumed else None,
    )
    if job.save_every:
        trainer.save_checkpoint(_CHECKPOINT)
    clock.finish()


if __name__ == "__main__":
    main()
