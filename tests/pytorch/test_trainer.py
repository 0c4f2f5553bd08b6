"""`pytorch.init` and `Trainer.fit`: what they accept, what they refuse, how they end."""

from __future__ import annotations

import importlib
import json
import logging
import os
import random
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import determined
from determined import _info, core, pytorch
from determined.errors import CheckpointNotFound, InvalidExperimentException
from determined.pytorch import (
    Batch,
    Epoch,
    PyTorchCallback,
    PyTorchTrial,
    PyTorchTrialContext,
    Trainer,
    TrainUnit,
)
from tests.support.trials import (
    LineTrial,
    Recorder,
    checkpoints,
    count,
    line,
    one_weight,
    recording,
    the_checkpoint,
    train,
)

SEARCHER = {"metric": "validation_loss", "smaller_is_better": True}


@pytest.fixture
def on_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Return what makes this process believe that a platform started it."""

    def write(searcher: dict[str, Any] | None = None, latest_checkpoint: str | None = None) -> None:
        files: dict[str, Any] = {
            "cluster": {
                "master_url": "http://127.0.0.1:8080",
                "cluster_id": "c",
                "agent_id": "a",
                "slot_ids": [0],
                "task_id": "1.x",
                "allocation_id": "1.x.1",
                "session_token": "t",
                "task_type": "TRIAL",
                "latest_checkpoint": latest_checkpoint,
            },
            "trial": {
                "trial_id": 7,
                "experiment_id": 3,
                "trial_seed": 11,
                "hparams": {},
                "config": {"searcher": SEARCHER if searcher is None else searcher},
                "steps_completed": 0,
                "trial_run_id": 1,
                "debug": False,
                "inter_node_network_interface": None,
            },
            "rendezvous": {
                "container_addrs": ["127.0.0.1"],
                "container_rank": 0,
                "container_slot_counts": [1],
            },
        }
        for name, content in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        monkeypatch.setenv("DET_INFO_DIR", str(tmp_path))

    return write


# Arguments.


def test_max_length_is_required() -> None:
    with pytest.raises(ValueError, match="max_length"):
        train(max_length=None)


@pytest.mark.parametrize("length", [5, TrainUnit(5), Batch([5]), Batch(2.0), Epoch("3")])  # type: ignore[arg-type]
def test_max_length_must_be_batch_or_epoch_of_a_whole_number(length: Any) -> None:
    with pytest.raises(TypeError, match="max_length"):
        train(max_length=length)


@pytest.mark.parametrize("name", ["checkpoint_period", "validation_period", "reporting_period"])
@pytest.mark.parametrize("value", [5, Batch(2.5), Batch(iter([1])), Batch("5")])  # type: ignore[arg-type]
def test_bad_periods_are_refused_before_anything_starts(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=name):
        train(recording(), **{name: value})
    assert not checkpoints()


def test_numpy_whole_numbers_are_accepted() -> None:
    number: Any = np.int32(2)
    trial = train(
        recording(),
        max_length=Batch(number),
        validation_period=Batch(number),
        reporting_period=Batch(number),
    )
    assert trial.batches == [0, 1]


def test_containers_of_any_kind_are_schedules() -> None:
    class Primes:
        def __contains__(self, number: object) -> bool:
            return number in (2, 3, 5, 7)

    for schedule in ({2, 3, 5, 7}, (2, 3, 5, 7), Primes(), range(2, 8)):
        trial = train(
            recording(), max_length=Batch(8), validation_period=Batch(schedule), progress=False
        )
        expected = 7 if isinstance(schedule, range) else 5
        assert count(trial.log, "on_validation_end") == expected


def test_report_period_none_means_no_report_boundary() -> None:
    trial = train(recording(), max_length=Batch(150), reporting_period=None)
    assert count(trial.log, "on_training_workload_end") == 1
    trial = train(recording(), max_length=Batch(150))
    assert count(trial.log, "on_training_workload_end") == 2


def test_arguments_may_be_passed_by_position() -> None:
    with pytorch.init() as context:
        trial = recording()(context)
        Trainer(trial, context).fit(
            Batch(1), Batch(2), Batch(3), Batch(1), "none", None, True, False, False
        )
    assert count(trial.log, "on_checkpoint_upload_end") == 3
    assert count(trial.log, "on_validation_end") == 3  # 0, 2, 3


def test_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="checkpoint_policy"):
        train(checkpoint_policy="bests")


def test_bad_settings_of_ours_are_refused() -> None:
    with pytest.raises(ValueError, match="on_checkpoint_error"):
        train(on_checkpoint_error="ignore")
    with pytest.raises(ValueError, match="export"):
        train(export="onnx")
    with pytest.raises(ValueError, match="aggregation_frequency"):
        train(init={"aggregation_frequency": 0})


def test_the_trial_must_be_a_pytorch_trial() -> None:
    with pytorch.init() as context, pytest.raises(TypeError, match="PyTorchTrial"):
        Trainer(object(), context).fit(max_length=Batch(1))  # type: ignore[arg-type]


class _NoModel(LineTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.callbacks = {}
        self.log = []


class _NoOptimizer(_NoModel):
    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        context.wrap_model(one_weight())


class _BothEvaluate(LineTrial):
    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        return {}


class _NoEvaluate(LineTrial):
    evaluate_batch = PyTorchTrial.evaluate_batch


@pytest.mark.parametrize(
    ("trial_class", "words"),
    [
        (_NoModel, "wrap_model"),
        (_NoOptimizer, "wrap_optimizer"),
        (_BothEvaluate, "both"),
        (_NoEvaluate, "neither"),
    ],
)
def test_incomplete_trials_are_refused(trial_class: type[LineTrial], words: str) -> None:
    with pytest.raises(InvalidExperimentException, match=words):
        train(trial_class)


def test_abstract_methods_must_be_defined() -> None:
    class Trial(PyTorchTrial):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Trial(None)  # type: ignore[abstract, arg-type]


def test_other_loaders_are_refused_unless_allowed() -> None:
    class Trial(LineTrial):
        def build_training_data_loader(self) -> Any:
            return torch.utils.data.DataLoader(line(3), batch_size=2)

    with pytest.raises(RuntimeError, match="disable_dataset_reproducibility_checks"):
        train(Trial)

    class Allowed(Trial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            context.experimental.disable_dataset_reproducibility_checks()

        def build_validation_data_loader(self) -> Any:
            return [torch.ones(2, 1), torch.ones(2, 1)]  # any iterable

        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            return {"validation_loss": batch.sum()}

    # A loader that ends is started again, and its length is that of an epoch.
    trial = train(Allowed, max_length=Epoch(3))
    assert trial.batches == list(range(9))


def test_a_validation_loader_of_another_type_is_refused() -> None:
    class Trial(LineTrial):
        def build_validation_data_loader(self) -> Any:
            return torch.utils.data.DataLoader(line(3), batch_size=2)

    with pytest.raises(RuntimeError, match="build_validation_data_loader"):
        train(Trial)


def test_fit_outside_of_the_init_block_is_refused() -> None:
    context = PyTorchTrialContext(core._dummy_init(), 0, None, 1, 0, None, 1, 0, True, False)
    with pytest.raises(RuntimeError, match="start"):
        Trainer(LineTrial(context), context).fit(max_length=Batch(1))


def test_a_missing_checkpoint_is_named() -> None:
    with pytest.raises(CheckpointNotFound, match="nowhere"):
        train(latest_checkpoint="nowhere")


def test_training_without_data_is_an_error() -> None:
    class Trial(LineTrial):
        num_batches = 0

    with pytest.raises((RuntimeError, ValueError), match="(?i)empty|no batch|no sample"):
        train(Trial)


# Policies and lengths.


def test_local_best_without_a_metric_saves_after_each_validation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    train(recording(), max_length=Batch(3), validation_period=Batch(1))
    assert sorted(checkpoints()) == [1, 2, 3]
    assert any(
        r.levelname == "WARNING" and "metric" in r.getMessage() and r.name == "determined.pytorch"
        for r in caplog.records
    )


def test_best_needs_a_number() -> None:
    with pytest.raises(RuntimeError, match="accuracy"):
        train(metric="accuracy")


def test_fit_twice_counts_from_zero_over_the_same_model() -> None:
    with pytorch.init() as context:
        trial = LineTrial(context)
        trainer = Trainer(trial, context)
        trainer.fit(max_length=Batch(2))
        first = trial.weight
        trainer.fit(max_length=Batch(3))
    assert trial.batches == [0, 1, 0, 1, 2]
    assert trial.weight != first
    assert trial.log.count("build_callbacks") == 2


def test_step_zero_validation_happens_only_at_the_start() -> None:
    trial = train(recording(), max_length=Batch(1), step_zero_validation=True)
    assert count(trial.log, "on_validation_end") == 2
    assert sorted(checkpoints()) == [1]
    trial = train(
        recording(),
        max_length=Batch(2),
        step_zero_validation=True,
        latest_checkpoint=the_checkpoint(1),
    )
    assert count(trial.log, "on_validation_end") == 1


def test_resuming_does_not_overshoot() -> None:
    train(max_length=Batch(3))
    trial: LineTrial = train(max_length=Batch(5), latest_checkpoint=the_checkpoint(3))
    assert trial.batches == [3, 4]
    assert trial.context.get_initial_batch() == 3


def test_an_absolute_path_is_a_checkpoint_too() -> None:
    train(max_length=Batch(3))
    (path,) = checkpoints()[3]
    trial = train(recording(), max_length=Batch(4), latest_checkpoint=str(path))
    assert trial.batches == [3]


def test_latest_resolves_to_the_newest_checkpoint_of_the_run() -> None:
    trial = train(recording(), {"run_id": "r"}, max_length=Batch(2), latest_checkpoint="latest")
    assert ("A", "on_trial_startup", 0, None) in trial.log
    trial = train(recording(), {"run_id": "r"}, max_length=Batch(4), latest_checkpoint="latest")
    assert ("A", "on_trial_startup", 2, the_checkpoint(2)) in trial.log
    assert trial.batches == [2, 3]


# Test mode.


@pytest.mark.parametrize("length", [Batch(100), Epoch(5)])
def test_test_mode_trains_validates_and_saves_one_batch(length: TrainUnit) -> None:
    trial = train(recording(), max_length=length, test_mode=True, validation_period=Batch(7))
    assert trial.batches == [0]
    assert [entry for entry in trial.log if entry[0] == "evaluate_batch"] == [("evaluate_batch", 0)]
    assert count(trial.log, "on_training_workload_end") == 1
    assert count(trial.log, "on_checkpoint_upload_end") == 1


def test_test_mode_gives_the_full_loader_to_evaluate_full_dataset() -> None:
    class Trial(LineTrial):
        evaluate_batch = PyTorchTrial.evaluate_batch

        def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
            return {"batches_seen": len(list(data_loader))}

    seen: list[dict[str, Any]] = []

    class Keeper(PyTorchCallback):
        def on_validation_epoch_start(self) -> None:
            raise AssertionError("only for evaluate_batch")

        def on_validation_end(self, metrics: dict[str, Any]) -> None:
            seen.append(metrics)

    def make(context: PyTorchTrialContext) -> LineTrial:
        trial = Trial(context)
        trial.callbacks = {"keeper": Keeper()}
        return trial

    train(make, max_length=Batch(9), test_mode=True)
    assert seen[0]["batches_seen"] == 3


# The cluster.


def test_length_from_the_searcher_is_deprecated(on_cluster: Callable[..., None]) -> None:
    on_cluster({**SEARCHER, "max_length": {"batches": 2}})
    with pytest.warns(FutureWarning, match="max_length"):
        trial: LineTrial = train(max_length=None)
    assert trial.batches == [0, 1]


@pytest.mark.parametrize(
    "searcher",
    [
        {},
        {"max_length": 5},
        {"max_length": {"fortnights": 2}},
        {"max_length": 5, "unit": "fortnights"},
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_no_usable_length_on_the_cluster(
    on_cluster: Callable[..., None], searcher: dict[str, Any]
) -> None:
    on_cluster({**SEARCHER, **searcher})
    with pytest.raises(ValueError, match="max_length|unit"):
        train(max_length=None)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_length_in_records_needs_the_global_batch_size(on_cluster: Callable[..., None]) -> None:
    on_cluster({**SEARCHER, "max_length": {"records": 8}})
    with pytest.raises(ValueError, match="global_batch_size"):
        train(max_length=None)
    trial: LineTrial = train(init={"hparams": {"global_batch_size": 4}}, max_length=None)
    assert trial.batches == [0, 1]


def test_test_mode_is_refused_on_the_cluster(on_cluster: Callable[..., None]) -> None:
    on_cluster()
    with pytest.raises(ValueError, match="test_mode"):
        train(test_mode=True)


def test_time_metric_needs_max_time(
    on_cluster: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    on_cluster({**SEARCHER, "time_metric": "batches"})
    with pytest.raises(AssertionError, match="max_time"):
        train(max_length=Batch(2))


@pytest.mark.parametrize(("time_metric", "warns"), [("batches", False), ("epochs", True)])
def test_time_metric_that_disagrees_is_a_warning(
    on_cluster: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
    time_metric: str,
    warns: bool,
) -> None:
    on_cluster({**SEARCHER, "time_metric": time_metric, "max_time": 2})
    train(max_length=Batch(2))
    assert warns == any("max_time" in r.getMessage() for r in caplog.records)


@pytest.mark.parametrize("given", [None, "latest"])
def test_a_trial_of_the_platform_goes_on_from_its_checkpoint(
    on_cluster: Callable[..., None], caplog: pytest.LogCaptureFixture, given: str | None
) -> None:
    caplog.set_level(logging.INFO, logger="determined.pytorch")
    on_cluster()
    train(max_length=Batch(2), latest_checkpoint=given)
    on_cluster(latest_checkpoint=the_checkpoint(2))
    _info._found.clear()
    trial = train(recording(), max_length=Batch(4), latest_checkpoint=given)
    assert trial.batches == [2, 3]
    said = any("although fit was not given one" in r.getMessage() for r in caplog.records)
    assert said == (given is None)


@pytest.mark.parametrize("missing", ["metric", "smaller_is_better"])
def test_cluster_config_without_the_metric_is_an_error(
    on_cluster: Callable[..., None], missing: str
) -> None:
    on_cluster({key: value for key, value in SEARCHER.items() if key != missing})
    with pytest.raises(KeyError, match=missing):
        train()


def test_cluster_trials_are_seeded_and_know_their_ids(on_cluster: Callable[..., None]) -> None:
    on_cluster()
    with pytorch.init() as context:
        draws = random.random(), np.random.rand(), torch.rand(()).item()
        assert (context.get_experiment_id(), context.get_trial_id()) == (3, 7)
        assert context.get_trial_seed() == 11
        assert context.get_experiment_config() == {"searcher": SEARCHER}
    random.seed(11)
    np.random.seed(11)
    torch.manual_seed(11)
    assert draws == (random.random(), np.random.rand(), torch.rand(()).item())


# Seeds, ends and what users see.


def test_local_runs_leave_random_numbers_alone_without_a_seed() -> None:
    torch.manual_seed(1)
    expected = torch.rand(())
    torch.manual_seed(1)
    with pytorch.init():
        assert torch.equal(torch.rand(()), expected)


def test_invalid_hp_saves_and_comes_out() -> None:
    class Trial(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 2:
                raise determined.InvalidHP("too large")
            return super().train_batch(batch, epoch_idx, batch_idx)

    with pytest.raises(determined.InvalidHP, match="too large"):
        train(Trial)
    assert sorted(checkpoints()) == [2]


def test_invalid_hp_while_saving_ends_training_without_another_checkpoint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Picky(PyTorchCallback):
        def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
            raise determined.InvalidHP("not worth it")

    class Trial(LineTrial):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            return {"picky": Picky()}

    caplog.set_level(logging.INFO)
    trial = train(Trial, max_length=Batch(3), checkpoint_period=Batch(1))
    assert trial.batches == [0]
    assert not checkpoints()
    assert any("INVALID_HP" in r.getMessage() for r in caplog.records)


def test_should_exit_from_user_code_ends_training() -> None:
    for skip in (False, True):

        class Trial(LineTrial):
            def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
                if batch_idx == 1:
                    raise pytorch.ShouldExit(skip_exit_checkpoint=skip)  # noqa: B023
                return super().train_batch(batch, epoch_idx, batch_idx)

        train(Trial, {"checkpoint_storage": f"skip-{skip}"})
        assert bool(checkpoints(f"skip-{skip}")) != skip


@pytest.mark.parametrize("result", [None, 1.0, [1]])
def test_train_batch_must_return_metrics(result: Any) -> None:
    class Trial(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            return result

    with pytest.raises(TypeError, match="train_batch"):
        train(Trial)


def test_each_report_and_validation_is_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    train(max_length=Batch(3), reporting_period=Batch(2))
    lines = [r.getMessage() for r in caplog.records]
    reported = [text for text in lines if text.startswith("report_training_metrics")]
    assert ["steps_completed=2" in text for text in reported] == [True, False]
    assert "steps_completed=3" in reported[1]
    (validated,) = [r for r in caplog.records if r.getMessage().startswith("validated")]
    assert validated.name == "determined.pytorch"
    assert "6 records" in validated.getMessage()
    assert "3 batches" in validated.getMessage()


def test_user_code_is_three_functions_below_fit() -> None:
    frames: list[traceback.FrameSummary] = []

    class Trial(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            frames[:] = traceback.extract_stack()
            return super().train_batch(batch, epoch_idx, batch_idx)

    train(Trial)
    ours = os.path.dirname(pytorch.__file__)  # noqa: PTH120
    begin = max(i for i, frame in enumerate(frames) if frame.name == "fit")
    between = [frame for frame in frames[begin:] if frame.filename.startswith(ours)]
    assert [frame.name for frame in between] == ["fit", "run", "_train_segment"]
    assert len({frame.filename for frame in between}) == 2


def test_an_exception_in_a_shutdown_hook_does_not_hide_the_others() -> None:
    log: list[Any] = []

    class Failing(Recorder):
        def on_trial_shutdown(self) -> None:
            raise RuntimeError("cannot close")

    def make(context: PyTorchTrialContext) -> LineTrial:
        trial = LineTrial(context)
        trial.callbacks = {"A": Recorder("A", log), "B": Failing("B", log)}
        return trial

    with pytest.raises(RuntimeError, match="cannot close"):
        train(make)
    assert log[-1] == ("A", "on_trial_shutdown")


def test_training_needs_no_batch_length() -> None:
    class Trial(LineTrial):
        def get_batch_length(self, batch: Any) -> int:
            raise TypeError("what is a record?")

    assert train(Trial).batches == [0, 1, 2]


def test_names_of_older_code_are_importable() -> None:
    names = """
        _Data _dataset_repro_warning _PyTorchReducerContext _SimpleReducer _simple_reduce_metrics
        _combine_and_average_training_metrics _prepare_metrics_reducers _reduce_metrics
        _convert_metrics_to_numpy _log_tb_metrics _ShouldExit _TrainBoundary _TrainBoundaryType
        _TrialState _PyTorchTrialController ShouldExit
    """
    assert [name for name in names.split() if not hasattr(pytorch, name)] == []
    assert all(hasattr(pytorch, name) for name in pytorch.__all__)
    _pytorch_trial = importlib.import_module("determined.pytorch._pytorch_trial")
    assert _pytorch_trial.ShouldExit is pytorch.ShouldExit
    assert PyTorchTrial.trial_context_class is PyTorchTrialContext
    assert PyTorchTrial.trial_controller_class is _pytorch_trial._PyTorchTrialController
    assert issubclass(PyTorchTrial, determined.LegacyTrial)
    assert "determined.pytorch.samplers" in sys.modules


def test_latest_metrics_are_plain_numbers_of_python() -> None:
    class Trial(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.total = context.wrap_reducer(
                lambda values: torch.stack(values).sum(), name="sum", for_training=False
            )

        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            self.total.update(batch[0].sum())  # type: ignore[attr-defined]  # of a function's
            return {**super().evaluate_batch(batch, batch_idx), "count": len(batch[0])}

    with pytorch.init() as context:
        trainer = pytorch.Trainer(Trial(context), context)
        trainer.fit(max_length=Batch(1))
    assert {type(value) for value in trainer.latest_metrics.values()} == {float, int}
    assert trainer.latest_metrics["sum"] == 21.0
