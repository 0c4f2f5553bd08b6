"""A hand-written torch loop: nothing but the training. The baseline of every ratio."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from benchmarks.job import Job
from benchmarks.turns import Clock
from benchmarks.workloads import Workload, build

_CHECKPOINT = "checkpoint.pt"


def train(job: Job, workload: Workload) -> None:
    model: nn.Module = workload.model
    loader: DataLoader[Any] = DataLoader(workload.dataset, workload.batch_size, shuffle=True)
    if job.ranks > 1:
        model = nn.parallel.DistributedDataParallel(model)
        sampler: Any = DistributedSampler(workload.dataset)
        loader = DataLoader(workload.dataset, workload.batch_size, sampler=sampler)
    optimizer = workload.optimizer(model)
    if job.is_resumed:
        saved = torch.load(_CHECKPOINT)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])

    for index, (inputs, labels) in enumerate(loader, start=1):
        is_update = index % job.aggregation == 0
        loss = workload.loss(model(inputs), labels)
        if job.metrics > 1:
            _ = {f"metric_{k}": loss for k in range(job.metrics)}
        if job.aggregation > 1:
            loss = loss / job.aggregation
        loss.backward()  # type: ignore[no-untyped-call]
        if is_update:
            optimizer.step()
            optimizer.zero_grad()
        if job.validation_batches:
            validate(model, workload)
        if job.save_every and index % job.save_every == 0:
            states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(states, _CHECKPOINT)


def validate(model: nn.Module, workload: Workload) -> dict[str, float]:
    """Return the mean of each metric."""
    model.eval()
    totals: dict[str, torch.Tensor] = {}
    loader: DataLoader[Any] = DataLoader(workload.validation_set, workload.batch_size)
    with torch.no_grad():
        for inputs, labels in loader:
            for name, value in workload.score(model(inputs), labels).items():
                totals[name] = totals.get(name, 0) + value
    model.train()
    return {name: total.item() / len(loader) for name, total in totals.items()}


def main() -> None:
    job = Job.from_json(sys.argv[1])
    clock = Clock(job)
    if "RANK" in os.environ:
        torch.distributed.init_process_group("gloo")
    train(job, build(job, clock))
    clock.finish()
    if "RANK" in os.environ:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
