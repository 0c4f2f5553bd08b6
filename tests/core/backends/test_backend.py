"""The backend of a run on its own."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.core import EarlyExitReason
from determined.core.backends.backend import Backend, LocalBackend


@pytest.fixture
def backend(caplog: pytest.LogCaptureFixture) -> LocalBackend:
    caplog.set_level(logging.DEBUG, logger="determined.core")
    return LocalBackend()


def test_local_backend_is_a_backend() -> None:
    backend: Backend = LocalBackend()
    assert backend.restarts_trials is False


@pytest.mark.parametrize(
    ("group", "line"),
    [
        ("training", "report_training_metrics(steps_completed=100, metrics={'loss': 0.5})"),
        ("validation", "report_validation_metrics(steps_completed=100, metrics={'loss': 0.5})"),
        ("mine", "report_metrics(group='mine', steps_completed=100, metrics={'loss': 0.5})"),
    ],
)
def test_reports_are_lines_that_scripts_can_find(
    backend: LocalBackend, group: str, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    backend.report_metrics(group, 100, {"loss": 0.5})
    assert ("determined.core", logging.INFO, line) in caplog.record_tuples


def test_values_are_shown_as_plain_numbers(
    backend: LocalBackend, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = {"a": np.float32(0.5), "b": np.array([1, 2]), "c": np.zeros(1000), "d": "text"}
    backend.report_metrics("training", 1, metrics)
    assert "{'a': 0.5, 'b': [1, 2], 'c': '<1000 values>', 'd': 'text'}" in caplog.text


_number = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-9, 9)


@given(
    values=st.lists(_number | st.none() | st.just("text")),
    smaller_is_better=st.booleans(),
    first=st.none() | st.floats(allow_nan=False),
)
def test_best_is_the_extreme_of_all_real_numbers(
    values: list[Any], smaller_is_better: bool, first: float | None
) -> None:
    backend = LocalBackend()
    backend.set_best_tracking("m", smaller_is_better, first)
    for step, value in enumerate(values):
        backend.report_metrics("validation", step, {"m": value, "other": -1e9})
    seen = [v for v in [first, *values] if isinstance(v, (int, float)) and not math.isnan(v)]
    extreme = min if smaller_is_better else max
    assert backend.best_validation() == (extreme(seen) if seen else None)


def test_best_keeps_double_precision(backend: LocalBackend) -> None:
    backend.set_best_tracking("m", True)
    backend.report_metrics("validation", 1, {"m": 0.1})
    assert backend.best_validation() == 0.1


def test_only_validations_count(backend: LocalBackend) -> None:
    backend.set_best_tracking("m", True)
    backend.report_metrics("training", 1, {"m": 1.0})
    assert (backend.best_validation(), backend.last_validation()) == (None, None)
    backend.report_metrics("validation", 7, {})
    assert (backend.best_validation(), backend.last_validation()) == (None, 7)


def test_a_new_run_forgets_the_old_one(backend: LocalBackend) -> None:
    backend.set_best_tracking("m", True)
    backend.report_metrics("validation", 7, {"m": 1.0})
    backend.set_best_tracking("m", True)
    assert (backend.best_validation(), backend.last_validation()) == (None, None)


def test_without_a_metric_there_is_no_best(backend: LocalBackend) -> None:
    backend.report_metrics("validation", 1, {"m": 1.0})
    assert backend.best_validation() is None


def test_the_first_exit_reason_counts(
    backend: LocalBackend, caplog: pytest.LogCaptureFixture
) -> None:
    backend.report_early_exit(EarlyExitReason.INVALID_HP)
    backend.report_early_exit(EarlyExitReason.USER_REQUESTED_STOP)
    assert "INVALID_HP" in caplog.text
    assert "USER_REQUESTED_STOP" not in caplog.text


def test_status_and_progress_are_logged(
    backend: LocalBackend, caplog: pytest.LogCaptureFixture
) -> None:
    backend.set_status("validating")
    backend.report_progress(0.25)
    assert "status: validating" in caplog.messages
    assert "report_progress(progress=0.25)" in caplog.messages


def test_metadata_is_kept_as_a_copy(backend: LocalBackend) -> None:
    given_metadata = {"a": 1}
    assert backend.set_metadata(given_metadata) == {"a": 1}
    given_metadata["a"] = 2
    assert backend.get_metadata() == {"a": 1}


def test_preemption_can_be_requested(backend: LocalBackend) -> None:
    assert not backend.should_preempt()
    backend.request_preemption()
    assert backend.should_preempt()


def test_recent_system_metrics_are_kept(backend: LocalBackend) -> None:
    for number in range(1500):
        backend.report_system_metrics("cpu", {"n": number})
    assert len(backend.recent_system_metrics()) == 1000
    assert backend.recent_system_metrics()[-1] == ("cpu", {"n": 1499})


def test_checkpoints_alerts_and_links_are_logged(
    backend: LocalBackend, caplog: pytest.LogCaptureFixture
) -> None:
    backend.report_checkpoint({"uuid": "u1"})
    backend.checkpoint_deleted("u2")
    backend.report_task_using("checkpoint", "u3")
    backend.alert("title", None, "warn")
    for part in ("u1", "u2", "u3"):
        assert part in caplog.text
    assert ("determined.core", logging.WARNING, "alert: title") in caplog.record_tuples
