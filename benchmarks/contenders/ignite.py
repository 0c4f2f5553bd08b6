"""Ignite: its supervised trainer with progress bar and TensorBoard, or a bare `Engine`."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver
from ignite.handlers.tensorboard_logger import TensorboardLogger
from ignite.handlers.tqdm_logger import ProgressBar
from ignite.metrics import Accuracy, Loss
from torch import nn
from torch.utils.data import DataLoader

from benchmarks.contenders.plain import validate
from benchmarks.job import Job
from benchmarks.turns import Clock
from benchmarks.workloads import Workload, build


def lean_trainer(job: Job, workload: Workload, model: nn.Module, optimizer: Any) -> Engine:
    def update(engine: Engine, batch: Any) -> torch.Tensor:
        inputs, labels = batch
        loss = workload.loss(model(inputs), labels)
        (loss / job.aggregation if job.aggregation > 1 else loss).backward()  # type: ignore[no-untyped-call]
        if engine.state.iteration % job.aggregation == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    trainer = Engine(update)
    if job.validation_batches:
        trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: validate(model, workload))
    return trainer


def default_trainer(job: Job, workload: Workload, model: nn.Module, optimizer: Any) -> Engine:
    trainer = create_supervised_trainer(
        model, optimizer, workload.loss, gradient_accumulation_steps=job.aggregation
    )
    if idist.get_rank() == 0:
        ProgressBar().attach(trainer, output_transform=lambda loss: {"loss": loss})
        TensorboardLogger(log_dir="events").attach_output_handler(
            trainer,
            event_name=Events.ITERATION_COMPLETED(every=100),
            tag="training",
            output_transform=lambda loss: {"loss": loss},
        )
    if job.validation_batches:
        metrics = {"accuracy": Accuracy(), "loss": Loss(nn.functional.cross_entropy)}
        evaluator = create_supervised_evaluator(model, metrics=metrics)
        validation: Any = DataLoader(workload.validation_set, workload.batch_size)
        trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: evaluator.run(validation))
    return trainer


def train(job: Job, workload: Workload) -> None:
    model = idist.auto_model(workload.model)
    optimizer = workload.optimizer(model)
    loader = idist.auto_dataloader(
        workload.dataset, batch_size=workload.batch_size * job.ranks, shuffle=True
    )
    make_trainer = lean_trainer if job.is_lean else default_trainer
    trainer = make_trainer(job, workload, model, optimizer)
    states = {"model": model, "optimizer": optimizer}
    if job.save_every:
        checkpoint = Checkpoint(states, DiskSaver("checkpoints", require_empty=False), n_saved=1)
        trainer.add_event_handler(Events.ITERATION_COMPLETED(every=job.save_every), checkpoint)
    if job.is_resumed:
        Checkpoint.load_objects(states, torch.load(_newest_checkpoint()))
    trainer.run(loader, max_epochs=1)


def _newest_checkpoint() -> pathlib.Path:
    return max(pathlib.Path("checkpoints").glob("*.pt"), key=lambda path: path.stat().st_mtime)


def main() -> None:
    job = Job.from_json(sys.argv[1])
    clock = Clock(job)

    def run(local_rank: int) -> None:
        train(job, build(job, clock))

    with idist.Parallel(backend="gloo" if job.ranks > 1 else None) as parallel:
        parallel.run(run)
    clock.finish()


if __name__ == "__main__":
    main()
