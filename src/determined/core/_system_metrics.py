"""System metrics: one collector per group, each independent of the others."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

logger = logging.getLogger("determined.core")

Sample = dict[str, Any]
"""Numbers by name; one level of nesting for things that exist more than once (GPUs, paths)."""
Collector = Callable[[], Sample]

_DISK_PATHS = ("/",)


def build_collectors() -> dict[str, Collector]:
    """The collectors that work on this machine, by group. Rates count from now on."""
    makers: dict[str, Callable[[], Collector]] = {
        "cpu": _cpu,
        "memory": _memory,
        "disk": _disk,
        "network": _network,
        "gpu": _gpu,
    }
    collectors = {}
    for group, make in makers.items():
        try:
            collectors[group] = make()
        except Exception as error:  # containers and laptops may lack any of these counters
            logger.debug("No %s samples on this machine: %s", group, error)
    return collectors


def mean(samples: Sequence[Sample]) -> Sample:
    """Average each number over the samples that have it."""
    result: Sample = {}
    for name in dict.fromkeys(name for sample in samples for name in sample):
        values = [sample[name] for sample in samples if name in sample]
        result[name] = mean(values) if isinstance(values[0], dict) else sum(values) / len(values)
    return result


def _cpu() -> Collector:
    import psutil

    psutil.cpu_percent()  # the first result covers the time since boot
    return lambda: {"cpu_util_simple": psutil.cpu_percent()}


def _memory() -> Collector:
    import psutil

    return lambda: {"memory_free": psutil.virtual_memory().available}


def _disk() -> Collector:
    import psutil

    def counters() -> tuple[float, ...]:
        count = psutil.disk_io_counters()
        if count is None:
            raise RuntimeError("the system has no disk counters")
        return count.read_count + count.write_count, count.read_bytes, count.write_bytes

    rates = _Rates(counters)

    def collect() -> Sample:
        iops, read, write = rates()
        sample: Sample = {
            "disk_iops": iops,
            "disk_throughput_read": read,
            "disk_throughput_write": write,
        }
        for path in _DISK_PATHS:
            sample[path] = {"disk_util": psutil.disk_usage(path).percent}
        return sample

    return collect


def _network() -> Collector:
    import psutil

    def counters() -> tuple[float, ...]:
        count = psutil.net_io_counters()
        return count.bytes_sent, count.bytes_recv

    rates = _Rates(counters)

    def collect() -> Sample:
        sent, received = rates()
        return {"net_throughput_sent": sent, "net_throughput_recv": received}

    return collect


def _gpu() -> Collector:
    from determined.gpu import NvidiaMonitor

    return NvidiaMonitor().sample


class _Rates:
    """Counters per second since the last call."""

    def __init__(self, counters: Callable[[], tuple[float, ...]]) -> None:
        self._counters = counters
        self._values = counters()
        self._time = time.monotonic()

    def __call__(self) -> list[float]:
        values, now = self._counters(), time.monotonic()
        seconds = max(now - self._time, 1e-9)
        rates = [(new - old) / seconds for new, old in zip(values, self._values, strict=True)]
        self._values, self._time = values, now
        return rates
