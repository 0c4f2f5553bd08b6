"""Compute ROC AUC over the whole validation set, for any batch size and number of ranks.

python train.py
torchrun --nproc_per_node 2 train.py
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch

Scored = tuple[torch.Tensor, torch.Tensor]  # scores and labels


def digits(train: bool) -> TensorDataset:
    """Return small images and whether they show an 8: every third one is kept for validation."""
    data = load_digits()
    images = torch.tensor(data.data, dtype=torch.float32) / 16
    is_eight = torch.tensor(data.target == 8, dtype=torch.float32)
    held_out = torch.arange(len(images)) % 3 == 0
    chosen = ~held_out if train else held_out
    return TensorDataset(images[chosen], is_eight[chosen])


def area_under_curve(scores: torch.Tensor, labels: torch.Tensor) -> float:
    return float(roc_auc_score(labels.numpy(), scores.numpy()))


class AUC(pytorch.MetricReducer):
    """A class chooses what it keeps and what it sends to the other ranks."""

    def reset(self) -> None:
        self.seen: list[Scored] = []

    def update(self, scores: torch.Tensor, labels: torch.Tensor) -> None:
        self.seen.append((scores.detach().cpu(), labels.cpu()))

    def per_slot_reduce(self) -> list[Scored]:
        return self.seen

    def cross_slot_reduce(self, per_slot_metrics: list[list[Scored]]) -> float:
        scores, labels = zip(*sum(per_slot_metrics, []), strict=True)
        return area_under_curve(torch.cat(scores), torch.cat(labels))


def average_precision(values: list[Scored]) -> float:
    """A function gets every value passed to `update`, from all batches and ranks."""
    scores, labels = (torch.cat(parts).numpy() for parts in zip(*values, strict=True))
    return float(average_precision_score(labels, scores))


class KeepMetrics(pytorch.PyTorchCallback):
    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.metrics = metrics


class EightsTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(nn.Linear(64, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))
        self.auc = context.wrap_reducer(AUC(), name="auc")
        self.precision = context.wrap_reducer(
            average_precision, name="average_precision", for_training=False
        )
        self.kept = KeepMetrics()

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return {"keep_metrics": self.kept}

    def build_training_data_loader(self) -> pytorch.DataLoader:
        batch_size = self.context.get_per_slot_batch_size()
        return pytorch.DataLoader(digits(train=True), batch_size=batch_size, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(digits(train=False), batch_size=32)

    def train_batch(
        self, batch: pytorch.TorchData, epoch_idx: int, batch_idx: int
    ) -> dict[str, torch.Tensor]:
        images, labels = batch
        scores = self.model(images).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(scores, labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        self.auc.update(scores, labels)
        return {"loss": loss}

    def evaluate_batch(self, batch: pytorch.TorchData, batch_idx: int) -> dict[str, Any]:
        images, labels = batch
        scores = self.model(images).squeeze(1)
        self.auc.update(scores, labels)
        self.precision.update((scores.cpu(), labels.cpu()))
        return {"mean_of_batches": area_under_curve(scores.cpu(), labels.cpu())}


def main() -> None:
    parser = argparse.ArgumentParser(description="Metrics over the whole validation set.")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()

    with pytorch.init(hparams={"global_batch_size": 32}, seed=7) as context:
        trial = EightsTrial(context)
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(
            max_length=pytorch.Epoch(args.epochs),
            validation_period=pytorch.Epoch(1),
            metric="auc",
            smaller_is_better=False,
        )
        if context.distributed.rank == 0:
            images, labels = digits(train=False)[:]
            with torch.no_grad():
                direct = area_under_curve(trial.model(images).squeeze(1), labels)
            metrics = trial.kept.metrics
            print(f"AUC of the reducer, {context.distributed.size} ranks: {metrics['auc']:.6f}")
            print(f"AUC of all scores at once:   {direct:.6f}")
            print(f"mean of the batches' AUCs:   {metrics['mean_of_batches']:.6f}, another number")
            print(f"average precision:           {metrics['average_precision']:.6f}")


if __name__ == "__main__":
    main()
