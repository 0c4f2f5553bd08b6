"""What the callback reports, saves and restores, and what it refuses; on real trainers."""

from __future__ import annotations

import json
import logging
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="the extra `transformers` is not installed")
pytest.importorskip("accelerate", reason="the extra `transformers` is not installed")

from transformers import TrainerCallback

import determined as det
from determined import core
from determined.transformers import DetCallback
from tests.support.fine_tuning import build_arguments, build_trainer, digest
from tests.support.reports import recorded
from tests.support.tasks import become_a_task


class _AskToStop(TrainerCallback):
    def __init__(self, context: core.Context, step: int) -> None:
        self._context = context
        self._step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step + 1 == self._step:
            self._context._backend.request_preemption()


def newest(folder: Path, metadata: dict[str, Any]) -> Path:
    """The stored checkpoint with that metadata."""
    found = [
        path
        for path in (folder / "storage").iterdir()
        if (path / "metadata.json").is_file()
        and metadata.items() <= json.loads((path / "metadata.json").read_text()).items()
    ]
    assert len(found) == 1
    return found[0]


def test_it_is_where_scripts_import_it_from() -> None:
    assert det.transformers.DetCallback is DetCallback
    find = det.transformers.get_ds_config_path_from_args
    assert find(["train.py", "--deepspeed", "a.json", "-x"]) == "a.json"
    assert find(["--deepspeed=b.json"]) == "b.json"
    assert find(["--deepspeed"]) is find(["train.py"]) is None


def test_logs_become_reports_once_per_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    args = build_arguments(tmp_path / "out", max_steps=8, logging_steps=2, eval_steps=4)
    with recorded(tmp_path) as (context, train):
        callback = DetCallback(context, args)
        trainer = build_trainer(args, callbacks=[callback])
        trainer.train()
        trainer.evaluate()
        trainer.log({"test_accuracy": 1.0})
    assert train.steps("training") == [2, 4, 6, 8]
    assert train.steps("validation") == [4, 8]
    groups = {group: metrics.keys() for group, _, metrics in train.made}
    assert groups["training"] == {"batches", "epochs", "loss", "grad_norm", "learning_rate"}
    assert groups["validation"] == {"batches", "epochs", "eval_loss", "eval_accuracy"}
    assert [(m["batches"], m["epochs"]) for _, _, m in train.made][-1] == (8, 8 / 7)
    assert "Metrics of a test are not reported: test_accuracy" in caplog.text
    last = (callback.last_train_metrics, callback.last_eval_metrics, callback.last_save)
    assert last == (8, 8, 8)
    assert train.progress == [step / 8 for step in range(1, 9)]


def test_progress_is_reported_once_per_percent_or_epoch(tmp_path: Path) -> None:
    quiet = {"eval_strategy": "no", "save_strategy": "no", "logging_strategy": "no"}
    for length, progress in (
        ({"max_steps": 250}, [percent / 100 for percent in range(1, 101)]),
        ({"max_steps": -1, "num_train_epochs": 3}, [1 / 3, 2 / 3, 1.0]),
    ):
        args = build_arguments(tmp_path / "out", **quiet, **length)
        with recorded(tmp_path) as (context, train):
            build_trainer(args, callbacks=[DetCallback(context, args)]).train()
        assert train.progress == pytest.approx(progress, abs=0.005)
        assert train.steps("validation") == []


def test_metrics_are_filtered_but_not_those_of_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searcher = {"name": "single", "metric": "eval_accuracy"}
    become_a_task(tmp_path / "info", monkeypatch, {"searcher": searcher})
    monkeypatch.chdir(tmp_path)
    args = build_arguments("out", max_steps=3, eval_steps=3)
    with recorded(tmp_path) as (context, train):
        callback = DetCallback(context, args, filter_metrics=["loss"])
        build_trainer(args, callbacks=[callback]).train()
    (_, _, training), (_, _, validation) = train.made
    assert training.keys() == {"batches", "epochs", "loss"}
    assert validation.keys() == {"batches", "epochs", "eval_loss", "eval_accuracy"}
    assert callback.searcher_metric == "eval_accuracy"


def test_a_checkpoint_has_the_step_the_trial_and_user_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    become_a_task(tmp_path / "info", monkeypatch, {"searcher": {"metric": "eval_loss"}})
    shared, private = tmp_path / "out", tmp_path / "out-trial-7"
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    (private / "runs").mkdir(parents=True)
    (private / "runs" / "events").write_text("as TensorBoard writes them")
    (private / "other").write_text("not saved")
    args = build_arguments(shared, max_steps=7)
    with recorded(tmp_path) as (context, _):
        callback = DetCallback(context, args, user_data={"epochs": [1, 2]})
        assert args.output_dir == str(private), "trials that run together share other folders"
        assert args.resume_from_checkpoint is None
        build_trainer(args, callbacks=[callback]).train()
    saved = newest(tmp_path, {"steps_completed": 5, "trial_id": 7})
    tops = {path.name for path in saved.iterdir() if path.is_dir()}
    assert tops == {"checkpoint-5", "runs"}
    assert (saved / "runs" / "events").read_text() == "as TensorBoard writes them"
    assert json.loads((saved / "checkpoint-5" / "my_data.json").read_text()) == {"epochs": [1, 2]}
    assert not list(saved.rglob("other"))
    assert not shared.exists()

    info = {"latest_checkpoint": saved.name}
    become_a_task(tmp_path / "again", monkeypatch, {"searcher": {"metric": "eval_loss"}}, **info)
    args = build_arguments(shared, max_steps=7)
    with recorded(tmp_path) as (context, _):
        DetCallback(context, args)
    assert args.resume_from_checkpoint == str(private / "checkpoint-5")
    left = {path.name for path in private.glob("checkpoint-*")}
    assert left == {"checkpoint-5"}, "step 7 is trained again"

    args = build_arguments(shared, max_steps=7)
    vars(args)["overwrite_output_dir"] = True  # transformers 5 has no such argument
    with recorded(tmp_path) as (context, _):
        DetCallback(context, args)
    assert args.resume_from_checkpoint is None


def test_torch_may_read_the_random_states_as_old_releases_of_the_trainer_do(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    args = build_arguments(tmp_path / "out", max_steps=2)
    with recorded(tmp_path) as (context, _):
        build_trainer(args, callbacks=[DetCallback(context, args)]).train()
    registered = torch.serialization.get_safe_globals()
    request.addfinalizer(lambda: torch.serialization.add_safe_globals(registered))
    torch.serialization.clear_safe_globals()
    path = tmp_path / "out" / "checkpoint-2" / "rng_state.pth"
    with pytest.raises(pickle.UnpicklingError):
        torch.load(path, weights_only=True)
    args.resume_from_checkpoint = "latest"
    with recorded(tmp_path) as (context, _):
        DetCallback(context, args)
    assert torch.load(path, weights_only=True)["numpy"][0] == "MT19937"


@pytest.mark.parametrize(
    ("searcher", "arguments", "words"),
    [
        ({"max_length": {"batches": 10}}, {"max_steps": 12}, ("{batches: 10}", "max_steps=12")),
        ({"max_length": {"epochs": 12}}, {"max_steps": 12}, ("{epochs: 12}", "12 batches")),
        (
            {"max_length": {"epochs": 2}},
            {"max_steps": -1, "num_train_epochs": 3},
            ("{epochs: 2}", "num_train_epochs=3"),
        ),
        ({"max_length": 12}, {"max_steps": 12}, ("max_length", "{batches: 100}", "got 12")),
        (
            {"time_metric": "batches", "max_time": 9},
            {"max_steps": 12},
            ("time_metric: batches", "max_time: 9", "max_steps=12"),
        ),
        (
            {"time_metric": "epochs", "max_time": 12},
            {"max_steps": 12},
            ("time_metric: epochs", "max_steps=12"),
        ),
    ],
)
def test_two_lengths_that_differ_are_refused(
    searcher: dict[str, Any],
    arguments: dict[str, Any],
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    become_a_task(tmp_path / "info", monkeypatch, {"searcher": searcher})
    with recorded(tmp_path) as (context, _), pytest.raises(ValueError, match="searcher") as error:
        DetCallback(context, build_arguments("out", **arguments))
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    ("searcher", "arguments"),
    [
        ({"max_length": {"batches": 12}}, {"max_steps": 12}),
        ({"max_length": {"epochs": 3}}, {"max_steps": -1, "num_train_epochs": 3.0}),
        ({"time_metric": "epochs", "max_time": 3}, {"max_steps": -1, "num_train_epochs": 3}),
        ({"time_metric": "tokens", "max_time": 3}, {"max_steps": 12}),
        ({}, {"max_steps": 12}),
    ],
)
def test_equal_lengths_and_other_units_are_fine(
    searcher: dict[str, Any],
    arguments: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    become_a_task(tmp_path / "info", monkeypatch, {"searcher": searcher})
    monkeypatch.chdir(tmp_path)
    with recorded(tmp_path) as (context, _):
        assert DetCallback(context, build_arguments("out", **arguments)).last_save == -1


def test_a_validation_without_the_metric_of_the_search_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searcher = {"metric": "accuracy", "time_metric": "tokens", "max_time": 9}
    become_a_task(tmp_path / "info", monkeypatch, {"searcher": searcher})
    monkeypatch.chdir(tmp_path)
    args = build_arguments("out", max_steps=3, eval_steps=3)
    with recorded(tmp_path) as (context, _):
        trainer = build_trainer(args, callbacks=[DetCallback(context, args)])
        with pytest.raises(ValueError, match="no `accuracy` and no `tokens`.*`eval_accuracy`"):
            trainer.train()


def test_other_arguments_that_cannot_work_are_refused(tmp_path: Path) -> None:
    args = build_arguments(tmp_path / "out")
    with recorded(tmp_path) as (context, _):
        with pytest.raises(ValueError, match="`user_data` must be JSON"):
            DetCallback(context, args, user_data={"a": object()})
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, uuid):
            (path / "weights").write_text("of something else")
        args.resume_from_checkpoint = uuid
        with pytest.raises(ValueError, match="no folder `checkpoint-N`"):
            DetCallback(context, args)


@pytest.mark.parametrize("step", [4, 7])
def test_a_request_to_stop_saves_and_evaluates_only_at_the_end_of_an_epoch(
    step: int, tmp_path: Path
) -> None:
    strategies = {"eval_strategy": "epoch", "save_strategy": "epoch", "logging_strategy": "epoch"}
    results = []
    for folder, stop_at in (("whole", -1), ("stopped", step)):
        args = build_arguments(tmp_path / folder / "out", **strategies)
        with recorded(tmp_path / folder) as (context, train):
            callbacks = [DetCallback(context, args), _AskToStop(context, stop_at)]
            trainer = build_trainer(args, callbacks=callbacks)
            trainer.train()
            assert context.preempt.is_preempted is (stop_at == step)
        results.append(digest(trainer.model))
    assert trainer.state.global_step == step
    assert newest(tmp_path / "stopped", {"steps_completed": step})
    assert train.steps("validation") == ([7] if step == 7 else [])
    if step != 7:
        (last,) = [metrics for group, _, metrics in train.made if group == "training"]
        assert "train_loss" in last, "of the whole call, not of a part of an epoch"

    shutil.rmtree(tmp_path / "stopped" / "out")
    path = tmp_path / "stopped" / "out"
    args = build_arguments(path, resume_from_checkpoint="latest", **strategies)
    with recorded(tmp_path / "stopped") as (context, train):
        trainer = build_trainer(args, callbacks=[DetCallback(context, args)])
        trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    assert digest(trainer.model) == results[0]
    assert train.steps("validation") == ([12] if step == 7 else [7, 12])


def test_a_training_that_was_over_trains_nothing_when_it_is_started_again(tmp_path: Path) -> None:
    ends = []
    for _ in range(2):
        args = build_arguments(tmp_path / "out", resume_from_checkpoint="latest")
        with recorded(tmp_path) as (context, _):
            trainer = build_trainer(args, callbacks=[DetCallback(context, args)])
            trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        ends.append((trainer.state.global_step, digest(trainer.model)))
    assert ends[0] == ends[1]
    assert ends[0][0] == 12


def test_the_best_model_survives_a_restart(tmp_path: Path) -> None:
    best: dict[str, Any] = {"load_best_model_at_end": True, "eval_steps": 2, "save_steps": 2}
    best |= {"metric_for_best_model": "loss", "max_steps": 10, "learning_rate": 0.5}
    ends = []
    for folder, stop_at in (("whole", -1), ("stopped", 7), ("stopped", -1)):
        out = tmp_path / folder / "out"
        args = build_arguments(out, resume_from_checkpoint="latest", **best)
        with recorded(tmp_path / folder) as (context, _):
            callbacks = [DetCallback(context, args), _AskToStop(context, stop_at)]
            trainer = build_trainer(args, callbacks=callbacks)
            trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        assert Path(str(trainer.state.best_model_checkpoint)).name == "checkpoint-2"
        ends.append(digest(trainer.model))
        shutil.rmtree(out)
    assert ends[0] == ends[2]


def test_latest_without_a_checkpoint_begins_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    args = build_arguments(tmp_path / "out", resume_from_checkpoint="latest")
    with recorded(tmp_path) as (context, _):
        DetCallback(context, args)
    assert args.resume_from_checkpoint is None
    assert "it begins at the start" in caplog.text
