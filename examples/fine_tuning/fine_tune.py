"""Freeze the body of a trained net and train a new head that tells even from odd digits.

python fine_tune.py path/to/checkpoint
"""

from __future__ import annotations

import argparse

import torch
from pretrain import PretrainTrial, build_body, digits
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch


def parities(train: bool, limit: int | None = None) -> TensorDataset:
    images, labels = digits(train)[:limit]
    return TensorDataset(images, labels % 2)


class FineTuneTrial(PretrainTrial):
    """The same training steps as in pretrain.py, with two models, one of which may be frozen."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.body = build_body()
        if context.get_hparam("freeze"):
            self.body.requires_grad_(False)  # before wrapping: its gradients are not synchronized
        self.body = context.wrap_model(self.body)
        self.head = context.wrap_model(nn.Linear(64, 2))
        trainable = [p for m in (self.body, self.head) for p in m.parameters() if p.requires_grad]
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(trainable, lr=3e-3))

    def build_training_data_loader(self) -> pytorch.DataLoader:
        few = parities(train=True, limit=self.context.get_hparam("images"))
        batch_size = self.context.get_per_slot_batch_size()
        return pytorch.DataLoader(few, batch_size=batch_size, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(parities(train=False), batch_size=100)

    def model(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(images))


def train(start: dict[str, torch.Tensor] | None, images: int, epochs: int) -> FineTuneTrial:
    hparams = {"global_batch_size": 8, "images": images, "freeze": start is not None}
    with pytorch.init(hparams=hparams, seed=7) as context:
        trial = FineTuneTrial(context)
        if start is not None:
            context.models[0].load_state_dict(start)
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(max_length=pytorch.Epoch(epochs), checkpoint_policy="none")
    return trial


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn even and odd from few images.")
    parser.add_argument("checkpoint", help="path that pretrain.py printed")
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=40)
    args = parser.parse_args()

    # Without the class argument, it would be imported from the code in the checkpoint.
    pretrained = pytorch.load_trial_from_checkpoint_path(args.checkpoint, PretrainTrial)
    start = pretrained.model[0].state_dict()

    tuned = train(start, args.images, args.epochs)
    scratch = train(None, args.images, args.epochs)
    unchanged = all(torch.equal(start[name], p) for name, p in tuned.body.state_dict().items())
    print(f"Even or odd? {args.images} images to learn from; right among unseen ones:")
    print(f"  a new head on the trained body:  {tuned.last.metrics['accuracy']:.1%}")
    print(f"  the same net from scratch:       {scratch.last.metrics['accuracy']:.1%}")
    print(f"The trained body is {'as it was' if unchanged else 'changed'}.")


if __name__ == "__main__":
    main()
