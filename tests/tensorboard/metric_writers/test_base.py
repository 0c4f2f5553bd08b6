from __future__ import annotations

import pytest

from determined.tensorboard import BatchMetricWriter, MetricWriter
from determined.tensorboard.metric_writers import base


class _Recorder(MetricWriter):
    def __init__(self) -> None:
        self.calls: list[object] = []

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.calls.append((name, value, step))

    def reset(self) -> None:
        self.calls.append("reset")

    def flush(self) -> None:
        self.calls.append("flush")


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(base, "time", clock)
    return clock


def test_a_report_is_written_with_tags_and_steps_then_flushed(clock: _Clock) -> None:
    recorder = _Recorder()
    writer = BatchMetricWriter(recorder)
    writer.on_train_step_end(4, {"loss": 1.5, "red": 9}, [{"loss": 1.0}, {"loss": 2.0}])
    writer.on_validation_step_end(4, {"acc": 0.5, "val_loss": 3, "note": "text"})
    assert recorder.calls == [
        ("Determined/loss", 1.0, 2),
        ("Determined/loss", 2.0, 3),
        ("Determined/red", 9, 4),
        "flush",
        ("Determined/val_acc", 0.5, 4),
        ("Determined/val_loss", 3, 4),
        "flush",
    ]


def test_a_file_is_ended_when_the_second_has_passed(clock: _Clock) -> None:
    recorder = _Recorder()
    writer = BatchMetricWriter(recorder)
    for clock.now in (100.9, 101.0, 101.9, 105.0):
        writer.on_validation_step_end(1, {})
    assert recorder.calls == ["flush", "reset", "flush", "flush", "reset", "flush"]


def test_the_interface_asks_for_all_three_methods() -> None:
    with pytest.raises(TypeError, match="abstract"):
        MetricWriter()  # type: ignore[abstract]  # wrong on purpose
