"""Train a small transformer to write, character by character, like the Python manual.

python train.py
det experiment create adaptive.yaml .
"""

from __future__ import annotations

import argparse
import math
from pydoc_data.topics import topics

import torch
from torch import nn
from torch.utils.data import TensorDataset

import determined as det
from determined import pytorch

TEXT = "\n".join(topics[name] for name in sorted(topics))[:300_000]
LETTERS = sorted(set(TEXT))
CONTEXT = 64


def windows(train: bool) -> TensorDataset:
    """Return overlapping windows of encoded text: the last tenth is kept for validation."""
    numbers = {letter: number for number, letter in enumerate(LETTERS)}
    text = torch.tensor([numbers[letter] for letter in TEXT])
    split = len(text) * 9 // 10
    text = text[:split] if train else text[split:]
    return TensorDataset(text.unfold(0, CONTEXT + 1, CONTEXT // 4 if train else CONTEXT))


class LanguageModel(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), width)
        self.positions = nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(
            width,
            nhead=4,
            dim_feedforward=4 * width,
            dropout=0.0,
            batch_first=True,
            norm_first=True,
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.scores = nn.Linear(width, len(LETTERS))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        length = text.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=text.device)
        x = self.letters(text) + self.positions.weight[:length]
        return self.scores(self.layers(x, mask=mask, is_causal=True))


class LanguageTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        model = LanguageModel(context.get_hparam("width"), context.get_hparam("layers"))
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(
            torch.optim.AdamW(self.model.parameters(), lr=context.get_hparam("learning_rate"))
        )
        warm_up = torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.1, total_iters=50)
        context.wrap_lr_scheduler(warm_up, pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH)

    def build_training_data_loader(self) -> pytorch.DataLoader:
        batch_size = self.context.get_per_slot_batch_size()
        return pytorch.DataLoader(windows(train=True), batch_size=batch_size, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(windows(train=False), batch_size=64)

    def summed_loss(self, text: torch.Tensor) -> tuple[torch.Tensor, int]:
        scores, targets = self.model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()
        return nn.functional.cross_entropy(scores, targets, reduction="sum"), targets.numel()

    def train_batch(
        self, batch: pytorch.TorchData, epoch_idx: int, batch_idx: int
    ) -> dict[str, pytorch.Weighted]:
        loss, letters = self.summed_loss(batch[0])
        self.context.backward(loss, weight=letters)
        self.context.step_optimizer(self.optimizer, clip_grad_norm=1.0)
        self.context.count(tokens=letters)
        return {"loss": pytorch.Weighted(loss, letters)}

    def evaluate_batch(self, batch: pytorch.TorchData) -> dict[str, pytorch.Weighted]:
        loss, letters = self.summed_loss(batch[0])
        return {"bits_per_letter": pytorch.Weighted(loss / math.log(2), letters)}


@torch.no_grad()
def write(model: nn.Module, start: str, length: int) -> str:
    text = torch.tensor([[LETTERS.index(letter) for letter in start]])
    for _ in range(length):
        scores = model(text[:, -CONTEXT:])[:, -1] / 0.7
        text = torch.cat([text, torch.multinomial(scores.softmax(dim=1), 1)], dim=1)
    return "".join(LETTERS[number] for number in text[0].tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn to write like the manual of Python.")
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--width", type=int, default=64)
    args = parser.parse_args()

    hparams = {"global_batch_size": 32, "learning_rate": 3e-3, "width": args.width, "layers": 2}
    info = det.get_cluster_info()
    if info is not None:  # on the platform, the experiment sets the hyperparameters
        hparams |= info.trial.hparams
    with pytorch.init(hparams=hparams, seed=7) as context:
        trainer = pytorch.Trainer(LanguageTrial(context), context)
        trainer.fit(
            max_length=pytorch.Batch(args.batches),
            validation_period=pytorch.Batch(100),
            metric="bits_per_letter",
        )

    if context.distributed.rank == 0:
        trial = pytorch.load_trial_from_checkpoint_path(trainer.latest_checkpoint, LanguageTrial)
        trial.model.eval()
        print(write(trial.model, start="The value of ", length=200))
        with torch.no_grad():
            bits = float(trial.evaluate_batch(windows(train=False)[:200])["bits_per_letter"])
        print(
            f"\n{bits:.2f} bits per letter; guessing blindly takes {math.log2(len(LETTERS)):.2f}."
        )


if __name__ == "__main__":
    main()
