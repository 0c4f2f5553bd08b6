"""Train a model that is sharded over all processes.

torchrun --nproc_per_node 2 train.py     each process holds half of it
python train.py --resume --epochs 6      one process resumes with the full model
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch


def digits(train: bool) -> TensorDataset:
    """Return images and labels: the first 1408, a multiple of the batch size, are for training."""
    data = load_digits()
    images = torch.tensor(data.data, dtype=torch.float32) / 16
    labels = torch.tensor(data.target)
    chosen = slice(None, 1408) if train else slice(1408, None)
    return TensorDataset(images[chosen], labels[chosen])


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


class Net(nn.Module):
    def __init__(self, width: int, num_blocks: int) -> None:
        super().__init__()
        self.embed = nn.Linear(64, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(num_blocks))
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class DigitsTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        # Built on the CPU, then moved to the device block by block, keeping only this rank's shard.
        self.model = context.wrap_model(Net(width=128, num_blocks=6), parallel="fsdp")
        self.optimizer = context.wrap_optimizer(
            torch.optim.AdamW(self.model.parameters(), lr=1e-3)  # its state is sharded too
        )

    def build_training_data_loader(self) -> pytorch.DataLoader:
        batch_size = self.context.get_per_slot_batch_size()
        return pytorch.DataLoader(digits(train=True), batch_size=batch_size, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(digits(train=False), batch_size=50)

    def train_batch(
        self, batch: pytorch.TorchData, epoch_idx: int, batch_idx: int
    ) -> dict[str, torch.Tensor]:
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.context.backward(loss)
        self.context.step_optimizer(
            self.optimizer,
            clip_grads=lambda params: torch.nn.utils.clip_grad_norm_(params, 1.0),
        )
        return {"loss": loss}

    def evaluate_batch(self, batch: pytorch.TorchData, batch_idx: int) -> dict[str, int]:
        images, labels = batch
        return {"right": int((self.model(images).argmax(dim=1) == labels).sum())}

    def evaluation_reducer(self) -> pytorch.Reducer:
        return pytorch.Reducer.SUM  # over batches and ranks


def numbers_held(tensors: list[torch.Tensor]) -> int:
    """Count the elements that this process holds: for a sharded tensor, only its own shard."""
    return sum(getattr(t, "to_local", lambda t=t: t)().numel() for t in tensors)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a model that is split over processes.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--resume", action="store_true", help="continue from the latest checkpoint")
    args = parser.parse_args()

    with pytorch.init(hparams={"global_batch_size": 64}, seed=7) as context:
        ranks = context.distributed
        trial = DigitsTrial(context)
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(
            max_length=pytorch.Epoch(args.epochs),
            validation_period=pytorch.Epoch(1),
            metric="right",
            smaller_is_better=False,
            latest_checkpoint="latest" if args.resume else None,
        )
        weights = list(trial.model.parameters())
        states = [s["exp_avg"] for s in trial.optimizer.state.values()]
        share = numbers_held(weights), numbers_held(states), sum(p.numel() for p in weights)
        gathered = ranks.gather(share)
        if gathered is not None:  # on the chief, which is rank 0
            for rank, (held, averages, total) in enumerate(gathered):
                print(f"rank {rank} holds {held:,} of {total:,} weights, {averages:,} averages")

    if ranks.rank == 0 and trainer.latest_checkpoint is not None:
        trial = pytorch.load_trial_from_checkpoint_path(trainer.latest_checkpoint, DigitsTrial)
        images, labels = digits(train=False)[:]
        accuracy = (trial.model.eval()(images).argmax(dim=1) == labels).float().mean()
        print(f"Loaded whole in one process, {accuracy:.1%} of {len(labels)} digits are right.")


if __name__ == "__main__":
    main()
