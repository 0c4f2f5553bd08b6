"""ProfilerContext: samples of the machine, averaged and reported."""

from __future__ import annotations

import threading
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.core import (
    DistributedContext,
    DummyDistributedContext,
    DummyProfilerContext,
    ProfilerContext,
)
from determined.core._system_metrics import build_collectors, mean
from determined.core.backends.backend import LocalBackend
from tests.support.workers import run_threads


class WaitingBackend(LocalBackend):
    """Tells when a report of some group arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = threading.Event()

    def report_system_metrics(self, group: str, metrics: dict[str, Any]) -> None:
        super().report_system_metrics(group, metrics)
        if group == "network":  # the last group that exists on every machine
            self.arrived.set()


def start(backend: LocalBackend, samples_per_report: int) -> ProfilerContext:
    profiler = ProfilerContext(backend, DummyDistributedContext(), agent_id="me")
    profiler.on(sampling_interval=0.1, samples_per_report=samples_per_report)
    return profiler


def test_all_groups_are_reported_while_on() -> None:
    backend = WaitingBackend()
    profiler = start(backend, samples_per_report=1)
    assert backend.arrived.wait(timeout=30)
    profiler.off()
    reports = {group: metrics["me"] for group, metrics in backend.recent_system_metrics()}
    assert 0 <= reports["cpu"]["cpu_util_simple"] <= 100
    assert reports["memory"]["memory_free"] > 0
    assert reports["network"].keys() == {"net_throughput_sent", "net_throughput_recv"}
    if "disk" in reports:  # some containers have no counters
        assert reports["disk"]["/"].keys() == {"disk_util"}
        assert {"disk_iops", "disk_throughput_read"} <= reports["disk"].keys()


def test_switching_off_reports_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    sampled = threading.Event()
    real = psutil.net_io_counters

    def counters() -> Any:
        if threading.current_thread().name == "determined-profiler":
            calls.append(None)
            if len(calls) == 2:  # the first call is the start of the rate
                sampled.set()
        return real()

    calls: list[None] = []
    monkeypatch.setattr(psutil, "net_io_counters", counters)
    backend = LocalBackend()
    profiler = start(backend, samples_per_report=10_000)
    assert sampled.wait(timeout=30)
    assert not backend.recent_system_metrics()
    profiler.off()
    assert {"cpu", "memory"} <= {group for group, _ in backend.recent_system_metrics()}


def test_on_and_off_may_be_repeated() -> None:
    profiler = DummyProfilerContext()
    profiler.off()
    profiler.on()
    thread = profiler._thread
    profiler.on()
    assert profiler._thread is thread
    profiler.off()
    profiler.off()
    assert thread is not None
    assert not thread.is_alive()
    profiler.on()
    profiler.close()
    assert profiler._thread is None


def test_only_one_rank_per_machine_samples() -> None:
    def sample(distributed: DistributedContext) -> bool:
        profiler = ProfilerContext(LocalBackend(), distributed)
        profiler.on()
        is_on = profiler._thread is not None
        profiler.off()
        return is_on

    assert run_threads((1, 2), sample) == [True, False]


@pytest.mark.parametrize("interval", [0, 0.09, -1, float("nan")])
def test_short_intervals_are_refused(interval: float) -> None:
    with pytest.raises(ValueError, match=r"at least 0\.1"):
        DummyProfilerContext().on(sampling_interval=interval)


@pytest.mark.parametrize("count", [0, 1.5, "1"])
def test_report_sizes_are_whole_numbers(count: Any) -> None:
    with pytest.raises(ValueError, match="`samples_per_report`"):
        DummyProfilerContext().on(samples_per_report=count)


def test_missing_counters_leave_the_other_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "disk_io_counters", lambda: None)
    groups = build_collectors().keys()
    assert "disk" not in groups
    assert {"cpu", "memory", "network"} <= groups


def test_a_collector_that_breaks_later_is_dropped_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Any:
        raise OSError("unplugged")

    monkeypatch.setattr(psutil, "virtual_memory", broken)
    backend = WaitingBackend()
    profiler = start(backend, samples_per_report=1)
    assert backend.arrived.wait(timeout=30)
    profiler.off()
    assert "memory" not in {group for group, _ in backend.recent_system_metrics()}
    warnings = [message for message in caplog.messages if "unplugged" in message]
    assert len(warnings) == 1


def test_a_backend_that_fails_does_not_end_the_profiler(caplog: pytest.LogCaptureFixture) -> None:
    called = threading.Event()

    class Failing(LocalBackend):
        def report_system_metrics(self, group: str, metrics: dict[str, Any]) -> None:
            if group == "network":
                called.set()
            raise OSError("no network")

    profiler = start(Failing(), samples_per_report=1)
    assert called.wait(timeout=30)
    profiler.off()
    assert "A report of cpu samples was lost: no network" in caplog.text


_sample = st.fixed_dictionaries({"a": st.integers(0, 9)}, optional={"g": st.just({"b": 2})})


@given(st.lists(_sample, min_size=1))
def test_means_are_over_the_samples_that_have_the_name(samples: list[dict[str, Any]]) -> None:
    result = mean(samples)
    assert result["a"] == pytest.approx(sum(sample["a"] for sample in samples) / len(samples))
    assert result.get("g") == ({"b": 2.0} if any("g" in sample for sample in samples) else None)
