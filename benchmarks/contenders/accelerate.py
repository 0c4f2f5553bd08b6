"""Accelerate: as its guides log to TensorBoard, or nothing but `prepare` and `backward`."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

from benchmarks.job import Job
from benchmarks.turns import Clock
from benchmarks.workloads import Workload, build

_CHECKPOINT = "checkpoint"


def train(job: Job, workload: Workload) -> None:
    tracking: dict[str, Any] = (
        {} if job.is_lean else {"log_with": "tensorboard", "project_dir": "."}
    )
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=job.aggregation, **tracking)
    if tracking:
        accelerator.init_trackers("benchmark")
    optimizer: Any = workload.optimizer(workload.model)
    loader: Any = DataLoader(workload.dataset, workload.batch_size, shuffle=True)
    validation: Any = DataLoader(workload.validation_set, workload.batch_size)
    model, optimizer, loader, validation = accelerator.prepare(
        workload.model, optimizer, loader, validation
    )
    if job.is_resumed:
        accelerator.load_state(_CHECKPOINT)

    for index, (inputs, labels) in enumerate(loader, start=1):
        if job.is_lean and job.aggregation == 1:
            loss = workload.loss(model(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        else:
            with accelerator.accumulate(model):
                loss = workload.loss(model(inputs), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        if tracking:
            accelerator.log({"loss": loss.item()}, step=index)
        if job.validation_batches:
            validate(accelerator, model, validation, workload)
        if job.save_every and index % job.save_every == 0:
            accelerator.save_state(_CHECKPOINT)
    accelerator.end_training()


def validate(accelerator: Accelerator, model: Any, loader: Any, workload: Workload) -> None:
    model.eval()
    totals: dict[str, Any] = {}
    with torch.no_grad():
        for inputs, labels in loader:
            for name, value in workload.score(model(inputs), labels).items():
                totals[name] = totals.get(name, 0) + value
    model.train()
    means = {name: total.item() / len(loader) for name, total in totals.items()}
    if accelerator.log_with:
        accelerator.log(means)


def main() -> None:
    os.environ["ACCELERATE_USE_CPU"] = "true"
    job = Job.from_json(sys.argv[1])
    clock = Clock(job)
    train(job, build(job, clock))
    clock.finish()


if __name__ == "__main__":
    main()
