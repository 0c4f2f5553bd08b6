"""Tune the model of pretrain.py to write code, by a LoRA adapter, and export the adapter.

python train.py
"""

from __future__ import annotations

import argparse
import inspect
import json
import json.decoder
import math
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path

import peft
import torch
import transformers
from torch import nn
from torch.utils.data import IterableDataset

from determined import pytorch

CONTEXT = 64
CODE = [textwrap, json, json.decoder, argparse]
HELD_OUT = [inspect]


class Packed(IterableDataset):
    """Functions of some modules one after the other, cut into pieces of one length."""

    def __init__(self, modules: list, limit: int = 100_000) -> None:
        self.modules, self.limit = modules, limit

    def __iter__(self) -> Iterator[torch.Tensor]:
        waiting = bytearray()
        read = 0
        for module in self.modules:
            for part in inspect.getsource(module).split("\ndef "):
                waiting += part.encode() + b"\0"
                while len(waiting) > CONTEXT and read < self.limit:
                    piece = waiting[: CONTEXT + 1]
                    yield torch.frombuffer(bytearray(piece), dtype=torch.uint8).long()
                    del waiting[:CONTEXT]
                    read += CONTEXT


class LoraTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        folder = context.get_hparam("folder")
        model = transformers.GPT2LMHeadModel.from_pretrained(folder)
        adapter = peft.LoraConfig(
            r=8, lora_alpha=16, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft uses an older name
            model = peft.get_peft_model(model, adapter)
        self.model = context.wrap_model(model)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = context.wrap_optimizer(torch.optim.AdamW(trained, lr=3e-3))

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(Packed(CODE), batch_size=16)

    def build_validation_data_loader(self) -> dict[str, pytorch.DataLoader]:
        sets = {"code": Packed(HELD_OUT, 10_000), "seen": Packed(CODE, 10_000)}
        return {name: pytorch.DataLoader(data, batch_size=16) for name, data in sets.items()}

    def summed_loss(self, text: torch.Tensor) -> tuple[torch.Tensor, int]:
        logits = self.model(input_ids=text[:, :-1]).logits
        targets = text[:, 1:].flatten()
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets, reduction="sum")
        return loss, targets.numel()

    def train_batch(
        self, batch: pytorch.TorchData, epoch_idx: int, batch_idx: int
    ) -> dict[str, pytorch.Weighted]:
        loss, letters = self.summed_loss(batch)
        self.context.backward(loss, weight=letters)
        self.context.step_optimizer(self.optimizer, clip_grad_norm=1.0)
        self.context.count(tokens=letters)
        return {"loss": pytorch.Weighted(loss, letters)}

    def evaluate_batch(self, batch: pytorch.TorchData) -> dict[str, pytorch.Weighted]:
        loss, letters = self.summed_loss(batch)
        return {"bits": pytorch.Weighted(loss / math.log(2), letters)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Tune a small model with LoRA.")
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--folder", type=Path, default=Path("pretrained"))
    parser.add_argument("--adapter", type=Path, default=Path("adapter"))
    args = parser.parse_args()
    hparams = {"folder": str(args.folder.absolute())}
    # Weights below the adapter never change: checkpoints share one copy of them.
    with pytorch.init(hparams=hparams, seed=1, run_id="lora", save_frozen="once") as context:
        trial = LoraTrial(context)
        trainer = pytorch.Trainer(trial, context)
        before = trainer.validate()
        trainer.fit(
            max_length=pytorch.Batch(args.batches),
            validation_period=pytorch.Batch(100),
            metric="code/bits",
        )
    after = trainer.latest_metrics
    print(f"before: {before['code/bits']:.2f} bits per letter of unseen code")
    print(f"after: {after['code/bits']:.2f} bits per letter of unseen code")
    pytorch.export(trainer.latest_checkpoint, args.adapter, trial_class=LoraTrial)
    size = sum(file.stat().st_size for file in args.adapter.glob("*.safetensors"))
    print(f"The adapter in {args.adapter} has {size / 1000:.0f} kB.")


if __name__ == "__main__":
    main()
