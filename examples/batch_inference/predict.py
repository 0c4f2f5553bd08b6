"""Label scikit-learn's handwritten digits with a model, on as many processes as you like.

python predict.py                              one process
torchrun --nproc_per_node 2 predict.py         two, each labels half of the batches
"""

from __future__ import annotations

import csv
import logging
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from determined.pytorch import MetricReducer
from determined.pytorch.experimental import (
    TorchBatchProcessor,
    TorchBatchProcessorContext,
    torch_batch_process,
)

STORAGE = Path("predictions")


def digits() -> TensorDataset:
    data = load_digits()
    return TensorDataset(
        torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
    )


def load_model() -> nn.Module:
    """Return a model; replace it with yours. This one is fitted by least squares, in no time."""
    images, labels = digits()[::10]
    wanted = nn.functional.one_hot(labels, 10).float() - 0.1
    weights = torch.linalg.lstsq(images, wanted, driver="gelsd").solution
    model = nn.Linear(64, 10, bias=False)
    model.load_state_dict({"weight": weights.T})
    return model


class Accuracy(MetricReducer):
    """Count hits in a plain tensor, which a stopped run saves and a resumed run restores."""

    def reset(self) -> None:
        self.counts = torch.zeros(2, dtype=torch.int64)

    def update(self, is_right: torch.Tensor) -> None:
        self.counts += torch.tensor([int(is_right.sum()), len(is_right)])

    def per_slot_reduce(self) -> torch.Tensor:
        return self.counts

    def cross_slot_reduce(self, per_slot_metrics: list[torch.Tensor]) -> float:
        right, total = torch.stack(per_slot_metrics).sum(dim=0).tolist()
        return float(right / total)


class Labeler(TorchBatchProcessor):
    def __init__(self, context: TorchBatchProcessorContext) -> None:
        self.context = context
        self.model = context.prepare_model_for_inference(load_model())
        self.accuracy = Accuracy()
        context.wrap_reducer(self.accuracy, name="accuracy")

    def process_batch(self, batch: Any, batch_idx: int) -> None:
        batch = self.context.to_device(batch)
        images, labels = batch
        predictions = self.model(images).argmax(dim=1)
        self.accuracy.update(predictions == labels)
        with (
            self.context.upload_path() as path,
            (path / f"batch_{batch_idx:04}.csv").open("w", newline="") as file,
        ):
            csv.writer(file).writerows(zip(predictions.tolist(), labels.tolist(), strict=True))

    def on_finish(self) -> None:
        if self.context.get_distributed_rank() == 0:
            files = sorted(STORAGE.glob("*/rank_*/batch_*.csv"))
            rows = sum(len(file.read_text().splitlines()) for file in files)
            print(f"{len(files)} files with {rows} labels are in {STORAGE.absolute()}.")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch_batch_process(
        Labeler,
        digits(),
        batch_size=64,
        checkpoint_interval=5,
        checkpoint_storage=STORAGE,
        latest_checkpoint="latest",
        inference_mode=True,
    )
