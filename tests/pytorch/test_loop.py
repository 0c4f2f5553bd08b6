"""The order of everything in one `fit`, callback by callback."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from determined.pytorch import Batch, Epoch, PyTorchCallback, PyTorchTrialContext
from tests.support.trials import (
    LineTrial,
    Log,
    Recorder,
    recording,
    reports,
    the_checkpoint,
    train,
)

_STATE_KEYS = [
    "callbacks",
    "lr_schedulers_state_dict",
    "models_state_dict",
    "optimizers_state_dict",
    "rng_state",
]


def _names(log: Log) -> list[Any]:
    """Keep of each entry what happened, and of hooks only plain arguments."""
    plain = []
    for entry in log:
        if isinstance(entry, tuple):
            kept = [part for part in entry if isinstance(part, (str, int, float, type(None)))]
            entry = tuple(kept)
        plain.append(entry)
    return plain


def _both(hook: str, *args: Any) -> list[Any]:
    return [("A", hook, *args), ("B", hook, *args)]


def _validation(step: int) -> list[Any]:
    return [
        *_both("state_dict"),  # the state of before, in case the validation is cut short
        "status: validating",
        *_both("on_validation_start"),
        *_both("on_validation_epoch_start"),
        *[("evaluate_batch", idx) for idx in range(3)],
        *_both("on_validation_epoch_end"),
        "evaluation_reducer",
        *_both("on_validation_end"),
        ("report", "validation", step),
    ]


def _checkpoint() -> list[Any]:
    return [
        "status: checkpointing",
        *_both("state_dict"),
        *_both("on_checkpoint_save_start"),
        *_both("on_checkpoint_write_end"),
        *_both("on_checkpoint_upload_end"),
    ]


def _traced(**fit: Any) -> LineTrial:
    log: Log = []

    def make(context: PyTorchTrialContext) -> LineTrial:
        trial = LineTrial(context, log)
        trial.callbacks = {name: Recorder(name, log) for name in "AB"}
        context.wrap_reducer(lambda values: len(values), name="count")
        return trial

    with reports(log):
        return train(make, **fit)


def test_golden_trace_of_one_epoch() -> None:
    every_second = Batch(2)
    trial = _traced(
        max_length=Epoch(1),
        validation_period=every_second,
        checkpoint_period=every_second,
        reporting_period=every_second,
        checkpoint_policy="none",
        step_zero_validation=True,
    )
    assert _names(trial.log) == [
        "__init__",
        "build_callbacks",
        *_both("on_trial_startup", 0, None),
        "build_training_data_loader",
        "build_validation_data_loader",
        *_both("on_training_start"),
        *_validation(0),
        "status: training",
        *_both("on_training_epoch_start", 0),
        ("train_batch", 0, 0),
        *_both("state_dict"),  # tried once, to see that it can be loaded
        ("train_batch", 0, 1),
        ("report", "training", 2),
        *_both("on_training_workload_end"),
        *_validation(2),
        *_checkpoint(),
        ("progress", 0.0),
        "status: training",
        ("train_batch", 0, 2),
        *_both("on_training_epoch_end", 0),
        ("report", "training", 3),
        *_both("on_training_workload_end"),
        ("progress", 1.0),
        *_both("state_dict"),  # tried at the end, too
        *_validation(3),
        *_checkpoint(),
        ("B", "on_trial_shutdown"),
        ("A", "on_trial_shutdown"),
    ]


def test_resumed_trace_continues_inside_the_epoch() -> None:
    train(recording(), max_length=Batch(2), checkpoint_policy="none")
    uuid = the_checkpoint(2)
    trial = _traced(max_length=Epoch(2), checkpoint_policy="none", latest_checkpoint=uuid)
    assert _names(trial.log) == [
        "__init__",
        "build_callbacks",
        *_both("on_trial_startup", 2, uuid),
        "build_training_data_loader",
        "build_validation_data_loader",
        *_both("on_checkpoint_load_start"),
        ("A", "load_state_dict"),  # the first run had no callback B
        *_both("on_training_start"),
        "status: training",
        ("train_batch", 0, 2),
        *_both("on_training_epoch_end", 0),
        *_both("state_dict"),
        *_both("on_training_epoch_start", 1),
        *[("train_batch", 1, idx) for idx in (3, 4, 5)],
        *_both("on_training_epoch_end", 1),
        ("report", "training", 6),
        *_both("on_training_workload_end"),
        ("progress", 1.0),
        *_both("state_dict"),
        *_validation(6),
        *_checkpoint(),
        ("B", "on_trial_shutdown"),
        ("A", "on_trial_shutdown"),
    ]


def _calls(log: Log, hook: str) -> list[tuple[Any, ...]]:
    return [entry[2:] for entry in log if isinstance(entry, tuple) and entry[1] == hook]


def test_arguments_of_hooks() -> None:
    trial = train(recording(), max_length=Batch(2), validation_period=Batch(2))
    log = trial.log
    assert _calls(log, "on_trial_startup") == [(0, None)]
    assert _calls(log, "on_training_epoch_start") == [(0,)]
    ((average, batches),) = _calls(log, "on_training_workload_end")
    assert average[0] == "avg_metrics"
    assert set(average[1]) == {"loss", "batches", "epochs"}
    assert type(average[1]["loss"]) is float
    assert (average[1]["batches"], average[1]["epochs"]) == (2, 0)
    assert batches[0] == "batch_metrics"
    assert [set(metrics) for metrics in batches[1]] == [{"loss"}, {"loss"}]
    for metrics in batches[1]:
        loss = metrics["loss"]
        assert isinstance(loss, np.ndarray)
        assert (loss.shape, loss.dtype) == ((), np.float32)
    ((outputs,),) = _calls(log, "on_validation_epoch_end")
    assert len(outputs) == 3
    assert all(isinstance(o["validation_loss"], np.ndarray) for o in outputs)
    ((metrics,),) = _calls(log, "on_validation_end")
    assert set(metrics) == {"validation_loss"}
    assert isinstance(metrics["validation_loss"], np.float32)
    assert _calls(log, "on_checkpoint_save_start") == [(_STATE_KEYS,)]
    ((files,),) = _calls(log, "on_checkpoint_write_end")
    assert {"code", "load_data.json", "state_dict.pth", "trial_state.pkl"} <= set(files)
    assert _calls(log, "on_checkpoint_upload_end") == [(("uuid", the_checkpoint(2)),)]


def test_deprecated_hook_runs_before_its_successor_for_each_callback() -> None:
    log: Log = []

    class Old(PyTorchCallback):
        def __init__(self, name: str) -> None:
            self.name = name

        def on_checkpoint_end(self, checkpoint_dir: str) -> None:
            log.append((self.name, "end", checkpoint_dir))

        def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
            log.append((self.name, "write_end", checkpoint_dir))

    class Trial(LineTrial):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            return {"A": Old("A"), "B": Old("B")}

    with pytest.warns(FutureWarning, match="on_checkpoint_end") as warned:
        train(Trial)
    assert len([w for w in warned if w.category is FutureWarning]) == 2
    assert [entry[:2] for entry in log] == [
        ("A", "end"),
        ("A", "write_end"),
        ("B", "end"),
        ("B", "write_end"),
    ]
    assert {type(entry[2]) for entry in log} == {str}


def test_validation_metrics_are_extended_after_the_hook_in_the_same_dictionary() -> None:
    seen: list[dict[str, Any]] = []

    class Keeper(PyTorchCallback):
        def on_validation_end(self, metrics: dict[str, Any]) -> None:
            assert set(metrics) == {"validation_loss"}
            metrics["mine"] = 7
            seen.append(metrics)

    class Trial(LineTrial):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            return {"keeper": Keeper()}

    train(Trial)
    (metrics,) = seen
    assert metrics["mine"] == 7
    assert (metrics["batches"], metrics["epochs"]) == (3, 1)


def test_shutdown_runs_for_started_callbacks_when_a_later_one_fails_to_start() -> None:
    log: Log = []

    class Failing(Recorder):
        def on_trial_startup(self, *args: Any, **kwargs: Any) -> None:
            super().on_trial_startup(*args)
            raise RuntimeError("no GPU today")

    class Trial(LineTrial):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            return {"A": Recorder("A", log), "B": Failing("B", log), "C": Recorder("C", log)}

    with pytest.raises(RuntimeError, match="no GPU today"):
        train(Trial)
    assert [entry[:2] for entry in log] == [
        ("A", "on_trial_startup"),
        ("B", "on_trial_startup"),
        ("A", "on_trial_shutdown"),
    ]


def test_an_exception_saves_first_and_runs_shutdown_hooks_last() -> None:
    trials: list[LineTrial] = []

    class Trial(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            trials.append(self)
            if batch_idx == 1:
                raise ZeroDivisionError
            return super().train_batch(batch, epoch_idx, batch_idx)

    with pytest.raises(ZeroDivisionError):
        train(recording(Trial, "AB"))
    log = trials[0].log
    assert _names(log)[-2:] == [("B", "on_trial_shutdown"), ("A", "on_trial_shutdown")]
    assert _names(log)[-10:-2] == _checkpoint()[1:]


def test_legacy_epoch_start_without_parameters_is_called_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[str] = []

    class Legacy(PyTorchCallback):
        def on_training_epoch_start(self) -> None:  # type: ignore[override]  # the old form
            calls.append("start")

    class Trial(LineTrial):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            return {"legacy": Legacy()}

    train(Trial, max_length=Epoch(2))
    assert calls == ["start", "start"]
    warnings = [r for r in caplog.records if "epoch_idx" in r.getMessage()]
    assert [(r.name, r.levelname) for r in warnings] == [("determined.pytorch", "WARNING")] * 2


def test_models_are_put_into_train_and_eval_mode() -> None:
    modes: Log = []

    class Trial(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            modes.append(("train", self.model.training))
            if batch_idx == 1:
                self.model.eval()  # what user code sets is kept, whatever is reported
            return super().train_batch(batch, epoch_idx, batch_idx)

        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            modes.append(("eval", self.model.training))
            return super().evaluate_batch(batch, batch_idx)

    train(Trial, max_length=Batch(3), reporting_period=Batch(2))
    assert modes == [
        ("train", True),
        ("train", True),
        ("train", False),
        *[("eval", False)] * 3,
    ]
