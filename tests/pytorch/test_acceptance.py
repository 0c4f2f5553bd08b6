"""What a run of a few batches must do: numbers of batches, validations, checkpoints and reports."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, TensorDataset

from determined import pytorch
from determined.pytorch import (
    Batch,
    DataLoader,
    Epoch,
    MetricReducer,
    PyTorchCallback,
    PyTorchTrialContext,
    TrainUnit,
    samplers,
)
from determined.pytorch._metrics.wrapped_reducers import _PyTorchReducerContext
from tests.support.trials import (
    DropoutNet,
    LineTrial,
    checkpoints,
    count,
    line,
    one_weight,
    recording,
    reports,
    the_checkpoint,
    train,
)
from tests.tensorboard.read_events import read_points


class FiveBatches(LineTrial):
    num_batches = 5


class ManyBatches(LineTrial):
    num_batches = 20


def _facts(trial: LineTrial) -> tuple[int, int, int, int]:
    """Return the number of batches, validations, checkpoints and segments."""
    log = trial.log
    saved = sum(map(len, checkpoints().values()))
    assert saved == count(log, "on_checkpoint_upload_end")
    segments = count(log, "on_training_workload_end")
    return len(trial.batches), count(log, "on_validation_end"), saved, segments


def _fit(trial_class: type[LineTrial] = LineTrial, **fit: Any) -> tuple[int, int, int, int]:
    return _facts(train(recording(trial_class), **fit))


def test_epoch_schedule_of_validations() -> None:
    facts = _fit(
        FiveBatches,
        max_length=Epoch(3),
        validation_period=Epoch([1, 2]),
        reporting_period=Batch(4),
        checkpoint_policy="none",
    )
    assert facts == (15, 3, 1, 6)


def test_batch_schedule_of_validations() -> None:
    facts = _fit(max_length=Batch(6), validation_period=Batch([2, 3]), checkpoint_policy="none")
    assert facts == (6, 3, 1, 3)


@pytest.mark.parametrize("value", [0, 1, np.int64(1)])
def test_period_below_one_saves_on_every_batch(value: Any) -> None:
    facts = _fit(max_length=Batch(3), checkpoint_period=Batch(value), checkpoint_policy="none")
    assert facts == (3, 1, 3, 3)


def test_progress_is_reported_once_per_period() -> None:
    with reports([]) as log:
        train(ManyBatches, max_length=Batch(100), reporting_period=Batch(10))
    values = [entry[1] for entry in log if entry[0] == "progress"]
    assert values == pytest.approx([tenth / 10 for tenth in range(1, 11)])


def test_stop_request_ends_at_the_next_boundary_with_a_checkpoint() -> None:
    class Trial(ManyBatches):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 2:
                self.context.set_stop_requested(True)
            return super().train_batch(batch, epoch_idx, batch_idx)

    facts = _fit(
        Trial,
        max_length=Batch(10),
        validation_period=Batch(2),
        checkpoint_policy="all",
    )
    assert facts == (4, 2, 2, 2)


def test_stop_request_on_the_last_batch_still_validates_and_saves() -> None:
    class Trial(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.context.set_stop_requested(batch_idx == 2)
            return super().train_batch(batch, epoch_idx, batch_idx)

    assert _fit(Trial, max_length=Batch(3)) == (3, 1, 1, 1)


def test_stop_request_before_training_is_seen_at_the_first_boundary() -> None:
    class Trial(ManyBatches):
        def build_training_data_loader(self) -> DataLoader:
            self.context.set_stop_requested(True)
            return super().build_training_data_loader()

    assert _fit(Trial, max_length=Batch(9), reporting_period=Batch(2)) == (2, 0, 1, 1)


def test_stop_request_far_from_any_boundary_is_seen_within_a_hundred_batches() -> None:
    class Trial(ManyBatches):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 5:
                self.context.set_stop_requested(True)
            return super().train_batch(batch, epoch_idx, batch_idx)

    batches, *rest = _fit(Trial, max_length=Batch(1000), reporting_period=None)
    assert batches <= 105
    assert rest == [0, 1, 1]


class Scripted(LineTrial):
    """Reports the validation losses it is told, one per validation."""

    losses: tuple[float, ...] = ()

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        done = count(self.log, "on_validation_start")
        return {"validation_loss": self.losses[done - 1]}


def _saved_when_best(losses: tuple[float, ...], smaller_is_better: bool = True) -> list[int]:
    """Return after which validations a checkpoint was saved, one validation per batch."""
    trial_class = type("Trial", (Scripted,), {"losses": losses})
    trial = train(
        recording(trial_class),
        init={"exp_conf": {"searcher": _searcher(smaller_is_better)}},
        max_length=Batch(len(losses)),
        validation_period=Batch(1),
    )
    saved, validations = [], 0
    for entry in trial.log:
        if isinstance(entry, tuple):
            validations += entry[1] == "on_validation_end"
            if entry[1] == "on_checkpoint_upload_end":
                saved.append(validations)
    return saved


def _searcher(smaller_is_better: bool) -> dict[str, Any]:
    return {"metric": "validation_loss", "smaller_is_better": smaller_is_better}


def test_policy_best_saves_only_what_is_strictly_better() -> None:
    assert _saved_when_best((3.0, 3.0, 2.0, 5.0, 1.0)) == [1, 3, 5]
    assert _saved_when_best((3.0, 3.0, 4.0, 1.0, 9.0), smaller_is_better=False) == [1, 3, 5]


def test_policy_best_never_takes_nan_for_better() -> None:
    nan = float("nan")
    assert _saved_when_best((nan, 3.0, nan, 2.0)) == [2, 4]


def test_policy_best_keeps_the_best_and_the_last() -> None:
    # The end of training saves in any case; checkpoints that a better one replaced are gone.
    assert _saved_when_best((3.0, 1.0, 2.0)) == [1, 2, 3]
    assert sorted(checkpoints()) == [2, 3]


def test_policy_best_does_not_delete_what_the_period_asked_for() -> None:
    trial_class = type("Trial", (Scripted,), {"losses": (5.0, 4.0, 3.0, 2.0, 1.0)})
    train(
        recording(trial_class),
        init={"exp_conf": {"searcher": _searcher(True)}},
        max_length=Batch(5),
        validation_period=Batch(1),
        checkpoint_period=Batch(2),
    )
    assert sorted(checkpoints()) == [2, 4, 5]


def test_policy_best_remembers_its_value_over_a_resume() -> None:
    fit: dict[str, Any] = {"validation_period": Batch(1), "metric": "validation_loss"}
    first = type("Trial", (Scripted,), {"losses": (3.0, 2.0)})
    train(recording(first), max_length=Batch(2), **fit)
    second = type("Trial", (Scripted,), {"losses": (2.5, 1.0, 4.0)})
    trial = train(
        recording(second), max_length=Batch(5), latest_checkpoint=the_checkpoint(2), **fit
    )
    assert count(trial.log, "on_checkpoint_upload_end") == 2  # at 1.0, and at the end
    assert sorted(checkpoints()) == [2, 4, 5]


def test_nothing_happens_when_the_length_is_reached_already() -> None:
    train(max_length=Batch(3))
    trial = train(recording(), max_length=Batch(3), latest_checkpoint=the_checkpoint(3))
    assert _facts_without_checkpoints(trial) == (0, 0, 0)
    assert sum(map(len, checkpoints().values())) == 1


def _facts_without_checkpoints(trial: LineTrial) -> tuple[int, int, int]:
    log = trial.log
    validations, saves = count(log, "on_validation_end"), count(log, "on_checkpoint_upload_end")
    return len(trial.batches), validations, saves


def test_checkpoint_before_the_final_validation_validates_once_more_on_resume() -> None:
    train(max_length=Batch(4), checkpoint_period=Batch(2), checkpoint_policy="none")
    trial = train(
        recording(),
        max_length=Batch(2),
        checkpoint_policy="none",
        latest_checkpoint=the_checkpoint(2),
    )
    assert _facts_without_checkpoints(trial) == (0, 1, 0)


@pytest.mark.parametrize("length", [Batch(0), Epoch(0)])
def test_length_zero_trains_validates_and_saves_nothing(length: TrainUnit) -> None:
    assert _fit(max_length=length) == (0, 0, 0, 0)


# Equivalence.


class Noisy(pytorch.PyTorchTrial):
    """Shuffles, draws from all generators, and keeps what it saw."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        torch.manual_seed(5)
        self.model = context.wrap_model(DropoutNet())
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.01))
        self.scheduler = context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.9),
            pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH,
        )
        self.seen: list[Any] = []

    def build_training_data_loader(self) -> DataLoader:
        x = torch.arange(14.0).reshape(-1, 1)
        return DataLoader(TensorDataset(x, x), batch_size=2, shuffle=True)

    def build_validation_data_loader(self) -> DataLoader:
        return self.build_training_data_loader()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        metrics = {
            "loss": loss,
            "numpy": np.random.rand(),
            "random": random.random(),
            "torch": torch.rand(()),
        }
        values = {name: torch.as_tensor(value).item() for name, value in metrics.items()}
        learning_rate = self.scheduler.get_last_lr()[0]
        self.seen.append((epoch_idx, batch_idx, x.flatten().tolist(), learning_rate, values))
        return metrics

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        noise = torch.rand(())  # a validation may draw, too
        return {"validation_loss": torch.nn.functional.mse_loss(self.model(x), y) + noise}


@pytest.mark.parametrize("aggregation_frequency", [1, 3])
@pytest.mark.parametrize("cut", [1, 7, 10])
def test_resumed_run_equals_an_unbroken_one(cut: int, aggregation_frequency: int) -> None:
    init = {"seed": 11, "aggregation_frequency": aggregation_frequency}
    fit: dict[str, Any] = {"validation_period": Batch(5), "checkpoint_policy": "none"}
    unbroken = train(Noisy, init, max_length=Batch(16), checkpoint_period=Batch([cut]), **fit)
    resumed = train(Noisy, init, max_length=Batch(16), latest_checkpoint=the_checkpoint(cut), **fit)
    assert resumed.seen == unbroken.seen[cut:]
    for a, b in zip(resumed.model.parameters(), unbroken.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert _plain(resumed.optimizer.state_dict()) == _plain(unbroken.optimizer.state_dict())


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list) else value


def test_random_draws_after_a_resume_continue_the_stream() -> None:
    train(Noisy, {"seed": 3}, max_length=Batch(4), checkpoint_period=Batch(2))
    expected = [random.random(), np.random.rand(), torch.rand(()).item()]
    train(Noisy, {"seed": 99}, max_length=Batch(4), latest_checkpoint=the_checkpoint(2))
    assert [random.random(), np.random.rand(), torch.rand(()).item()] == expected


def test_dropout_draws_what_a_plain_torch_loop_draws() -> None:
    class Trial(Noisy):
        def build_training_data_loader(self) -> DataLoader:
            x = torch.arange(14.0).reshape(-1, 1)
            return DataLoader(TensorDataset(x, x), batch_size=2)

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            x, y = batch
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            self.context.backward(loss)
            self.context.step_optimizer(self.optimizer)
            return loss

    trained = train(Trial, max_length=Epoch(1))

    torch.manual_seed(5)
    model = DropoutNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.9)
    x = torch.arange(14.0).reshape(-1, 1)
    for inputs, targets in torch.utils.data.DataLoader(TensorDataset(x, x), batch_size=2):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    for a, b in zip(trained.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_pipeline_made_by_hand_continues_where_it_says() -> None:
    seen: list[float] = []

    class Trial(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            context.experimental.disable_dataset_reproducibility_checks()

        def build_training_data_loader(self) -> Any:
            batches: Any = BatchSampler(range(6), 2, drop_last=False)
            batches = samplers.RepeatBatchSampler(batches)
            batches = samplers.SkipBatchSampler(batches, self.context.get_initial_batch())
            return torch.utils.data.DataLoader(line(3), batch_sampler=batches)

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            seen.append(batch[0][0].item())
            return super().train_batch(batch, epoch_idx, batch_idx)

    train(Trial, max_length=Batch(4))
    train(Trial, max_length=Batch(5), latest_checkpoint=the_checkpoint(4))
    train(Trial, max_length=Batch(8), latest_checkpoint=the_checkpoint(5))
    assert seen == [1.0, 3.0, 5.0, 1.0, 3.0, 5.0, 1.0, 3.0]


def test_the_training_loader_draws_as_that_of_torch_and_validations_do_not() -> None:
    drawn: list[float] = []

    class Trial(LineTrial):
        def build_validation_data_loader(self) -> DataLoader:
            drawn.append(torch.rand(()).item())
            return super().build_validation_data_loader()

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            drawn.append(torch.rand(()).item())
            return super().train_batch(batch, epoch_idx, batch_idx)

    torch.manual_seed(3)
    train(Trial, max_length=Batch(2), validation_period=Batch(1))
    torch.manual_seed(3)
    one_weight()
    expected = [torch.rand(()).item()]
    torch.empty((), dtype=torch.int64).random_()  # what `iter()` of a torch loader draws
    expected += [torch.rand(()).item() for _ in range(2)]  # with a validation in between
    assert drawn == expected


# Reducers and TensorBoard.


class SumReducer(MetricReducer):
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.total = 0.0

    def update(self, value: float) -> None:
        self.total += value

    def per_slot_reduce(self) -> float:
        return self.total

    def cross_slot_reduce(self, per_slot_metrics: list[float]) -> float:
        assert type(per_slot_metrics) is list
        return sum(per_slot_metrics)


def test_class_and_function_reducers_agree_over_reports() -> None:
    seen: list[dict[str, Any]] = []

    class Keeper(PyTorchCallback):
        def on_training_workload_end(
            self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]
        ) -> None:
            assert all(set(metrics) == {"loss"} for metrics in batch_metrics)
            seen.append(avg_metrics)

        def on_validation_end(self, metrics: dict[str, Any]) -> None:
            seen.append(metrics)

    class Trial(ManyBatches):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.by_class: Any = context.wrap_reducer(SumReducer(), name="by_class")
            self.by_function: Any = context.wrap_reducer(sum, name="by_function")

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.by_class.update(batch_idx)
            self.by_function.update(batch_idx)
            return super().train_batch(batch, epoch_idx, batch_idx)

        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            self.by_class.update(batch_idx)
            self.by_function.update(batch_idx)
            return super().evaluate_batch(batch, batch_idx)

        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            return {"keeper": Keeper()}

    train(Trial, max_length=Batch(30), reporting_period=Batch(10))
    expected = [45, 145, 245, 0 + 1 + 2]
    assert [metrics["by_class"] for metrics in seen] == expected
    assert [metrics["by_function"] for metrics in seen] == expected


def test_function_reducer_sees_dataset_order_over_nine_ranks() -> None:
    items, size = list(range(47)), 9
    batches = [items[i : i + 2] for i in range(0, 47, 2)]
    gathered: list[list[Any]] = []
    for rank in range(size):
        context = _PyTorchReducerContext(lambda mine: [*gathered, mine])
        reducer: Any = context.wrap_reducer(lambda values: [v for b in values for v in b], "all")
        for batch in batches[rank::size]:
            reducer.update(batch)
        if rank < size - 1:
            gathered.append([reducer.per_slot_reduce()])
    assert context.reduce_metrics(for_training=True) == {"all": items}


def test_tensorboard_tags_and_steps(tmp_path: Path) -> None:
    class Trial(ManyBatches):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.red: Any = context.wrap_reducer(len, name="red")

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.red.update(1)
            return {**super().train_batch(batch, epoch_idx, batch_idx), "text": "x", "one": [1.0]}

        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            return {"vl": 1.0, "valid_x": torch.tensor(2.0), "acc": 0.5}

    train(
        Trial,
        {"tensorboard_path": tmp_path / "tb"},
        max_length=Batch(6),
        reporting_period=Batch(3),
    )
    points = read_points(tmp_path / "tb")
    steps = {tag: [step for step, _ in series] for tag, series in points.items()}
    assert {tag: at for tag, at in steps.items() if not tag.startswith("Determined/")} == {
        "lr/SGD/0": [3, 6],
        "throughput/batches_per_second": [3, 6],
        "throughput/samples_per_second": [3, 6],
    }
    assert {tag: at for tag, at in steps.items() if tag.startswith("Determined/")} == {
        "Determined/loss": [0, 1, 2, 3, 4, 5],
        "Determined/red": [3, 6],
        "Determined/val_vl": [6],
        "Determined/valid_x": [6],
        "Determined/val_acc": [6],
        "Determined/val_red": [6],
    }
    assert points["Determined/valid_x"] == [(6, 2.0)]


@pytest.mark.parametrize("in_init", [True, False])
def test_no_tags_are_written_with_logging_disabled(tmp_path: Path, in_init: bool) -> None:
    class Trial(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            if not in_init:
                context.set_enable_tensorboard_logging(False)

    options = {"tensorboard_path": tmp_path / "tb", "enable_tensorboard_logging": not in_init}
    trial = train(Trial, options)
    assert not list(tmp_path.glob("tb/**/*tfevents*"))
    trial.context.get_tensorboard_writer().close()
    assert list(tmp_path.glob("tb/**/*tfevents*"))
