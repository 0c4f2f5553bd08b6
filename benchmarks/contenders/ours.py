"""determined.pytorch: with its defaults, or with reports, TensorBoard and progress off."""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

from benchmarks.job import Job
from benchmarks.turns import Clock
from benchmarks.workloads import Workload, build
from determined import pytorch


class Counter(pytorch.PyTorchCallback):
    """The least that a callback can do after each batch."""

    def __init__(self) -> None:
        self.batches = 0

    def on_training_batch_end(self, epoch_idx: int, batch_idx: int, outputs: Any) -> None:
        self.batches += 1


class Trial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext, job: Job, workload: Workload) -> None:
        self.context = context
        self.job = job
        self.workload = workload
        self.model = context.wrap_model(workload.model)
        self.others = [context.wrap_model(nn.Linear(1, 1)) for _ in range(job.models - 1)]
        self.optimizer = context.wrap_optimizer(workload.optimizer(self.model))

    def build_training_data_loader(self) -> pytorch.DataLoader:
        batch_size = self.context.get_per_slot_batch_size()
        return pytorch.DataLoader(self.workload.dataset, batch_size=batch_size, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(self.workload.validation_set, self.workload.batch_size)

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return {f"counter_{k}": Counter() for k in range(self.job.callbacks)}

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        inputs, labels = batch
        loss = self.workload.loss(self.model(inputs), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        if self.job.metrics > 1:
            return {f"metric_{k}": loss for k in range(self.job.metrics)}
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
        inputs, labels = batch
        return self.workload.score(self.model(inputs), labels)


def main() -> None:
    job = Job.from_json(sys.argv[1])
    clock = Clock(job)
    workload = build(job, clock)
    options: dict[str, Any] = {}
    if job.is_lean:
        options = {"progress": False, "reporting_period": None}
    elif job.report_every != Job.report_every:
        options = {"reporting_period": pytorch.Batch(job.report_every)}
    if job.validation_batches:
        # Nobody else in this comparison saves a checkpoint with each validation.
        options |= {"validation_period": pytorch.Batch(1), "checkpoint_policy": "none"}
    if job.save_every:
        options["checkpoint_period"] = pytorch.Batch(job.save_every)
    with pytorch.init(
        hparams={"global_batch_size": workload.batch_size * job.ranks},
        aggregation_frequency=job.aggregation,
        enable_tensorboard_logging=not job.is_lean,
        seed=0,
        checkpoint_storage="checkpoints",
        run_id="benchmark",
    ) as context:
        trainer = pytorch.Trainer(Trial(context, job, workload), context)
        trainer.fit(
            max_length=pytorch.Batch(job.batches * 2 if job.is_resumed else job.batches),
            latest_checkpoint="latest" if job.is_resumed else None,
            **options,
        )
    clock.finish()


if __name__ == "__main__":
    main()
