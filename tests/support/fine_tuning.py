"""Tiny models for `transformers.Trainer`, made from a configuration: nothing is downloaded.

As a script, or the entrypoint of an experiment, it trains as the hyperparameters say and prints a
digest of the weights:

    kind                  classifier, causal_lm or lora
    batch_size            of one process
    kill_at               the first run of the trial kills itself after that step
    pause_at              the trial waits after that step, once, until it is asked to stop
    is_augmented          the training data draws random numbers
    is_first_best         the first trial has the best `eval_score`, and does not wait
    others                of TrainingArguments
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import determined as det
from determined import core
from tests.support.waiting import eventually

VOCABULARY = 32
LENGTH = 6


class Sentences(Dataset[dict[str, Any]]):
    """Random tokens; the first one decides the label. Some sentences are longer than others."""

    def __init__(self, count: int, seed: int, *, is_augmented: bool = False) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(4, VOCABULARY, (count, LENGTH), generator=generator)
        self.is_augmented = is_augmented

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, Any]:
        tokens = self.tokens[index].clone()
        label = int(tokens[0] >= VOCABULARY // 2)
        if self.is_augmented:  # with each of the three generators
            tokens[1 + random.randrange(LENGTH - 1)] = 3
            tokens[1 + int(np.random.randint(LENGTH - 1))] = 3
            tokens[1 + int(torch.randint(LENGTH - 1, ()))] = 3
        return {"input_ids": tokens, "labels": label, "length": 1 + index % LENGTH}


def collate(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """A batch for the classifier."""
    return {
        "input_ids": torch.stack([sample["input_ids"] for sample in samples]),
        "labels": torch.tensor([sample["labels"] for sample in samples]),
    }


def collate_language(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """A batch for a language model: it predicts the tokens themselves."""
    tokens = torch.stack([sample["input_ids"] for sample in samples])
    return {"input_ids": tokens, "labels": tokens.clone()}


def collate_masked(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """A batch with random gaps, as for masked language models."""
    batch = collate(samples)
    gaps = torch.rand(batch["input_ids"].shape) < 0.3
    gaps[:, 0] = False
    batch["input_ids"] = batch["input_ids"].masked_fill(gaps, 3)
    return batch


def build_model(kind: str, dropout: float = 0.1) -> nn.Module:
    """A model with the same weights whenever it is built."""
    torch.manual_seed(11)
    if kind == "classifier":
        return BertForSequenceClassification(
            BertConfig(
                vocab_size=VOCABULARY,
                hidden_size=8,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=8,
                max_position_embeddings=LENGTH,
                hidden_dropout_prob=dropout,
                attention_probs_dropout_prob=dropout,
            )
        )
    model: nn.Module = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=8,
            max_position_embeddings=LENGTH,
            attention_dropout=dropout,
        )
    )
    if kind == "lora":
        from peft import LoraConfig, get_peft_model

        adapter = LoraConfig(r=2, lora_dropout=dropout, target_modules=["q_proj", "v_proj"])
        model = get_peft_model(model, adapter)
    return model


def build_arguments(folder: str | Path, **given: Any) -> TrainingArguments:
    """Arguments of a short and quiet training."""
    values: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": 12,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "logging_steps": 3,
        "eval_strategy": "steps",
        "eval_steps": 6,
        "save_steps": 5,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "remove_unused_columns": False,
        **given,
    }
    return TrainingArguments(**values)


def build_trainer(
    args: TrainingArguments, kind: str = "classifier", dropout: float = 0.1, **given: Any
) -> Trainer:
    """A trainer of one of the models, with 28 sentences: seven batches of four are an epoch."""
    is_classifier = kind == "classifier"
    values: dict[str, Any] = {
        "model": build_model(kind, dropout),
        "args": args,
        "train_dataset": Sentences(28, 1),
        "eval_dataset": Sentences(8, 2),
        "data_collator": collate if is_classifier else collate_language,
        "compute_metrics": accuracy if is_classifier else None,
        **given,
    }
    return Trainer(**values)


def accuracy(predicted: Any) -> dict[str, float]:
    """Return what a trainer calls `eval_accuracy`."""
    right = predicted.predictions.argmax(-1) == predicted.label_ids
    return {"accuracy": float(right.mean())}


def digest(model: nn.Module | None) -> str:
    """Return a hash of all weights."""
    assert model is not None
    weights = (value.detach().contiguous().numpy().tobytes() for value in model.parameters())
    return hashlib.sha256(b"".join(weights)).hexdigest()[:16]


def norm(model: nn.Module | None) -> float:
    """Return the length of all weights together."""
    assert model is not None
    squares = [float(value.detach().double().square().sum()) for value in model.parameters()]
    return math.sqrt(sum(squares))


class Incidents(TrainerCallback):
    """Kills the process after a step, or waits there for a request to stop."""

    def __init__(self, context: core.Context, kill_at: int, pause_at: int) -> None:
        self._context = context
        self._kill_at = kill_at
        self._pause_at = pause_at
        trial = det.get_cluster_info()
        self._is_first_run = trial is None or trial.latest_checkpoint is None

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        rank = self._context.distributed.rank
        if state.global_step == self._kill_at and self._is_first_run and rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if state.global_step == self._pause_at:
            info = det.get_cluster_info()
            assert info is not None
            if info.trial._steps_completed < self._pause_at:
                print(f"waiting at step {state.global_step}", flush=True)  # noqa: T201
                eventually(self._context.preempt.preempt_requested_locally)


def main() -> None:
    """Train as the hyperparameters say."""
    from determined.transformers import DetCallback

    info = det.get_cluster_info()
    given = json.loads(os.environ.get("FINE_TUNING", "{}"))
    hparams = dict(info.trial.hparams) if info is not None else given
    kind = hparams.pop("kind", "classifier")
    dropout = hparams.pop("dropout", 0.1)
    incidents = hparams.pop("kill_at", -1), hparams.pop("pause_at", -1)
    parts: dict[str, Any] = {}
    if hparams.pop("is_first_best", False):
        assert info is not None
        trial = info.trial.trial_id
        parts = {"compute_metrics": lambda _: {"score": float(trial)}}
        incidents = (-1, -1) if trial == 1 else incidents
    if hparams.pop("is_augmented", False):
        parts["train_dataset"] = Sentences(28, 1, is_augmented=True)
    distributed = None
    if "RANK" in os.environ:
        distributed = core.DistributedContext.from_torch_distributed()
    with core.init(distributed=distributed) as context:
        args = build_arguments("out", **{"resume_from_checkpoint": "latest", **hparams})
        trainer = build_trainer(args, kind, dropout, **parts)
        trainer.add_callback(Incidents(context, *incidents))
        trainer.add_callback(DetCallback(context, args))
        trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        print(f"weights {digest(trainer.model)} norm {norm(trainer.model)}")  # noqa: T201


if __name__ == "__main__":
    main()
