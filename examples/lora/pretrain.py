"""Train a small GPT-2 on the manual of Python, byte by byte, and write it as a folder.

python pretrain.py
"""

from __future__ import annotations

import argparse
from pathlib import Path
from pydoc_data.topics import topics

import torch
import transformers
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch

CONTEXT = 64
TEXT = "\n".join(topics[name] for name in sorted(topics))[:200_000].encode()


class PretrainTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        config = transformers.GPT2Config(
            vocab_size=256,
            n_positions=CONTEXT,
            n_embd=64,
            n_layer=2,
            n_head=4,
            bos_token_id=0,
            eos_token_id=0,
        )
        self.model = context.wrap_model(transformers.GPT2LMHeadModel(config))
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.optimizer = context.wrap_optimizer(optimizer)

    def build_training_data_loader(self) -> pytorch.DataLoader:
        text = torch.frombuffer(bytearray(TEXT), dtype=torch.uint8).long()
        windows = text.unfold(0, CONTEXT + 1, CONTEXT // 2)
        return pytorch.DataLoader(TensorDataset(windows), batch_size=16, shuffle=True)

    def train_batch(
        self, batch: pytorch.TorchData, epoch_idx: int, batch_idx: int
    ) -> dict[str, torch.Tensor]:
        logits = self.model(input_ids=batch[0][:, :-1]).logits
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[0][:, 1:].flatten())
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer, clip_grad_norm=1.0)
        return {"loss": loss}


def main() -> None:
    parser = argparse.ArgumentParser(description="Pretrain a small model.")
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--folder", type=Path, default=Path("pretrained"))
    args = parser.parse_args()
    with pytorch.init(seed=1, run_id="pretrain") as context:
        trainer = pytorch.Trainer(PretrainTrial(context), context)
        trainer.fit(max_length=pytorch.Batch(args.batches))
    pytorch.export(trainer.latest_checkpoint, args.folder, trial_class=PretrainTrial)
    print(f"Written: {args.folder}. Next: python train.py --folder {args.folder}")


if __name__ == "__main__":
    main()
