"""Any value for any argument: it works, or the error names the argument. No third way."""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, SequentialSampler

from determined import pytorch
from determined.common.check import CheckFailedError
from determined.errors import CheckpointError, DeterminedError
from determined.pytorch import Batch, DataLoader, Epoch, samplers
from tests.support.faults import factor, in_memory  # noqa: F401  # a fixture
from tests.support.trials import LineTrial, line, one_weight

# The last two are old promises, in a few places.
DOCUMENTED = (
    TypeError,
    ValueError,
    CheckFailedError,
    DeterminedError,
    AssertionError,
    RuntimeError,
)


def function(*_: Any) -> int:
    return 1


UNITS: list[Any] = [0, -3, [1], [], "x", 1.5, None, True, np.int64(2), {1: 2}]
JUNK: list[Any] = [
    None, True, False, 0, 1, 2, 3, -1, 2**70, -(2**70), 0.0, 1.5, -0.5, math.nan, math.inf, 1j,
    "", "x", "best", "latest", "cpu", "nonsense:7", "\0", "x" * 5000, "../..", b"x", "1", "False",
    [], [1], [-1], ["x"], [[0], [1]], (), (1, 2), {}, {"a": 1}, {1: 2}, set(), {1}, range(3),
    object(), Ellipsis, int, str, function, function, Path("x"), Path("/"),
    np.int64(2), np.float32(1.5), np.bool_(True), np.array([1, 2]), np.array(1), np.array(["a"]),
    torch.tensor(2), torch.tensor([1.0, 2.0]), torch.tensor(math.nan), torch.float16, torch.int64,
    torch.device("cpu"), torch.device("meta"), torch.Generator(), iter([1, 2]),
    Batch(1), Epoch(1), *map(Batch, UNITS), *map(Epoch, UNITS),
    one_weight(), torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1), LineTrial,
    SequentialSampler(range(4)), BatchSampler(SequentialSampler(range(4)), 2, False), line(2),
    pytorch.LRScheduler.StepMode.MANUAL_STEP, pytorch.Reducer.AVG,
]  # fmt: skip


class EntryPoint:
    """Something that users call: with all arguments good, then with one of them bad."""

    def __init__(self, call: Callable[..., Any], *arguments: str) -> None:
        self.call = call
        self.arguments = arguments


def enter(**arguments: Any) -> None:
    arguments.setdefault("checkpoint_storage", Path("storage").absolute())
    with pytorch.init(**arguments) as context:
        assert context.get_trial_seed() is not None


def fit(**arguments: Any) -> None:
    arguments.setdefault("max_length", Batch(2))
    with context() as made:
        pytorch.Trainer(LineTrial(made), made).fit(**arguments)


def configure_profiler(**arguments: Any) -> None:
    with context() as made:
        trainer = pytorch.Trainer(LineTrial(made), made)
        trainer.configure_profiler(**arguments)
        trainer.fit(max_length=Batch(2))


def make_trainer(**arguments: Any) -> None:
    with context() as made:
        good = {"trial": LineTrial(made), "context": made}
        pytorch.Trainer(**{**good, **arguments}).fit(max_length=Batch(1))


def context() -> Any:
    return pytorch.init(
        checkpoint_storage=Path("storage").absolute(), hparams={"a": 1}, run_id="run"
    )


def load(**arguments: Any) -> None:
    good = {"path": saved(Path("storage").absolute()), "trial_class": LineTrial}
    pytorch.load_trial_from_checkpoint_path(**{**good, **arguments})


@functools.cache
def saved(storage: Path) -> str | None:
    """Return a checkpoint that is made once for each test, which has a directory of its own."""
    with context() as made:
        trainer = pytorch.Trainer(LineTrial(made), made)
        trainer.fit(max_length=Batch(1))
    return trainer.latest_checkpoint


def make_loader(**arguments: Any) -> None:
    loader = DataLoader(**{"dataset": line(2), **arguments})
    if not loader.num_workers:  # no processes here
        list(itertools.islice(loader, 3))


def open_loader(**arguments: Any) -> None:
    list(itertools.islice(DataLoader(line(2)).get_data_loader(**arguments), 3))


def train_on(**arguments: Any) -> None:
    class Trial(LineTrial):
        def build_training_data_loader(self) -> DataLoader:
            return DataLoader(**{"dataset": line(2), "batch_size": 2, **arguments})

    if is_number(arguments.get("num_workers", 0)):
        return  # no processes here
    with context() as made:
        pytorch.Trainer(Trial(made), made).fit(max_length=Batch(2))


def is_number(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and bool(value)


def iterate(make: Callable[..., Any], **good: Any) -> Callable[..., None]:
    def call(**arguments: Any) -> None:
        made = make(**{**good, **arguments})
        list(itertools.islice(made, 5))

    return call


def in_trial(method: str, **good: Callable[[LineTrial], Any]) -> Callable[..., None]:
    """Call a method of the context after a trial was made."""

    def call(**arguments: Any) -> None:
        with context() as made:
            trial = LineTrial(made)
            values = {name: make(trial) for name, make in good.items()}
            target: Any = made
            for name in method.split("."):
                target = getattr(target, name)
            target(**{**values, **arguments})

    return call


def before_trial(method: str) -> Callable[..., None]:
    def call(**arguments: Any) -> None:
        with context() as made:
            target: Any = made
            for name in method.split("."):
                target = getattr(target, name)
            target(**arguments)

    return call


def should_stop(kind: type[pytorch.TrainUnit]) -> Callable[..., Any]:
    return lambda value: kind(value).should_stop(3)


def schedule(trial: LineTrial) -> Any:
    return torch.optim.lr_scheduler.StepLR(trial.optimizer, 1)


def loss_of(trial: LineTrial) -> torch.Tensor:
    return trial.model(torch.ones(1, 1)).sum()  # type: ignore[no-any-return]


def batches() -> BatchSampler:
    return BatchSampler(SequentialSampler(range(6)), 2, False)


def indices() -> SequentialSampler:
    return SequentialSampler(range(6))


MADE = {"repeat": False, "skip": 0, "num_replicas": 1, "rank": 0}
ENTRY_POINTS = {
    "init": EntryPoint(
        enter,
        "hparams", "exp_conf", "distributed", "aggregation_frequency",
        "enable_tensorboard_logging", "seed", "checkpoint_storage", "tensorboard_path", "run_id",
        "allow_pickle", "trusted_classes", "device",
    ),
    "Trainer": EntryPoint(make_trainer, "trial", "context"),
    "fit": EntryPoint(
        fit,
        "checkpoint_period", "validation_period", "max_length", "reporting_period",
        "checkpoint_policy", "latest_checkpoint", "step_zero_validation", "test_mode",
        "profiling_enabled", "metric", "smaller_is_better", "async_checkpoint",
        "on_checkpoint_error", "export", "progress",
    ),
    "configure_profiler": EntryPoint(
        configure_profiler, "sync_timings", "enabled", "begin_on_batch", "end_after_batch"
    ),
    "DataLoader": EntryPoint(
        make_loader,
        "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers",
        "collate_fn", "pin_memory", "drop_last", "timeout", "worker_init_fn",
        "multiprocessing_context", "generator", "prefetch_factor", "persistent_workers",
    ),
    "DataLoader in fit": EntryPoint(
        train_on,
        "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers",
        "collate_fn", "drop_last", "timeout", "generator",
    ),
    "get_data_loader": EntryPoint(open_loader, "repeat", "skip", "num_replicas", "rank"),
    "adapt_batch_sampler": EntryPoint(
        iterate(pytorch.adapt_batch_sampler, batch_sampler=batches()),
        "batch_sampler", "repeat", "skip", "num_replicas", "rank",
    ),
    "RepeatSampler": EntryPoint(iterate(samplers.RepeatSampler), "sampler"),
    "RepeatBatchSampler": EntryPoint(iterate(samplers.RepeatBatchSampler), "batch_sampler"),
    "DistributedSampler": EntryPoint(
        iterate(samplers.DistributedSampler, sampler=indices(), num_workers=2, rank=0),
        "sampler", "num_workers", "rank",
    ),
    "DistributedBatchSampler": EntryPoint(
        iterate(samplers.DistributedBatchSampler, batch_sampler=batches(), num_workers=2, rank=0),
        "batch_sampler", "num_workers", "rank",
    ),
    "SkipSampler": EntryPoint(
        iterate(samplers.SkipSampler, sampler=indices(), skip=1), "sampler", "skip"
    ),
    "SkipBatchSampler": EntryPoint(
        iterate(samplers.SkipBatchSampler, batch_sampler=batches(), skip=1), "batch_sampler", "skip"
    ),
    "ReproducibleShuffleSampler": EntryPoint(
        iterate(samplers.ReproducibleShuffleSampler, sampler=indices(), seed=1), "sampler", "seed"
    ),
    "ReproducibleShuffleBatchSampler": EntryPoint(
        iterate(samplers.ReproducibleShuffleBatchSampler, batch_sampler=batches(), seed=1),
        "batch_sampler", "seed",
    ),
    "Batch": EntryPoint(should_stop(Batch), "value"),
    "Epoch": EntryPoint(should_stop(Epoch), "value"),
    "wrap_model": EntryPoint(
        in_trial("wrap_model", model=lambda _: one_weight()),
        "model", "parallel", "shard_modules", "compile",
    ),
    "wrap_optimizer": EntryPoint(
        in_trial("wrap_optimizer", optimizer=lambda trial: trial.optimizer),
        "optimizer", "backward_passes_per_step", "fp16_compression", "average_aggregated_gradients",
    ),
    "wrap_lr_scheduler": EntryPoint(
        in_trial(
            "wrap_lr_scheduler",
            lr_scheduler=schedule,
            step_mode=lambda _: pytorch.LRScheduler.StepMode.MANUAL_STEP,
        ),
        "lr_scheduler", "step_mode", "frequency",
    ),
    "wrap_scaler": EntryPoint(before_trial("wrap_scaler"), "scaler"),
    "wrap_reducer": EntryPoint(
        in_trial("wrap_reducer", reducer=lambda _: sum),
        "reducer", "name", "for_training", "for_validation",
    ),
    "backward": EntryPoint(
        in_trial("backward", loss=loss_of), "loss", "gradient"
    ),
    "use_amp": EntryPoint(before_trial("experimental.use_amp"), "dtype"),
    "to_device": EntryPoint(in_trial("to_device"), "data"),
    "set_stop_requested": EntryPoint(before_trial("set_stop_requested"), "stop_requested"),
    "set_enable_tensorboard_logging": EntryPoint(
        before_trial("set_enable_tensorboard_logging"), "enable_tensorboard_logging"
    ),
    "get_hparam": EntryPoint(before_trial("get_hparam"), "name"),
    "data_length": EntryPoint(pytorch.data_length, "data"),
    "load_trial_from_checkpoint_path": EntryPoint(
        load, "path", "trial_class", "trial_kwargs", "torch_load_kwargs"
    ),
}  # fmt: skip
TRAINING = ("fit", "configure_profiler", "DataLoader in fit")
CASES = [(name, argument) for name, entry in ENTRY_POINTS.items() for argument in entry.arguments]


def is_fair(called: str, argument: str, value: Any) -> bool:
    """Leave out what is a good argument by all that can be known, and fails as user code."""
    if argument in ("sampler", "batch_sampler"):
        return not hasattr(value, "__iter__") and not hasattr(value, "__getitem__")
    if argument == "dataset":
        return not hasattr(value, "__getitem__") or getattr(value, "ndim", 1) == 0
    if argument == "compile":
        return not isinstance(value, dict)
    if argument in ("collate_fn", "worker_init_fn", "trial_class", "reducer"):
        return not callable(value)
    if argument in ("loss", "gradient"):
        return not isinstance(value, torch.Tensor)  # torch knows more about these
    if argument in ("trial_kwargs", "torch_load_kwargs", "hparams"):
        return not isinstance(value, dict) or not value
    if argument == "max_length" and isinstance(value, pytorch.TrainUnit):
        return not isinstance(value.value, int) or value.value < 100  # it would train on, rightly
    return not (called == "get_hparam" and isinstance(value, str))


def values_for(called: str, argument: str) -> list[Any]:
    """All values; in the short form every other one where each of them costs a training run."""
    if factor() > 1 or called not in TRAINING:
        return JUNK
    return JUNK[CASES.index((called, argument)) % 2 :: 2]


def try_it(called: str, arguments: dict[str, Any]) -> str | None:
    """Call with these arguments; return what is wrong with the way it failed, if anything."""
    try:
        ENTRY_POINTS[called].call(**arguments)
    except DOCUMENTED as error:
        if isinstance(error, CheckpointError):
            return None  # these name the checkpoint and the file
        if not any(name in str(error) for name in arguments):
            return f"an error that names no argument: {error!r}"
    except Exception as error:
        return f"an internal error: {error!r}"
    return None


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of much that is merely odd
        yield


@pytest.mark.parametrize(("called", "argument"), CASES)
def test_one_bad_argument_works_or_is_named(called: str, argument: str) -> None:
    problems = []
    for value in values_for(called, argument):
        if not is_fair(called, argument, value):
            continue
        wrong = try_it(called, {argument: value})
        if wrong is not None:
            problems.append(f"{argument}={ascii_of(value)}: {wrong}")
    assert not problems, "\n".join(problems)


def ascii_of(value: Any) -> str:
    try:
        return ascii(value)[:60]
    except Exception:
        return f"<{type(value).__name__}>"


NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=5,
)
VALUES = st.sampled_from(JUNK) | NESTED | st.builds(Batch, st.integers(-5, 5) | NESTED)
CHEAP = [
    name
    for name in ENTRY_POINTS
    if name not in ("fit", "Trainer", "configure_profiler", "DataLoader in fit")
    and not name.startswith("load_")
]


@settings(
    max_examples=300 * factor(),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
@given(data=st.data())
def test_any_combination_of_arguments_works_or_is_named(data: st.DataObject) -> None:
    called = data.draw(st.sampled_from(CHEAP))
    names = data.draw(
        st.sets(st.sampled_from(ENTRY_POINTS[called].arguments), min_size=1, max_size=3)
    )
    arguments = {name: data.draw(VALUES, label=name) for name in sorted(names)}
    assume(all(is_fair(called, name, value) for name, value in arguments.items()))
    wrong = try_it(called, arguments)
    assert wrong is None, f"{called}({', '.join(arguments)}): {wrong}"


@settings(
    max_examples=40 * factor(),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
@given(data=st.data())
def test_any_combination_of_arguments_of_fit_works_or_is_named(data: st.DataObject) -> None:
    names = data.draw(
        st.sets(st.sampled_from(ENTRY_POINTS["fit"].arguments), min_size=1, max_size=4)
    )
    arguments = {name: data.draw(VALUES, label=name) for name in sorted(names)}
    assume(all(is_fair("fit", name, value) for name, value in arguments.items()))
    wrong = try_it("fit", arguments)
    assert wrong is None, f"fit({', '.join(arguments)}): {wrong}"
