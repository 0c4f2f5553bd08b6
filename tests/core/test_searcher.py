"""SearcherContext: one operation, completed by the chief."""

from __future__ import annotations

from typing import Any

import pytest

from determined.core import (
    DistributedContext,
    DummyDistributedContext,
    DummySearcherContext,
    DummySearcherOperation,
    SearcherContext,
    SearcherContextMissing,
    SearcherMode,
    Unit,
)
from determined.core._searcher import parse_length
from determined.core.backends.backend import LocalBackend
from tests.support.workers import run_threads

pytestmark = pytest.mark.filterwarnings("ignore:SearcherContext.operations:FutureWarning")


class ProgressBackend(LocalBackend):
    """Keeps the reported progress."""

    def __init__(self) -> None:
        super().__init__()
        self.progress: list[float] = []

    def report_progress(self, progress: float) -> None:
        self.progress.append(progress)


def test_a_run_on_its_own_gets_one_epoch() -> None:
    searcher = DummySearcherContext()
    lengths = []
    for operation in searcher.operations():
        lengths.append(operation.length)
        operation.report_completed(0.5)
    assert lengths == [1]
    assert searcher.get_configured_units() is Unit.EPOCHS
    searcher.acknowledge_out_of_ops()


@pytest.mark.filterwarnings("error")
def test_operations_are_deprecated() -> None:
    with pytest.warns(FutureWarning, match="deprecated"):
        DummySearcherContext().operations()


def test_progress_is_a_clipped_fraction() -> None:
    backend = ProgressBackend()
    searcher = SearcherContext(backend, DummyDistributedContext(), 10, Unit.BATCHES)
    for operation in searcher.operations():
        for length in (-1, 5, 20):
            operation.report_progress(length)
        operation.report_completed(0.5)
        operation.report_progress(10)
    assert backend.progress == [0.0, 0.5, 1.0, 1.0]


def test_an_operation_must_be_completed() -> None:
    with pytest.raises(RuntimeError, match=r"must call op\.report_completed"):
        for _ in DummySearcherContext().operations():
            pass


def test_an_operation_ends_once() -> None:
    operation = DummySearcherOperation(length=4)
    operation.report_completed(1.0)
    with pytest.raises(RuntimeError, match=r"op\.report_completed was called twice"):
        operation.report_completed(1.0)
    with pytest.raises(RuntimeError, match=r"op\.report_progress was called after"):
        operation.report_progress(3)


def test_only_the_chief_reports() -> None:
    operation = DummySearcherOperation(is_chief=False)
    with pytest.raises(RuntimeError, match=r"op\.report_progress .* chief"):
        operation.report_progress(1)
    with pytest.raises(RuntimeError, match=r"op\.report_completed .* chief"):
        operation.report_completed(1)


def test_workers_learn_length_and_end_from_the_chief() -> None:
    def train(distributed: DistributedContext) -> list[int]:
        searcher = SearcherContext(LocalBackend(), distributed, 10 + distributed.rank)
        lengths = []
        for operation in searcher.operations("WORKERS_ASK_CHIEF"):  # type: ignore[arg-type]  # published form
            lengths.append(operation.length)
            if distributed.rank == 0:
                operation.report_completed(0.5)
        return lengths

    assert run_threads((1, 2), train) == [[10], [10]]


def test_all_ranks_learn_that_the_chief_forgot_to_complete() -> None:
    def train(distributed: DistributedContext) -> str:
        try:
            list(DummySearcherContext(distributed).operations())
        except RuntimeError as error:
            return str(error)
        return ""

    assert all("report_completed" in text for text in run_threads((1, 2), train))


@pytest.mark.parametrize("mode", ["CHEIF_ONLY", "CHIEF_ONLY"])
def test_chief_only_mode_refuses_workers_under_both_spellings(mode: str) -> None:
    assert SearcherMode(mode) is SearcherMode.ChiefOnly

    def ask(distributed: DistributedContext) -> str:
        try:
            searcher = DummySearcherContext(distributed)
            next(searcher.operations(SearcherMode(mode)))
        except RuntimeError as error:
            return str(error)
        return "allowed"

    chief, worker = run_threads((1, 2), ask)
    assert chief == "allowed"
    assert "searcher.operations" in worker
    assert "chief" in worker


def test_a_missing_searcher_says_so() -> None:
    missing = SearcherContextMissing()
    for method in (missing.operations, missing.acknowledge_out_of_ops):
        with pytest.raises(ValueError, match="max_length"):
            method()
    with pytest.raises(ValueError, match="max_length"):
        missing.get_configured_units()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, None),
        ({"max_length": 0}, None),
        ({"max_length": 5}, (5, None)),
        ({"max_length": 5, "unit": "epochs"}, (5, Unit.EPOCHS)),
        ({"max_length": {"batches": 7}}, (7, Unit.BATCHES)),
    ],
)
def test_lengths_are_read_with_their_unit(config: dict[str, Any], expected: object) -> None:
    assert parse_length(config) == expected


@pytest.mark.parametrize("length", [{"hours": 3}, {"epochs": 1, "batches": 2}, "many"])
def test_other_lengths_are_refused(length: object) -> None:
    with pytest.raises(ValueError, match=r"searcher\.max_length"):
        parse_length({"max_length": length})


def test_a_length_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        SearcherContext(LocalBackend(), DummyDistributedContext(), -3)
