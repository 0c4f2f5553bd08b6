"""ProfilerContext: watches the machine while training runs."""

from __future__ import annotations

import logging
import numbers
import platform
import threading

from determined.core._distributed import DistributedContext, DummyDistributedContext
from determined.core._system_metrics import Collector, Sample, build_collectors, mean
from determined.core.backends.backend import Backend, LocalBackend

logger = logging.getLogger("determined.core")

_MIN_INTERVAL_SECONDS = 0.1


class ProfilerContext:
    """Reports the load of CPU, memory, disk, network and GPUs, once per machine."""

    def __init__(
        self, backend: Backend, distributed: DistributedContext, agent_id: str | None = None
    ) -> None:
        self._backend = backend
        self._is_local_chief = distributed.local_rank == 0
        self._agent_id = agent_id or platform.node() or "localhost"
        self._thread: _SamplingThread | None = None

    def on(self, sampling_interval: float = 1, samples_per_report: int = 10) -> None:
        """Start sampling; does nothing if it is on, or on ranks with `local_rank` above 0.

        Args:
            sampling_interval: seconds between samples, at least 0.1.
            samples_per_report: how many samples are averaged into one report, at least 1.
        """
        if not sampling_interval >= _MIN_INTERVAL_SECONDS:
            raise ValueError(
                f"`sampling_interval` must be at least {_MIN_INTERVAL_SECONDS} seconds, "
                f"got {sampling_interval!r}."
            )
        if not isinstance(samples_per_report, numbers.Integral) or samples_per_report < 1:
            raise ValueError(
                f"`samples_per_report` must be an integer >= 1, got {samples_per_report!r}."
            )
        if self._thread is None and self._is_local_chief:
            self._thread = _SamplingThread(
                self._backend, self._agent_id, sampling_interval, int(samples_per_report)
            )
            self._thread.start()

    def off(self) -> None:
        """Stop sampling and report what was sampled since the last report."""
        if self._thread is not None:
            self._thread.stop()
            self._thread = None

    def close(self) -> None:
        """Stop sampling."""
        self.off()


class DummyProfilerContext(ProfilerContext):
    """A ProfilerContext for a run on its own."""

    def __init__(self) -> None:
        super().__init__(LocalBackend(), DummyDistributedContext())


class _SamplingThread(threading.Thread):
    def __init__(
        self, backend: Backend, agent_id: str, interval_seconds: float, samples_per_report: int
    ) -> None:
        super().__init__(name="determined-profiler", daemon=True)
        self._backend = backend
        self._agent_id = agent_id
        self._interval_seconds = interval_seconds
        self._samples_per_report = samples_per_report
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def run(self) -> None:
        collectors = build_collectors()
        samples: dict[str, list[Sample]] = {group: [] for group in collectors}
        is_over = False
        while not is_over:
            is_over = self._stopped.wait(self._interval_seconds)  # take a last sample, too
            for group, collect in list(collectors.items()):
                if not self._sample(group, collect, samples[group]):
                    del collectors[group]
        for group, pending in samples.items():
            self._report(group, pending)

    def _sample(self, group: str, collect: Collector, pending: list[Sample]) -> bool:
        try:
            pending.append(collect())
        except Exception as error:
            logger.warning("The profiler continues without %s samples: %s", group, error)
            return False
        if len(pending) >= self._samples_per_report:
            self._report(group, pending)
        return True

    def _report(self, group: str, pending: list[Sample]) -> None:
        if not pending:
            return
        try:
            self._backend.report_system_metrics(group, {self._agent_id: mean(pending)})
        except Exception as error:
            logger.warning("A report of %s samples was lost: %s", group, error)
        pending.clear()
