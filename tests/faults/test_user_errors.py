"""An exception anywhere in the user's code comes out as it is, and leaves nothing behind."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from torch.utils.data import Dataset, default_collate

from determined import InvalidHP, pytorch
from determined.pytorch import Batch, DataLoader, LRScheduler, MetricReducer, PyTorchCallback
from determined.storage import SharedFSStorageManager
from tests.support.faults import in_memory  # noqa: F401  # a fixture
from tests.support.leftovers import assert_nothing_more_than, holdings
from tests.support.trials import LineTrial, line, one_weight


class BadError(Exception):
    """What the user's code raises."""


@dataclasses.dataclass
class Fault:
    """Raises when the chosen place is reached for the n-th time."""

    where: str = ""
    at: int = 1
    error: BaseException = dataclasses.field(default_factory=lambda: BadError("bad"))
    is_armed: bool = True

    def reach(self, where: str) -> None:
        if self.is_armed and where == self.where:
            self.at -= 1
            if self.at == 0:
                self.is_armed = False
                raise self.error


class Records(Dataset[Any]):
    def __init__(self, fault: Fault, name: str) -> None:
        self._fault, self._name = fault, name
        self._data = line(3)

    def __len__(self) -> int:
        self._fault.reach(f"{self._name}.__len__")
        return len(self._data)

    def __getitem__(self, index: int) -> Any:
        self._fault.reach(f"{self._name}.__getitem__")
        return self._data[index]


class Order(torch.utils.data.Sampler[int]):
    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def __iter__(self) -> Iterator[int]:
        self._fault.reach("sampler.__iter__")
        return iter(range(6))

    def __len__(self) -> int:
        self._fault.reach("sampler.__len__")
        return 6


class Net(torch.nn.Module):
    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.fault = fault
        self.line = one_weight()

    def forward(self, x: torch.Tensor) -> Any:
        self.fault.reach("model.forward")
        return self.line(x)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        self.fault.reach("model.state_dict")
        return super().state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        self.fault.reach("model.load_state_dict")
        return super().load_state_dict(*args, **kwargs)


class Scheduler:
    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def step(self) -> None:
        self._fault.reach("scheduler.step")

    def get_last_lr(self) -> list[float]:
        return [0.1]

    def state_dict(self) -> dict[str, Any]:
        self._fault.reach("scheduler.state_dict")
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._fault.reach("scheduler.load_state_dict")


class Mean(MetricReducer):
    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def reset(self) -> None:
        self._fault.reach("reducer.reset")

    def per_slot_reduce(self) -> Any:
        self._fault.reach("reducer.per_slot_reduce")
        return 1.0

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        self._fault.reach("reducer.cross_slot_reduce")
        return 1.0


class Period:
    """A schedule of the user's own type."""

    def __init__(self, fault: Fault, name: str) -> None:
        self._fault, self._name = fault, name

    def __contains__(self, count: object) -> bool:
        self._fault.reach(f"{self._name}.__contains__")
        return count in (2, 4)


class Witness(PyTorchCallback):
    """Counts its beginnings and ends."""

    def __init__(self) -> None:
        self.started = self.ended = 0

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        self.started += 1

    def on_trial_shutdown(self) -> None:
        self.ended += 1


HOOKS = sorted(
    name
    for name in vars(PyTorchCallback)
    if (name.startswith("on_") and name != "on_fork")  # only forks call that one
    or name in ("state_dict", "load_state_dict")
)


def callback_with(fault: Fault) -> PyTorchCallback:
    """Return a callback that overrides the hook in question and no other."""

    def method(name: str) -> Callable[..., Any]:
        def hook(self: Any, *args: Any, **kwargs: Any) -> Any:
            fault.reach(f"callback.{name}")
            return {}

        return hook

    name = fault.where.partition(".")[2]
    methods = {name: method(name)} if fault.where.startswith("callback.") else {}
    callback: PyTorchCallback = type("Faulty", (PyTorchCallback,), methods)()
    return callback


class FaultyTrial(LineTrial):
    """Goes through every place at which it may be told to raise."""

    def __init__(self, context: Any, fault: Fault) -> None:
        self.fault = fault
        self.witnesses = [Witness(), Witness()]
        fault.reach("__init__")
        self.context = context
        self.log = []
        self.model = context.wrap_model(Net(fault))
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=self.learning_rate)
        )
        self.optimizer.register_step_pre_hook(lambda *_: fault.reach("optimizer.step"))
        context.wrap_lr_scheduler(Scheduler(fault), LRScheduler.StepMode.STEP_EVERY_BATCH)
        context.wrap_reducer(Mean(fault), "mean")
        context.wrap_reducer(self._reduce, "simple")

    def _reduce(self, values: list[Any]) -> float:
        self.fault.reach("reducer function")
        return 0.0

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        self.fault.reach("build_callbacks")
        first, last = self.witnesses
        return {"first": first, "faulty": callback_with(self.fault), "last": last}

    def build_training_data_loader(self) -> DataLoader:
        self.fault.reach("build_training_data_loader")
        return DataLoader(
            Records(self.fault, "training"),
            batch_size=2,
            sampler=Order(self.fault),
            collate_fn=self._collate,
        )

    def _collate(self, samples: list[Any]) -> Any:
        self.fault.reach("collate_fn")
        return default_collate(samples)

    def build_validation_data_loader(self) -> DataLoader:
        self.fault.reach("build_validation_data_loader")
        return DataLoader(Records(self.fault, "validation"), batch_size=2)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.fault.reach("train_batch")
        return super().train_batch(batch, epoch_idx, batch_idx)

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        self.fault.reach("evaluate_batch")
        return super().evaluate_batch(batch, batch_idx)

    def evaluation_reducer(self) -> Any:
        self.fault.reach("evaluation_reducer")
        return super().evaluation_reducer()

    def get_batch_length(self, batch: Any) -> int:
        self.fault.reach("get_batch_length")
        return super().get_batch_length(batch)


class FullDatasetTrial(FaultyTrial):
    evaluate_batch = pytorch.PyTorchTrial.evaluate_batch

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        for _ in data_loader:
            self.fault.reach("evaluate_full_dataset")
        return {"validation_loss": 1.0}


ONCE = [
    "__init__",
    "build_callbacks",
    "build_training_data_loader",
    "build_validation_data_loader",
    "model.load_state_dict",
    "scheduler.load_state_dict",
    *(f"callback.{name}" for name in HOOKS if name in ("load_state_dict",)),
    "callback.on_checkpoint_load_start",
    "callback.on_trial_startup",
    "callback.on_training_start",
    "callback.on_training_epoch_start",
    "callback.on_trial_shutdown",
    "sampler.__len__",
]
OFTEN = [
    "train_batch",
    "evaluate_batch",
    "evaluate_full_dataset",
    "evaluation_reducer",
    "get_batch_length",
    "collate_fn",
    "training.__getitem__",
    "validation.__getitem__",
    "sampler.__iter__",
    "model.forward",
    "model.state_dict",
    "optimizer.step",
    "scheduler.step",
    "scheduler.state_dict",
    "reducer.reset",
    "reducer.per_slot_reduce",
    "reducer.cross_slot_reduce",
    "reducer function",
    "validation_period.__contains__",
    "checkpoint_period.__contains__",
    "reporting_period.__contains__",
    *(f"callback.{name}" for name in HOOKS if f"callback.{name}" not in ONCE),
]
CASES = [*((where, 1) for where in [*ONCE, *OFTEN]), *((where, 2) for where in OFTEN)]


def fit(trainer: pytorch.Trainer, fault: Fault, **options: Any) -> None:
    periods: dict[str, Any] = {
        name: Batch(Period(fault, name))
        for name in ("validation_period", "checkpoint_period", "reporting_period")
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # on_checkpoint_end is deprecated
        trainer.fit(max_length=Batch(6), step_zero_validation=True, **periods, **options)


def start(tmp_path: Path) -> str:
    """Return a checkpoint to resume from."""
    with pytorch.init(checkpoint_storage=tmp_path / "first", run_id="run") as context:
        trainer = pytorch.Trainer(FaultyTrial(context, Fault()), context)
        trainer.fit(max_length=Batch(1))
    assert trainer.latest_checkpoint is not None
    return trainer.latest_checkpoint


def trial_class_for(where: str) -> type[FaultyTrial]:
    return FullDatasetTrial if where == "evaluate_full_dataset" else FaultyTrial


def run(fault: Fault, storage: Path, latest_checkpoint: str | None) -> NoReturn:
    """Train in vain."""
    trial = None
    with pytorch.init(checkpoint_storage=storage, run_id="run") as context:
        try:
            trial = trial_class_for(fault.where)(context, fault)
            trainer = pytorch.Trainer(trial, context)
            fit(trainer, fault, latest_checkpoint=latest_checkpoint)
        finally:
            if trial is not None:
                assert all(witness.started == witness.ended for witness in trial.witnesses)
        raise AssertionError(f"{fault.where} was never reached")


def caught(fault: Fault, storage: Path, latest_checkpoint: str | None) -> BaseException:
    """Return what comes out of a run; even what is no `Exception`."""
    try:
        run(fault, storage, latest_checkpoint)
    except BaseException as error:
        return error


def causes(error: BaseException | None) -> list[BaseException]:
    found = []
    while error is not None:
        found.append(error)
        error = error.__cause__
    return found


@pytest.fixture(scope="module")
def first_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("first")
        patch.chdir(folder)
        patch.setenv("DET_PROGRESS", "off")
        return start(folder)


@pytest.mark.parametrize(("where", "at"), CASES)
def test_an_error_comes_out_leaves_nothing_behind_and_fit_can_be_called_again(
    where: str, at: int, tmp_path: Path, first_checkpoint: str
) -> None:
    before = holdings()
    fault = Fault(where, at)
    storage = SharedFSStorageManager(tmp_path / "storage")
    with pytorch.init(checkpoint_storage=tmp_path / "storage", run_id="run") as context:
        if where == "__init__":
            with pytest.raises(BadError):
                FaultyTrial(context, fault)
            return
        trial = trial_class_for(where)(context, fault)
        trainer = pytorch.Trainer(trial, context)
        with pytest.raises((BadError, ValueError)) as raised:
            fit(trainer, fault, latest_checkpoint=first_checkpoint)
        assert fault.error in causes(raised.value)
        # Reducers have no line of their own in the trial, so their errors are named.
        assert raised.value is fault.error or where.startswith("reducer")
        assert all(witness.started == witness.ended for witness in trial.witnesses)
        assert not list(Path(storage.location).glob(".*.tmp-*"))
        assert all(storage.verify(found.storage_id) for found in storage.list())

        fit(trainer, fault, latest_checkpoint=first_checkpoint)
        assert context.current_train_batch() == 5
        assert trainer.latest_checkpoint is not None
    assert_nothing_more_than(before)


MEANINGFUL = (KeyboardInterrupt(), SystemExit(3), InvalidHP("no"), StopIteration(), GeneratorExit())
PLACES = (
    "build_training_data_loader",
    "train_batch",
    "evaluate_batch",
    "training.__getitem__",
    "validation.__getitem__",
    "callback.on_training_batch_end",
    "callback.on_checkpoint_write_end",
    "callback.on_validation_end",
    "model.state_dict",
)


@pytest.mark.parametrize(
    ("where", "error"),
    [
        pytest.param(where, error, id=f"{where}-{type(error).__name__}")
        for where in PLACES
        for error in MEANINGFUL
        if (where, type(error)) != ("callback.on_checkpoint_write_end", InvalidHP)  # see below
    ],
)
def test_errors_with_a_meaning_are_treated_no_worse(
    where: str, error: BaseException, tmp_path: Path, first_checkpoint: str
) -> None:
    before = holdings()
    found = caught(Fault(where, error=error), tmp_path / "storage", first_checkpoint)
    assert error in causes(found), f"{found!r} instead"
    assert "never reached" not in str(found)
    assert_nothing_more_than(before)


def test_a_save_that_refuses_the_hyperparameters_ends_training_without_an_error(
    tmp_path: Path, first_checkpoint: str
) -> None:
    before = holdings()
    where = "callback.on_checkpoint_write_end"
    fault = Fault(where, error=InvalidHP("no"))
    storage = SharedFSStorageManager(tmp_path / "storage")
    with pytorch.init(checkpoint_storage=tmp_path / "storage", run_id="run") as context:
        trial = FaultyTrial(context, fault)
        fit(pytorch.Trainer(trial, context), fault, latest_checkpoint=first_checkpoint)
        assert context.current_train_batch() < 5  # of the six that were asked for
    assert all(witness.started == witness.ended == 1 for witness in trial.witnesses)
    assert not list(Path(storage.location).glob(".*.tmp-*"))
    assert storage.list() == []
    assert_nothing_more_than(before)


def test_errors_on_the_way_out_do_not_hide_the_first(tmp_path: Path) -> None:
    class Worse(PyTorchCallback):
        def on_trial_shutdown(self) -> None:
            raise BadError("on the way out")

    class Trial(FaultyTrial):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            return {"worse": Worse(), **super().build_callbacks()}

    before = holdings()
    first = BadError("first")
    with pytorch.init(checkpoint_storage=tmp_path / "storage") as context:
        trial = Trial(context, Fault("train_batch", error=first))
        trainer = pytorch.Trainer(trial, context)
        with pytest.raises(BadError, match="on the way out") as raised:
            trainer.fit(max_length=Batch(2))
    assert raised.value.__context__ is first
    assert all(witness.ended == 1 for witness in trial.witnesses)
    assert_nothing_more_than(before)


def test_the_message_names_the_line_and_the_batch(tmp_path: Path) -> None:
    error = caught(Fault("train_batch", 3), tmp_path / "storage", None)
    notes = "\n".join(getattr(error, "__notes__", []))
    if hasattr(error, "add_note"):  # Python 3.11 and later
        assert "batch 2" in notes
        assert Path(__file__).name in notes
