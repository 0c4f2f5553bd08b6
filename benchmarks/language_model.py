"""What the character example costs: `fit` against a plain loop in the manner of nanoGPT, in turns.

    OMP_NUM_THREADS=1 python -m benchmarks.language_model [--batches 60] [--rounds 7]

Both train the model of `examples/char_lm` with AdamW, warm-up and clipping. The plain loop draws
windows at random, takes the mean of a batch and reads the loss at every tenth one; ours is the
example's trial at the defaults of `fit`, with losses weighted by letters, metrics, TensorBoard and
progress. Prints milliseconds per batch and the median of the ratios ours / plain.
"""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import statistics
import sys
import tempfile
import time
from types import ModuleType
from typing import Any

import torch
from torch import nn

from determined import pytorch

_EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "char_lm" / "train.py"
_HPARAMS = {"global_batch_size": 32, "learning_rate": 3e-3, "width": 64, "layers": 2}
_WARM_UP = 50


def example() -> ModuleType:
    """Import the script of the example."""
    spec = importlib.util.spec_from_file_location("char_lm_example", _EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def plain(script: Any, count: int) -> float:
    """Return the seconds between the starts of the first and the last of `count` batches."""
    torch.manual_seed(0)
    model = script.LanguageModel(_HPARAMS["width"], _HPARAMS["layers"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=_HPARAMS["learning_rate"])
    numbers = {letter: number for number, letter in enumerate(script.LETTERS)}
    text = torch.tensor([numbers[letter] for letter in script.TEXT])
    length, size = script.CONTEXT, int(_HPARAMS["global_batch_size"])
    began = 0.0
    for step in range(count):
        if step == 0:
            began = time.perf_counter()
        elif step == count - 1:
            return time.perf_counter() - began
        rate = _HPARAMS["learning_rate"] * min(1.0, (step + 1) / _WARM_UP)
        for group in optimizer.param_groups:
            group["lr"] = rate
        starts = torch.randint(len(text) - length - 1, (size,)).tolist()
        inputs = torch.stack([text[start : start + length] for start in starts])
        targets = torch.stack([text[start + 1 : start + 1 + length] for start in starts])
        scores = model(inputs)
        loss: Any = nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 0:
            loss.item()
    raise ValueError("`count` must be at least 2.")


def ours(script: Any, count: int) -> float:
    """Return the same of the example's trial."""
    times: list[float] = []

    class Timed(script.LanguageTrial):  # type: ignore[misc]  # imported above
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx in (0, count - 1):
                times.append(time.perf_counter())
            return super().train_batch(batch, epoch_idx, batch_idx)

    with tempfile.TemporaryDirectory() as directory:
        torch.manual_seed(0)
        with pytorch.init(hparams=_HPARAMS, seed=7, checkpoint_storage=directory) as context:
            trainer = pytorch.Trainer(Timed(context), context)
            trainer.fit(max_length=pytorch.Batch(count), checkpoint_policy="none")
    return times[1] - times[0]


def main() -> None:
    """Measure in turns and print."""
    parser = argparse.ArgumentParser(description="Compare the character example with plain torch.")
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    script = example()
    pairs = []
    for round_idx in range(args.rounds + 1):
        turn = (plain(script, args.batches), ours(script, args.batches))
        if round_idx:  # the first one warms up
            pairs.append(turn)
    ratio = statistics.median(mine / theirs for theirs, mine in pairs)
    batches = args.batches - 1
    milliseconds = [
        statistics.median(column) / batches * 1e3 for column in zip(*pairs, strict=True)
    ]
    sys.stdout.write(
        f"plain {milliseconds[0]:.2f} ms, ours {milliseconds[1]:.2f} ms per batch, "
        f"ratio {ratio:.3f} (median of {args.rounds} turns of {args.batches} batches)\n"
    )


if __name__ == "__main__":
    main()
