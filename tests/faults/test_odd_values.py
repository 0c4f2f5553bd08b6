"""Losses that are no numbers, metrics of any type, names that change: clear, and never saved."""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from determined import pytorch
from determined.common.check import CheckFailedError
from determined.errors import DeterminedError
from determined.pytorch import Batch, DataLoader, PyTorchCallback
from determined.pytorch.callbacks import LossGuard
from tests.support.faults import in_memory, in_turns  # noqa: F401  # a fixture
from tests.support.trials import LineTrial, checkpoints, line, train

CLEAR = (TypeError, ValueError, CheckFailedError, DeterminedError, AssertionError)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch calls it experimental
    COMPLEX_HALF = torch.tensor(1 + 2j, dtype=torch.complex32)
VALUES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "text": lambda: "good",
    "long text": lambda: "x" * 100_000,
    "half a character": lambda: "\ud800",
    "bytes": lambda: b"good",
    "bool": lambda: True,
    "NaN": lambda: math.nan,
    "infinity": lambda: -math.inf,
    "tensor of NaN": lambda: torch.tensor(math.nan),
    "huge number": lambda: 10**400,
    "larger than 64 bits": lambda: 1 << 70,
    "complex": lambda: 1 + 2j,
    "complex tensor": lambda: torch.tensor(1 + 2j),
    "complex half tensor": lambda: COMPLEX_HALF,
    "bfloat16": lambda: torch.tensor(1.5, dtype=torch.bfloat16),
    "float16": lambda: torch.tensor(1.5, dtype=torch.float16),
    "float8": lambda: torch.tensor(1.5).to(torch.float8_e4m3fn),
    "uint64": lambda: torch.tensor(2**63, dtype=torch.uint64),
    "with gradient": lambda: torch.ones((), requires_grad=True) * 2,
    "parameter": lambda: nn.Parameter(torch.ones(2)),
    "0-d array": lambda: np.array(1.5),
    "1-d array": lambda: np.array([1.5, 2.5]),
    "2-d tensor": lambda: torch.ones(2, 2),
    "empty tensor": lambda: torch.ones(0),
    "empty array": lambda: np.ones(0),
    "strings of numpy": lambda: np.array(["a", "b"]),
    "objects of numpy": lambda: np.array([object(), None]),
    "date of numpy": lambda: np.datetime64("2024-01-01"),
    "float16 of numpy": lambda: np.float16(1.5),
    "longdouble of numpy": lambda: np.longdouble(1.5),
    "sparse tensor": lambda: torch.ones(2).to_sparse(),
    "meta tensor": lambda: torch.ones(2, device="meta"),
    "nested tensor list": lambda: [torch.ones(1), torch.ones(2)],
    "list": lambda: [1.0, 2.0],
    "ragged list": lambda: [1.0, [2.0]],
    "dictionary": lambda: {"inner": 1.0},
    "deep dictionary": lambda: {"a": {"b": {"c": torch.ones(1)}}},
    "set": lambda: {1.0},
    "date": lambda: datetime.date(2024, 1, 1),
    "decimal": lambda: decimal.Decimal("1.5"),
    "fraction": lambda: fractions.Fraction(1, 3),
    "object": object,
    "function": lambda: len,
    "exception": lambda: ValueError("x"),
    "file": lambda: Path("/nonexistent"),
}


class OddTrial(LineTrial):
    """Returns a metric that is hardly one."""

    odd: Callable[[], Any]
    where = "training"
    name: Any = "odd"

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        metrics = super().train_batch(batch, epoch_idx, batch_idx)
        return {**metrics, self.name: self.odd()} if self.where == "training" else metrics

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        metrics = super().evaluate_batch(batch, batch_idx)
        return {**metrics, self.name: self.odd()} if self.where == "validation" else metrics


class FullTrial(OddTrial):
    evaluate_batch = pytorch.PyTorchTrial.evaluate_batch

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        return {"validation_loss": 1.0, self.name: self.odd()}


class ReducedTrial(OddTrial):
    where = ""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        context.wrap_reducer(lambda _: self.odd(), self.name)


class Watcher(PyTorchCallback):
    """Overrides the hooks that get metrics, so that the ways for those are taken too."""

    def on_training_workload_end(
        self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]
    ) -> None:
        assert len(batch_metrics) > 0

    def on_validation_epoch_end(self, outputs: list[Any]) -> None:
        assert outputs

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        assert metrics


def works_or_names_it(trial_class: type[OddTrial], name: str, **attributes: Any) -> None:
    """Train with reports, event files, progress and checkpoints; an error must name the metric."""
    chosen = type("Odd", (trial_class,), {"odd": staticmethod(VALUES[name]), **attributes})

    def make(context: Any) -> OddTrial:
        trial: OddTrial = chosen(context)
        trial.callbacks = {"watcher": Watcher()}
        return trial

    error = failure_of(make)
    if error is not None:
        assert "odd" in str(error), repr(error)
        return
    assert list(checkpoints()) == [3]


def failure_of(make: Callable[[Any], LineTrial]) -> Exception | None:
    try:
        train(make, max_length=Batch(3), reporting_period=Batch(1), progress=True)
    except CLEAR as error:
        return error
    return None


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("where", ["training", "validation"])
def test_a_metric_of_any_type_works_or_is_named(where: str, name: str) -> None:
    works_or_names_it(OddTrial, name, where=where)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("trial_class", [FullTrial, ReducedTrial])
def test_so_it_is_with_metrics_of_the_users_own_making(
    trial_class: type[OddTrial], name: str
) -> None:
    works_or_names_it(trial_class, name)


@pytest.mark.parametrize("name", ["None", "text", "NaN", "huge number", "list", "complex", "bool"])
def test_a_best_metric_that_is_no_number_is_named(name: str) -> None:
    odd = type("Odd", (FullTrial,), {"odd": staticmethod(VALUES[name])})
    fit: dict[str, Any] = {"metric": "odd", "validation_period": Batch(1), "max_length": Batch(3)}
    if name in ("NaN", "bool"):
        train(odd, **fit)
        return
    with pytest.raises((RuntimeError, *CLEAR), match="odd"):
        train(odd, **fit)


NAMES = ["", " ", "a/b", "é", "\ud800", "x" * 10_000, "\n", "batches", "loss", 1, None, ("a",), 1.5]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:20])
@pytest.mark.parametrize("where", ["training", "validation"])
def test_metrics_of_any_name_work_or_are_named(where: str, name: Any) -> None:
    odd = type("Odd", (OddTrial,), {"odd": lambda self: 1.0, "name": name, "where": where})
    error = failure_of(odd)
    assert error is None or repr(name)[:100] in str(error), repr(error)


@pytest.mark.parametrize("names", [("a", "b"), ("a", 1), (1, "a"), (None, "a"), ("a", ("a",))])
@pytest.mark.parametrize("where", ["training", "validation"])
def test_names_that_change_are_named(where: str, names: tuple[Any, Any]) -> None:
    class Changing(OddTrial):
        def odd(self) -> float:
            self.name = names[1]
            return 1.0

    changing = type("Changing", (Changing,), {"where": where, "name": names[0]})
    with pytest.raises(CLEAR, match="same") as raised:
        train(changing, max_length=Batch(3))
    assert str(names[1]) in str(raised.value)


@pytest.mark.parametrize("result", [None, 1.0, [], "loss", np.float32(1), True])
def test_a_result_that_is_no_dictionary_is_named(result: Any) -> None:
    class Wrong(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            super().train_batch(batch, epoch_idx, batch_idx)
            return result if batch_idx == 1 else {"loss": 1.0}

    with pytest.raises(TypeError, match=r"train_batch.*batch 1"):
        train(Wrong)


# Not a number.


class SpoiltTrial(LineTrial):
    """One batch goes bad: in its loss, its gradients, or the statistics of a layer."""

    action = "stop"
    fault = "loss"
    value = math.nan
    at = 3
    num_batches = 8

    def __init__(self, context: Any) -> None:
        self.context = context
        self.log = []
        self.model = context.wrap_model(nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4)))
        self.optimizer = context.wrap_optimizer(
            torch.optim.Adam(self.model.parameters(), lr=self.learning_rate)
        )
        self.callbacks = {"guard": LossGuard(context, self.action)}  # type: ignore[arg-type]

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(line(self.num_batches), batch_size=2)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        x, y = batch
        is_bad = batch_idx == self.at
        if is_bad and self.fault == "input":
            x = x * self.value
        loss = (self.model(x) - y).pow(2).mean()
        if is_bad and self.fault == "loss":
            loss = loss * self.value
        self.context.backward(loss)
        if is_bad and self.fault == "gradient":
            parameter = next(self.model.parameters())
            assert parameter.grad is not None
            parameter.grad.fill_(self.value)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        return {"validation_loss": (self.model(x) - y).pow(2).mean()}


def assert_all_saved_is_finite() -> list[int]:
    found = checkpoints()
    for folders in found.values():
        for folder in folders:
            for file in (folder / "state_dict.pth", folder / "ranks" / "rank_0.pth"):
                # They are ours, and reading them in the safe way takes ten times as long.
                assert_finite(torch.load(file, weights_only=False), file)
    return sorted(found)


def assert_finite(value: Any, where: Any) -> None:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        assert value.isfinite().all(), where
    elif isinstance(value, dict):
        for entry in value.values():
            assert_finite(entry, where)
    elif isinstance(value, (list, tuple)):
        for entry in value:
            assert_finite(entry, where)


@pytest.mark.parametrize(("at", "value"), in_turns([0, 3, 7], [math.nan, math.inf]))
@pytest.mark.parametrize("fault", ["loss", "gradient", "input"])
@pytest.mark.parametrize("action", ["stop", "skip", "rollback"])
def test_no_bad_batch_reaches_a_checkpoint(action: str, fault: str, value: float, at: int) -> None:
    attributes = {"action": action, "fault": fault, "value": value, "at": at}
    spoilt = type("Spoilt", (SpoiltTrial,), attributes)
    fit = {"checkpoint_period": Batch(1), "reporting_period": Batch(2), "max_length": Batch(8)}
    init = {"run_id": "run", "seed": 1}
    train(spoilt, init, **fit)
    saved = assert_all_saved_is_finite()
    assert saved[-1] == (at + 1 if action == "stop" else 8)
    resumed = train(spoilt, init, **{**fit, "max_length": Batch(10)}, latest_checkpoint="latest")
    assert assert_all_saved_is_finite()[-1] == 10
    assert_finite(resumed.model.state_dict(), "the resumed model")


class ScaledTrial(LineTrial):
    """Scales its loss by so much that it overflows; the scaler finds a scale that does not."""

    def __init__(self, context: Any) -> None:
        self.scaler = context.wrap_scaler(torch.amp.GradScaler("cpu", init_scale=2.0**125))
        super().__init__(context)
        self.callbacks = {"guard": LossGuard(context)}

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        x, y = batch
        loss = nn.functional.mse_loss(self.model(x), y)
        self.context.backward(self.scaler.scale(loss))
        self.context.step_optimizer(self.optimizer, scaler=self.scaler)
        self.scaler.update()
        return {"loss": loss}


def test_a_scale_that_overflows_is_lowered_and_spoils_nothing() -> None:
    trial = train(ScaledTrial, max_length=Batch(12), checkpoint_period=Batch(1))
    assert len(assert_all_saved_is_finite()) == 12
    assert trial.scaler.get_scale() < 2.0**125
    assert 0 < trial.weight < 4


def test_a_metric_that_is_not_a_number_is_never_the_best() -> None:
    class Trial(LineTrial):
        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            step = self.context.current_train_batch()
            return {"error": [math.nan, 2.0, math.nan, 1.0, -math.nan, 3.0][step]}

    train(Trial, max_length=Batch(6), validation_period=Batch(1), metric="error")
    assert sorted(checkpoints()) == [4, 6]
