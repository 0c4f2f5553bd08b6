"""Train a text classifier with transformers.Trainer: is a sentence about weather or about food?

python train.py                          by itself
det experiment create adaptive.yaml .    as a search on the platform, which can pause and resume it
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EvalPrediction,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)

import determined as det
from determined import core
from determined.transformers import DetCallback

TOPICS = (
    ["rain", "sun", "cloud", "wind", "storm", "snow"],
    ["bread", "soup", "rice", "cheese", "egg"],
)
FILLERS = ["today", "we", "had", "some", "very", "good", "and", "then", "more", "of", "the", "so"]
WORDS = ["[PAD]", *FILLERS, *TOPICS[0], *TOPICS[1]]
LENGTH = 8


class Sentences(Dataset[dict[str, Any]]):
    """Sentences of fillers with one word of a topic, which is the label."""

    def __init__(self, count: int, seed: int) -> None:
        draw = random.Random(seed)
        self.samples = []
        for _ in range(count):
            topic = draw.randrange(2)
            words = [draw.choice(FILLERS) for _ in range(LENGTH - 1)]
            words.insert(draw.randrange(LENGTH), draw.choice(TOPICS[topic]))
            self.samples.append(
                {"input_ids": torch.tensor([WORDS.index(w) for w in words]), "labels": topic}
            )

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.samples[index]


def build_model() -> BertForSequenceClassification:
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=len(WORDS),
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=LENGTH,
        )
    )


def accuracy(predicted: EvalPrediction) -> dict[str, float]:
    right = predicted.predictions.argmax(-1) == predicted.label_ids
    return {"accuracy": float(right.mean())}


def train(core_context: core.Context, args: TrainingArguments) -> None:
    callback = DetCallback(core_context, args)
    trainer = Trainer(
        model=build_model(),
        args=args,
        train_dataset=Sentences(2000, seed=1),
        eval_dataset=Sentences(400, seed=2),
        compute_metrics=accuracy,
        callbacks=[callback],
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    if not core_context.preempt.is_preempted:
        print(f"{trainer.evaluate()['eval_accuracy']:.1%} of the held-out sentences are right.")


def main() -> None:
    info = det.get_cluster_info()
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    args.output_dir = args.output_dir or "trainer_output"
    args.per_device_train_batch_size = 16
    args.max_steps = args.max_steps if args.max_steps > 0 else 120
    args.eval_strategy, args.eval_steps, args.do_eval = "steps", 20, True
    args.save_steps = args.logging_steps = 20
    args.report_to = []
    args.learning_rate = info.trial.hparams["learning_rate"] if info is not None else 3e-3
    with core.init(metric="eval_accuracy", smaller_is_better=False) as core_context:
        train(core_context, args)


if __name__ == "__main__":
    main()
