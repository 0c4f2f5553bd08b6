from __future__ import annotations

import collections
import logging
import os
import sys
import threading
import types
from typing import Any

import pytest

from determined.pytorch import Batch, PyTorchTrialContext
from determined.pytorch.callbacks import MetricsTracker, Report
from tests.pytorch.callbacks.trials import fit
from tests.support.trials import LineTrial, the_checkpoint


class Listing(MetricsTracker):
    """Keeps everything; subclasses fail in some way."""

    def __init__(self, context: PyTorchTrialContext, **options: Any) -> None:
        super().__init__(context, **options)
        self.reports: list[Report] = []
        self.calls: list[Any] = []
        self.done = threading.Event()

    def open(self) -> None:
        self.calls.append("open")

    def record(self, report: Report) -> None:
        self.reports.append(report)

    def close(self, failed: bool) -> None:
        self.calls.append(("close", failed))
        self.done.set()


class Line(LineTrial):
    num_batches = 20


def _track(
    tracker_class: type[Listing], batches: int = 6, fit_options: Any = None, **options: Any
) -> Listing:
    trial = fit(
        lambda context: {"tracker": tracker_class(context, **options)},
        batches,
        Line,
        **(fit_options or {}),
    )
    assert trial.batches[-1] == batches - 1
    tracker = trial.callbacks["tracker"]
    assert isinstance(tracker, Listing)
    return tracker


def _log(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING)


def test_every_report_arrives_with_its_step(caplog: pytest.LogCaptureFixture) -> None:
    options = {"validation_period": Batch(4), "step_zero_validation": True}
    tracker = _track(Listing, fit_options=options)
    assert [(report.group, report.steps_completed) for report in tracker.reports] == [
        ("validation", 0),
        ("training", 2),
        ("training", 4),
        ("validation", 4),
        ("training", 6),
        ("validation", 6),
    ]
    assert set(tracker.reports[1].metrics) == {"loss", "batches", "epochs"}
    assert set(tracker.reports[3].named()) == {"validation_loss"}
    assert tracker.calls == ["open", ("close", False)]
    assert tracker.num_lost == 0
    assert _log(caplog) == ""


def test_validation_metrics_are_named_as_in_tensorboard() -> None:
    report = Report("validation", 1, {"loss": 1.0, "validation_error": 2.0}, 0.0)
    assert report.named() == {"val_loss": 1.0, "validation_error": 2.0}
    assert Report("training", 1, {"loss": 1.0}, 0.0).named() == {"loss": 1.0}


def test_resumed_run_has_the_key_of_the_one_it_continues() -> None:
    first = _track(Listing, 4)
    resumed = _track(Listing, 6, {"latest_checkpoint": the_checkpoint(4)})
    assert resumed.run_key == first.run_key
    assert resumed.first_batch_idx == 4
    assert _track(Listing, 4).run_key != first.run_key


def test_tracker_learns_that_training_failed() -> None:
    trackers: list[Listing] = []

    class Failing(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            raise KeyError("broken")

    def make(context: PyTorchTrialContext) -> Any:
        trackers.append(Listing(context))
        return {"tracker": trackers[0]}

    with pytest.raises(KeyError):
        fit(make, 2, Failing)
    assert trackers[0].calls == ["open", ("close", True)]


def test_error_that_is_already_being_handled_is_not_of_training() -> None:
    try:
        raise OSError("earlier")
    except OSError:
        assert _track(Listing).calls == ["open", ("close", False)]


class Unopenable(Listing):
    def open(self) -> None:
        raise OSError("no network")


def test_tracker_that_cannot_be_opened_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    assert _track(Unopenable).num_lost == 4
    assert "Unopenable is disconnected" in _log(caplog)
    assert "OSError: no network" in _log(caplog)
    assert "Unopenable lost 4 of 4 reports" in _log(caplog)


class Raising(Listing):
    failing: tuple[int, ...] = (2, 4, 6, 8)

    def record(self, report: Report) -> None:
        if report.steps_completed in self.failing:
            raise ValueError(f"no {report.steps_completed}")
        super().record(report)


class RaisingOnce(Raising):
    failing = (4,)


def test_tracker_that_keeps_failing_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    tracker = _track(Raising, 10)
    assert tracker.reports == []
    assert tracker.calls == ["open", ("close", False)]
    assert "failed 3 times in a row: ValueError: no 6" in _log(caplog)
    assert "lost 6 of 6 reports" in _log(caplog)


def test_one_failure_costs_one_report(caplog: pytest.LogCaptureFixture) -> None:
    tracker = _track(RaisingOnce)
    assert [report.steps_completed for report in tracker.reports] == [2, 6, 6]
    assert "lost 1 of 4 reports. The last error was ValueError: no 4" in _log(caplog)


class Hanging(Listing):
    """Hangs in its first report until the test lets go."""

    let_go = threading.Event()

    def record(self, report: Report) -> None:
        self.let_go.wait(60)
        super().record(report)


@pytest.fixture
def let_go() -> Any:
    Hanging.let_go.clear()
    yield Hanging.let_go
    Hanging.let_go.set()


def test_tracker_that_hangs_is_cut_off_at_the_end(
    let_go: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = _track(Hanging, close_seconds=0.1)
    assert not let_go.is_set()
    assert tracker.reports == []
    assert "did not finish within 0.1 seconds" in _log(caplog)
    assert "lost 4 of 4 reports" in _log(caplog)


def test_tracker_that_does_not_keep_up_loses_reports(
    let_go: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    class SlowToEnd(Hanging):
        def on_trial_shutdown(self) -> None:
            let_go.set()
            super().on_trial_shutdown()

    tracker = _track(SlowToEnd, 20, queue_size=3)
    steps = [report.steps_completed for report in tracker.reports]
    # Three waited, and one was in the thread's hands as soon as it ran.
    assert steps[:3] == [2, 4, 6]
    assert len(steps) in (3, 4)
    assert "cannot keep up" in _log(caplog)
    assert f"lost {11 - len(steps)} of 11 reports" in _log(caplog)


def _calls_of_the_loop(tracker_class: type[Listing], **options: Any) -> dict[str, int]:
    """Count every call that training makes of our own code in its thread."""
    counts: collections.Counter[str] = collections.Counter()

    def count(frame: types.FrameType, event: str, _: Any) -> None:
        if event == "call" and f"{os.sep}determined{os.sep}" in frame.f_code.co_filename:
            counts[f"{frame.f_globals['__name__']}.{frame.f_code.co_name}"] += 1

    sys.setprofile(count)  # of this thread alone
    try:
        _track(tracker_class, 20, **options)
    finally:
        sys.setprofile(None)
    return counts


@pytest.mark.parametrize("bad", [Hanging, Raising, Unopenable])
def test_a_bad_tracker_gives_the_loop_no_more_to_do(
    bad: type[Listing], let_go: threading.Event
) -> None:
    good = _calls_of_the_loop(Listing)
    worse = _calls_of_the_loop(bad, close_seconds=0.1)
    assert good["determined.pytorch.callbacks._trackers.background_sender.put"] == 11
    of_trainer = {
        name: calls
        for name, calls in good.items()
        if name.startswith("determined.pytorch.") and not name.endswith(".num_lost")  # at the end
    }
    assert {name: worse[name] for name in of_trainer} == of_trainer


def test_a_tracker_without_record_is_refused_before_training() -> None:
    with pytest.raises(TypeError, match="record"):
        fit(lambda context: {"tracker": MetricsTracker(context)}, 6)  # type: ignore[abstract]
