"""Classify digits as graphs of inked pixels: batches are objects of a custom class.

python train.py
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields

import torch
from sklearn.datasets import load_digits
from torch import nn

from determined import pytorch


@dataclass
class Graph:
    nodes: torch.Tensor  # one row per inked pixel: darkness, row, column
    edges: torch.Tensor  # two rows of node numbers: from, to
    label: int


@dataclass
class GraphBatch:
    """Many graphs merged into one; they differ in size, so they cannot be stacked."""

    nodes: torch.Tensor
    edges: torch.Tensor
    owner: torch.Tensor  # for each node, the number of its graph in the batch
    labels: torch.Tensor

    def to(self, device: torch.device) -> GraphBatch:
        """Move the batch; the trainer calls this."""
        return GraphBatch(*(getattr(self, field.name).to(device) for field in fields(self)))

    @property
    def num_graphs(self) -> int:
        return len(self.labels)


def collate(graphs: list[Graph]) -> GraphBatch:
    sizes = torch.tensor([len(graph.nodes) for graph in graphs])
    starts = sizes.cumsum(0) - sizes
    return GraphBatch(
        nodes=torch.cat([graph.nodes for graph in graphs]),
        edges=torch.cat([g.edges + start for g, start in zip(graphs, starts, strict=True)], dim=1),
        owner=torch.repeat_interleave(sizes),
        labels=torch.tensor([graph.label for graph in graphs]),
    )


def digit_graphs(train: bool) -> list[Graph]:
    """Return a graph per digit, with edges between neighbors: every fifth is for validation."""
    data = load_digits()
    graphs = []
    for index, (image, label) in enumerate(zip(data.images, data.target, strict=True)):
        if (index % 5 != 0) == train:
            ink = torch.tensor(image, dtype=torch.float32) / 16
            places = (ink > 0.25).nonzero()
            nodes = torch.cat([ink[places.T[0], places.T[1]].unsqueeze(1), places / 7], dim=1)
            steps = (places.unsqueeze(0) - places.unsqueeze(1)).abs().amax(dim=2)
            graphs.append(Graph(nodes, (steps == 1).nonzero().T, int(label)))
    return graphs


class GraphNet(nn.Module):
    def __init__(self, width: int = 64, rounds: int = 3) -> None:
        super().__init__()
        self.enter = nn.Linear(3, width)
        self.rounds = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(rounds))
        self.leave = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 10))

    def forward(self, batch: GraphBatch) -> torch.Tensor:
        source, target = batch.edges
        x = self.enter(batch.nodes)
        for layer in self.rounds:
            heard = torch.zeros_like(x).index_add(0, target, x[source])
            x = torch.relu(layer(torch.cat([x, heard], dim=1)))
        owner = batch.owner.unsqueeze(1).expand_as(x)
        pooled = [
            x.new_zeros(batch.num_graphs, x.shape[1]).scatter_reduce(0, owner, x, how)
            for how in ("mean", "amax")
        ]
        return self.leave(torch.cat(pooled, dim=1))


class GraphTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(GraphNet())
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=3e-3))

    def get_batch_length(self, batch: GraphBatch) -> int:
        return batch.num_graphs

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(
            digit_graphs(train=True),
            batch_size=self.context.get_per_slot_batch_size(),
            shuffle=True,
            collate_fn=collate,
        )

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(digit_graphs(train=False), batch_size=120, collate_fn=collate)

    def train_batch(
        self, batch: GraphBatch, epoch_idx: int, batch_idx: int
    ) -> dict[str, torch.Tensor]:
        loss = nn.functional.cross_entropy(self.model(batch), batch.labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: GraphBatch, batch_idx: int) -> dict[str, torch.Tensor]:
        is_right = self.model(batch).argmax(dim=1) == batch.labels
        return {"accuracy": is_right.float().mean()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Classify graphs.")
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()

    with pytorch.init(hparams={"global_batch_size": 32}, seed=7) as context:
        trial = GraphTrial(context)
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(
            max_length=pytorch.Epoch(args.epochs),
            validation_period=pytorch.Epoch(5),
            checkpoint_policy="none",
        )
        if context.distributed.rank == 0:
            graphs = collate(digit_graphs(train=False))
            trial.model.eval()
            with torch.no_grad():
                accuracy = trial.evaluate_batch(context.to_device(graphs), 0)["accuracy"]
            print(
                f"{accuracy:.1%} of {graphs.num_graphs} unseen graphs, with {len(graphs.nodes)} "
                "nodes in all, are right."
            )


if __name__ == "__main__":
    main()
