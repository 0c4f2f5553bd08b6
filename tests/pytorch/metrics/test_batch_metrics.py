"""Metrics of batches: types, averages, and reduction over batches and ranks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from determined import pytorch, util
from determined.common.check import CheckFailedError
from determined.core._distributed import DistributedContext, DummyDistributedContext
from determined.errors import InvalidExperimentException
from determined.pytorch import (
    Batch,
    DataLoader,
    PyTorchCallback,
    PyTorchTrial,
    PyTorchTrialContext,
    Reducer,
)
from determined.pytorch._metrics.batch_metrics import (
    BatchMetrics,
    Rows,
    _combine_and_average_training_metrics,
    _convert_metrics_to_numpy,
    _prepare_metrics_reducers,
    _reduce_metrics,
    averages,
)
from tests.support.messages import documented
from tests.support.trials import LineTrial, line, one_weight, train
from tests.support.workers import run_threads


def _collected(*batches: dict[str, Any]) -> BatchMetrics:
    metrics = BatchMetrics()
    for batch in batches:
        metrics.append(batch)
    return metrics


def _average(*values: Any) -> Any:
    return averages(_collected(*({"a": value} for value in values)).columns())["a"]


def test_averages_of_the_specification() -> None:
    assert _average(1, 2) == 1.5
    assert _average(True, False) == 0.5
    assert _average(None, 4) == 4.0
    assert _average("x", "y") is None
    assert _average(None, None) is None
    assert _average(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 6.0])) == 3.0
    assert _average(torch.tensor(1), torch.tensor(2)) == 1.5
    assert _average(torch.ones(2), torch.ones(3)) is None
    for average in (_average(1, 2), _average(torch.tensor(1.0)), _average(np.float32(2))):
        assert type(average) is float


@given(
    st.lists(
        st.floats(-1e6, 1e6, width=32) | st.booleans() | st.integers(-999, 999) | st.none(),
        min_size=1,
        max_size=30,
    )
)
def test_averages_are_those_of_make_metrics(values: list[Any]) -> None:
    expected = util.make_metrics(None, [{"a": value} for value in values])["avg_metrics"]["a"]
    assert _average(*values) == expected
    tensors = [torch.tensor(float(value or 0)) for value in values]
    arrays = [{"a": tensor.numpy()} for tensor in tensors]
    assert _average(*tensors) == util.make_metrics(None, arrays)["avg_metrics"]["a"]


def test_rows_hold_arrays_for_tensors_and_other_values_as_they_came() -> None:
    vector = np.arange(3)
    batch = {"t": torch.tensor(1.5), "f": 2.5, "i": 3, "s": "x", "n": None, "v": vector}
    metrics = _collected(batch, {**batch, "t": torch.tensor(2.5)})
    first, second = Rows(metrics.columns(), len(metrics))
    assert list(first) == list(batch)
    assert isinstance(first["t"], np.ndarray)
    assert (first["t"].shape, first["t"].dtype) == ((), np.float32)
    assert first["t"] == 1.5
    assert second["t"] == 2.5
    assert (type(first["f"]), type(first["i"])) == (float, int)
    assert first["s"] == "x"
    assert first["n"] is None
    assert first["v"] is vector


def test_types_that_numpy_lacks_become_float32() -> None:
    for dtype in (torch.bfloat16, torch.float8_e4m3fn):
        value = torch.tensor(1.5).to(dtype)
        assert _average(value) == 1.5
        assert _convert_metrics_to_numpy({"a": value})["a"].dtype == np.float32


def test_conversion_happens_in_place() -> None:
    metrics = {"a": torch.tensor(1.0, requires_grad=True), "b": "x"}
    assert _convert_metrics_to_numpy(metrics) is metrics
    assert isinstance(metrics["a"], np.ndarray)


def test_metrics_do_not_change_when_weights_do() -> None:
    model = one_weight(1.0)
    buffer = torch.ones(())
    metrics = _collected(
        {
            "view": model.weight[0, 0],
            "weight": model.weight.detach(),
            "buffer": buffer,
            "loss": model.weight.sum(),
        }
    )
    with torch.no_grad():
        model.weight.fill_(9.0)
        buffer.fill_(9.0)
    assert averages(metrics.columns()) == {"view": 1.0, "weight": 1.0, "buffer": 1.0, "loss": 1.0}


def test_long_segments_are_kept_in_pieces() -> None:
    n = 2500
    metrics = _collected(*({"a": torch.tensor(float(i)), "b": i} for i in range(n)))
    assert len(metrics) == n
    listed = Rows(metrics.columns(), n)
    assert [row["a"] for row in listed] == [row["b"] for row in listed] == list(range(n))
    assert averages(metrics.columns()) == {"a": (n - 1) / 2, "b": (n - 1) / 2}


@pytest.mark.parametrize("gap", [1, 1500])
def test_names_must_be_the_same_in_all_batches(gap: int) -> None:
    with pytest.raises(CheckFailedError, match="names"):
        _collected(*[{"a": 1}] * gap, {"b": 1}).columns()


def test_names_must_be_the_same_in_a_training_segment() -> None:
    class Trial(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            return {f"loss_{batch_idx}": 1.0}

    with pytest.raises(CheckFailedError, match="names"):
        train(Trial)
    train(Trial, reporting_period=Batch(1), checkpoint_policy="none")


def test_empty_metrics_are_fine() -> None:
    class Trial(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            return {}

    assert train(Trial).context.current_train_batch() == 2


def test_bare_tensor_is_the_loss_and_users_counters_win() -> None:
    seen: list[dict[str, Any]] = []

    class Keeper(PyTorchCallback):
        def on_training_workload_end(
            self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]
        ) -> None:
            seen.append(avg_metrics)

    class Trial(LineTrial):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            return {"keeper": Keeper()}

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 0:
                return torch.tensor(2.0)
            return {"batches": 42}

    train(Trial, max_length=Batch(2), reporting_period=Batch(1))
    assert seen == [{"loss": 2.0, "batches": 1, "epochs": 0}, {"batches": 42.0, "epochs": 0}]


# Validation.


def _validated(
    per_batch: list[dict[str, Any]], reducer: Any = Reducer.AVG, trial_class: Any = LineTrial
) -> dict[str, Any]:
    seen: list[dict[str, Any]] = []

    class Keeper(PyTorchCallback):
        def on_validation_end(self, metrics: dict[str, Any]) -> None:
            seen.append(dict(metrics))

    class Trial(trial_class):  # type: ignore[misc]  # given by the test
        num_validation_batches = len(per_batch)

        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.callbacks["keeper"] = Keeper()

        def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
            return per_batch[batch_idx]

        def evaluation_reducer(self) -> Any:
            return reducer

    train(Trial, max_length=Batch(1), checkpoint_policy="none")
    return seen[0]


def test_batches_weigh_equally_and_shapes_collapse() -> None:
    per_batch = [{"a": torch.tensor([1.0, 2.0])}, {"a": torch.tensor([3.0, 6.0])}]
    expected = {Reducer.AVG: 3.0, Reducer.SUM: 12.0, Reducer.MAX: 6.0, Reducer.MIN: 1.0}
    for reducer, value in expected.items():
        result = _validated(per_batch, reducer)["a"]
        assert result == value
        assert isinstance(result, np.float32)


def test_shapes_may_differ_between_batches() -> None:
    per_batch = [{"a": torch.tensor([1.0, 2.0])}, {"a": torch.tensor([6.0])}]
    assert _validated(per_batch, Reducer.AVG)["a"] == 3.0
    assert _validated(per_batch, Reducer.MAX)["a"] == 6.0


def test_each_metric_may_have_its_own_reducer() -> None:
    per_batch = [{"a": 1, "b": 1.0}, {"a": 2, "b": 5.0}]
    metrics = _validated(per_batch, {"a": Reducer.SUM, "b": Reducer.MIN})
    assert metrics == {"a": 3, "b": 1.0}


@pytest.mark.parametrize(
    "reducer", [{"a": Reducer.SUM}, {"a": Reducer.SUM, "c": Reducer.SUM}, "AVG", None, {"a": 1}]
)
def test_wrong_evaluation_reducers_are_refused(reducer: Any) -> None:
    with pytest.raises(InvalidExperimentException, match="evaluation_reducer"):
        _validated([{"a": 1.0, "b": 1.0}], reducer)


def test_validation_names_must_agree() -> None:
    with pytest.raises(ValueError, match="same metrics"):
        _validated([{"a": 1.0}, {"b": 1.0}])


@pytest.mark.parametrize("result", [None, torch.tensor(1.0), [1.0]])
def test_evaluate_batch_must_return_a_dictionary(result: Any) -> None:
    with pytest.raises(TypeError, match="evaluate_batch"):
        _validated([result])


def test_what_cannot_be_reduced_is_named() -> None:
    with pytest.raises(TypeError, match="'name' of evaluate_batch is text"):
        _validated([{"name": "cat"}, {"name": "dog"}])


def test_no_validation_batch_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no batch"):
        _validated([])


def test_reducers_override_metrics_of_the_same_name() -> None:
    class Trial(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            context.wrap_reducer(lambda values: 7, name="a", for_training=False)

    assert _validated([{"a": 1.0, "b": 2.0}], trial_class=Trial) == {"a": 7, "b": 2.0}


def test_callbacks_may_edit_what_is_reduced() -> None:
    class Editor(PyTorchCallback):
        def on_validation_epoch_end(self, outputs: list[Any]) -> None:
            for output in outputs:
                output["a"] = -1.0

    class Trial(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.callbacks["editor"] = Editor()

    assert _validated([{"a": 1.0}, {"a": 2.0}], trial_class=Trial) == {"a": -1.0}


@pytest.mark.parametrize("form", ["legacy", "positional", "keyword"])
def test_evaluate_batch_takes_the_index_in_any_form(form: str) -> None:
    seen: list[Any] = []

    class Legacy(LineTrial):
        def evaluate_batch(self, batch: Any) -> dict[str, Any]:  # type: ignore[override]
            seen.append(None)
            return {"a": 1.0}

    class Positional(LineTrial):
        def evaluate_batch(self, batch: Any, idx: int) -> dict[str, Any]:
            seen.append(idx)
            return {"a": 1.0}

    class Keyword(LineTrial):
        def evaluate_batch(self, *, batch_idx: int, batch: Any) -> dict[str, Any]:  # type: ignore[override]
            seen.append(batch_idx)
            return {"a": 1.0}

    classes: dict[str, type[LineTrial]] = {
        "legacy": Legacy,
        "positional": Positional,
        "keyword": Keyword,
    }
    train(classes[form], max_length=Batch(1))
    assert seen == ([None] * 3 if form == "legacy" else [0, 1, 2])


@pytest.mark.parametrize("result", [None, 1.0])
def test_evaluate_full_dataset_must_return_a_dictionary(result: Any) -> None:
    class Trial(LineTrial):
        evaluate_batch = PyTorchTrial.evaluate_batch

        def evaluate_full_dataset(self, data_loader: Any) -> Any:
            return result

    with pytest.raises(TypeError, match="evaluate_full_dataset"):
        train(Trial)


def test_prepared_reducers_cover_every_name() -> None:
    keys = {"a": 1, "b": 2}.keys()
    assert _prepare_metrics_reducers(Reducer.MAX, keys) == {"a": Reducer.MAX, "b": Reducer.MAX}


# Ranks, as threads.


def _over_ranks(
    parts: list[list[dict[str, Any]]], reducer: Reducer, lengths: list[list[int]] | None = None
) -> Any:
    def reduce(distributed: DistributedContext) -> Any:
        metrics = _collected(*parts[distributed.rank])
        columns = metrics.columns()
        reducers = _prepare_metrics_reducers(reducer, columns.keys()) if len(metrics) else {}
        mine = [] if lengths is None else lengths[distributed.rank]
        return _reduce_metrics(distributed, columns, len(metrics), reducers, mine)

    chief, *others = run_threads((1, len(parts)), reduce)
    assert all(other == {} for other in others)
    return chief


@pytest.mark.parametrize(
    ("reducer", "expected"),
    [(Reducer.AVG, 7.2), (Reducer.SUM, 36), (Reducer.MAX, 20), (Reducer.MIN, 1)],
)
def test_ranks_weigh_by_their_batches(reducer: Reducer, expected: float) -> None:
    parts = [[{"a": v} for v in (1, 2, 3)], [{"a": v} for v in (10, 20)]]
    assert _over_ranks(parts, reducer) == {"a": pytest.approx(expected)}


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 9), st.floats(-1e3, 1e3)), max_size=4), min_size=2)
    .filter(any)
    .filter(lambda shards: len(shards) <= 4)
)
@settings(max_examples=25)
def test_sample_average_is_that_of_all_samples_however_sharded(
    shards: list[list[tuple[int, float]]],
) -> None:
    samples = [value for shard in shards for length, value in shard for _ in range(length)]
    result = _over_ranks(
        [[{"a": value} for _, value in shard] for shard in shards],
        Reducer.SAMPLE_AVG,
        [[length for length, _ in shard] for shard in shards],
    )
    assert result == {"a": pytest.approx(float(np.mean(samples)), abs=1e-9)}


class _LastBatchIsShort(LineTrial):
    """Batches of three over the records 1, 2, 3 and 4; the metric is the mean of the batch."""

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(line(2), batch_size=3)

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"mean": batch[0].mean(), "records": batch[0].flatten()}


def test_each_sample_weighs_the_same_where_asked_for() -> None:
    class Weighed(_LastBatchIsShort):
        def evaluation_reducer(self) -> Any:
            return {"mean": Reducer.SAMPLE_AVG, "records": Reducer.SAMPLE_AVG}

    assert _last_metrics(_LastBatchIsShort)["mean"] == 3.0  # (2 + 4) / 2
    weighed = _last_metrics(Weighed)
    assert (weighed["mean"], weighed["records"]) == (2.5, 2.5)


def test_weighing_by_sample_needs_the_number_of_samples() -> None:
    class Unknown(_LastBatchIsShort):
        def get_batch_length(self, batch: Any) -> int:
            return 0

        def evaluation_reducer(self) -> Any:
            return Reducer.SAMPLE_AVG

    with pytest.raises(InvalidExperimentException) as error:
        train(Unknown)
    documented("`Reducer.SAMPLE_AVG`, but batches of unknown length", str(error.value))


def _last_metrics(trial_class: type[LineTrial]) -> dict[str, Any]:
    with pytorch.init() as context:
        trainer = pytorch.Trainer(trial_class(context), context)
        trainer.fit(max_length=pytorch.Batch(1))
    return trainer.latest_metrics


def test_a_rank_without_validation_batches_is_left_out() -> None:
    assert _over_ranks([[{"a": 4.0}], []], Reducer.AVG) == {"a": 4.0}
    assert _over_ranks([[], [{"a": 4.0}]], Reducer.AVG) == {"a": 4.0}


def test_training_metrics_are_averaged_over_ranks() -> None:
    parts = [
        [{"t": torch.tensor(1.0), "v": torch.tensor([1.0, 2.0]), "s": "x", "n": None, "f": 1.0}],
        [{"t": torch.tensor(3.0), "v": torch.tensor([3.0, 4.0]), "s": "y", "n": 5.0, "f": 2.0}],
    ]

    def combine(distributed: DistributedContext) -> Any:
        return _combine_and_average_training_metrics(distributed, parts[distributed.rank])

    chief, other = run_threads((1, 2), combine)
    assert other == parts[1]
    (batch,) = chief
    assert batch["t"] == 2.0
    assert isinstance(batch["t"], np.ndarray)
    assert batch["v"].tolist() == [2.0, 3.0]
    assert (batch["s"], batch["n"], batch["f"]) == ("x", 5.0, 1.5)


def test_a_single_rank_keeps_its_values() -> None:
    result = _combine_and_average_training_metrics(DummyDistributedContext(), [{"a": 1.0}])
    assert result == [{"a": 1.0}]
    assert math.isclose(result[0]["a"], 1.0)
