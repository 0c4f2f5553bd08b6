"""Fine-tuning scripts written as for the original: nested arguments, launcher, user data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the extra `transformers` is not installed")
pytest.importorskip("accelerate", reason="the extra `transformers` is not installed")

from determined.store import Experiment
from tests.support.lab import Lab, lab

__all__ = ["lab"]
pytestmark = [pytest.mark.slow, pytest.mark.multiprocess, pytest.mark.timeout(400)]

_ROOT = Path(__file__).parents[2]
_MODEL = """
import logging
import determined as det
import torch
import transformers
from determined.transformers import DetCallback
from tests.support.fine_tuning import Sentences, build_model, collate, collate_language
"""

# Command-line arguments made from the hyperparameters, all ranks through the launcher.
_CLASSIFIER = (
    _MODEL
    + """
def as_words(hparams):
    words = []
    for name, value in hparams.items():
        words += [f"--{name}", str(value)]
    return words


def accuracy(predicted):
    return {"accuracy": float((predicted.predictions.argmax(-1) == predicted.label_ids).mean())}


def main(core_context, hparams):
    (args,) = transformers.HfArgumentParser(
        transformers.TrainingArguments
    ).parse_args_into_dataclasses(as_words(hparams["training_arguments"]))
    transformers.set_seed(args.seed)
    trainer = transformers.Trainer(
        model=build_model("classifier"),
        args=args,
        data_collator=collate,
        train_dataset=Sentences(32, 1),
        eval_dataset=Sentences(8, 2),
        compute_metrics=accuracy,
    )
    info = det.get_cluster_info()
    user_data = {"finetuned_from": hparams["model"], "tasks": info.user_data["task"]}
    callback = DetCallback(
        core_context, args, filter_metrics=["loss", "accuracy"], user_data=user_data
    )
    trainer.add_callback(callback)
    result = trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    rank, size = core_context.distributed.get_rank(), core_context.distributed.get_size()
    steps = core_context.distributed.broadcast(result.global_step)
    print(f"rank {rank} of {size} ended at {steps}", flush=True)
    metrics = trainer.evaluate()
    if core_context.distributed.rank == 0:
        trainer.log_metrics("eval", metrics)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    info = det.get_cluster_info()
    assert info, "this script runs on a cluster"
    distributed = det.core.DistributedContext.from_torch_distributed()
    with det.core.init(distributed=distributed) as core_context:
        main(core_context, info.trial.hparams)
"""
)

# TrainingArguments from a nested map; the callback among the arguments of the trainer; epochs.
_LANGUAGE = (
    _MODEL
    + """
info = det.get_cluster_info()
hparams = info.trial.hparams
args = transformers.TrainingArguments(**hparams["training_arguments"])
with det.core.init() as core_context:
    callback = det.transformers.DetCallback(core_context, args, user_data={"block": 6})
    trainer = transformers.Trainer(
        model=build_model("causal_lm"),
        args=args,
        data_collator=collate_language,
        train_dataset=Sentences(16, 1),
        eval_dataset=Sentences(8, 2),
        callbacks=[callback],
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    logging.info("searcher metric: %s", callback.searcher_metric)
"""
)

# Attributes that scripts read, a warm start by hand, and the experiment's own configuration.
_SEARCHED = (
    _MODEL
    + """
def main():
    info = det.get_cluster_info()
    config = det.ExperimentConfig(info.trial._config)
    given = info.trial.hparams
    args = transformers.TrainingArguments(
        output_dir="out", max_steps=given["max_steps"], learning_rate=given["learning_rate"],
        per_device_train_batch_size=given["batch_size"], eval_strategy="steps", eval_steps=2,
        logging_steps=2, save_steps=4, report_to="none", use_cpu=True, disable_tqdm=True,
        seed=info.trial.trial_seed % 1000,
    )
    with det.core.init() as core_context:
        callback = DetCallback(core_context, args)
        trainer = transformers.Trainer(
            build_model("lora"), args, data_collator=collate_language,
            train_dataset=Sentences(16, 1), eval_dataset=Sentences(8, 2), callbacks=[callback],
        )
        trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        assert callback.last_eval_metrics > 0
        assert config.slots_per_trial() == 1


if __name__ == "__main__":
    main()
"""
)
_NESTED = {
    "output_dir": "out",
    "learning_rate": 0.01,
    "per_device_train_batch_size": 4,
    "logging_steps": 2,
    "eval_strategy": "steps",
    "eval_steps": 2,
    "save_strategy": "steps",
    "save_steps": 2,
    "report_to": "none",
    "use_cpu": True,
}


def create(lab: Lab, script: str, **config: Any) -> int:
    variables = [f"PYTHONPATH={_ROOT}", "OMP_NUM_THREADS=1"]
    environment = {"environment_variables": variables}
    return lab.create(script, environment=environment, **config)


def test_three_scripts_for_the_original_run_as_they_are(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_SLOTS", "2")
    launched = "python3 -m determined.launch.torch_distributed python3 script.py"
    classifier = create(
        lab,
        _CLASSIFIER,
        entrypoint=launched,
        data={"task": "sentences"},
        resources={"slots_per_trial": 2},
        searcher={
            **{"name": "single", "metric": "eval_accuracy", "max_length": {"batches": 4}},
            "smaller_is_better": False,
        },
        hyperparameters={"model": "tiny", "training_arguments": {**_NESTED, "max_steps": 4}},
    )
    language = create(
        lab,
        _LANGUAGE,
        searcher={"name": "single", "metric": "eval_loss", "max_length": {"epochs": 1}},
        hyperparameters={"training_arguments": {**_NESTED, "num_train_epochs": 1}},
    )
    searched = create(
        lab,
        _SEARCHED,
        searcher={
            **{"name": "adaptive_asha", "metric": "eval_loss", "max_trials": 2},
            **{"time_metric": "batches", "max_time": 4, "max_rungs": 2, "divisor": 2},
        },
        hyperparameters={
            "learning_rate": {"type": "log", "base": 10, "minval": -4, "maxval": -2},
            **{"batch_size": 4, "max_steps": 4},
        },
    )
    ended = {number: lab.wait(number) for number in (classifier, language, searched)}
    assert {one.state for one in ended.values()} == {"COMPLETED"}, lab.account()
    check_classifier(lab, ended[classifier])
    (trial,) = lab.trials(language)
    assert trial.total_batches == 4
    assert saved(lab, language, "checkpoint-4/my_data.json") == {"block": 6}
    assert len(lab.trials(searched)) == 2
    assert ended[searched].best_validation is not None


def check_classifier(lab: Lab, experiment: Experiment) -> None:
    (run,) = lab.runs(experiment.id)
    assert {f"rank {rank} of 2 ended at 4" in lab.log(run) for rank in (0, 1)} == {True}
    (trial,) = lab.trials(experiment.id)
    reports = list(lab.service.reader.metrics.reports(trial.id, "validation"))
    assert [report.steps_completed for report in reports] == [2, 4]
    assert reports[0].metrics.keys() == {"eval_loss", "eval_accuracy", "batches", "epochs"}
    told = saved(lab, experiment.id, "checkpoint-4/my_data.json")
    assert told == {"finetuned_from": "tiny", "tasks": "sentences"}


def saved(lab: Lab, experiment_id: int, name: str) -> Any:
    (newest, *_) = sorted(lab.checkpoints(experiment_id), key=lambda one: -one.steps_completed)
    return json.loads((lab.home.checkpoints / newest.uuid / name).read_text())
