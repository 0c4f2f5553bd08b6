"""Microseconds per TensorBoard event: ours, `SummaryWriter.add_scalar`, and plain protobuf.

Run `python -m benchmarks.tensorboard_events`. The contestants take turns; medians are printed.
"caller" is what the training loop waits for, "total" includes the file being complete.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

from determined.tensorboard._events import ScalarEvents

_TAGS = ("Determined/loss", "Determined/accuracy")
_BATCHES_PER_REPORT = 100
_REPORTS = 20
_ROUNDS = 7

Timing = tuple[float, float]  # caller, total


def _ours(directory: str, values: np.ndarray) -> Timing:
    events = ScalarEvents(directory)
    start = time.perf_counter()
    for report in range(_REPORTS):
        first = report * _BATCHES_PER_REPORT
        for tag in _TAGS:
            events.add(tag, values, range(first, first + _BATCHES_PER_REPORT))
    caller = time.perf_counter() - start
    events.flush()
    total = time.perf_counter() - start
    events.close()
    return caller, total


def _summary_writer(directory: str, values: np.ndarray) -> Timing:
    writer = SummaryWriter(directory)
    start = time.perf_counter()
    for report in range(_REPORTS):
        for k, value in enumerate(values):
            for tag in _TAGS:
                writer.add_scalar(tag, value, report * _BATCHES_PER_REPORT + k)
    caller = time.perf_counter() - start
    writer.flush()
    total = time.perf_counter() - start
    writer.close()
    return caller, total


def _protobuf(directory: str, values: np.ndarray) -> Timing:
    """Build and serialise the messages only: no checksum, no file."""
    start = time.perf_counter()
    for report in range(_REPORTS):
        for k, value in enumerate(values.tolist()):
            for tag in _TAGS:
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                step = report * _BATCHES_PER_REPORT + k
                Event(wall_time=time.time(), step=step, summary=summary).SerializeToString()
    total = time.perf_counter() - start
    return total, total


_CONTESTANTS: dict[str, Callable[[str, np.ndarray], Timing]] = {
    "ScalarEvents": _ours,
    "SummaryWriter": _summary_writer,
    "protobuf, no checksum": _protobuf,
}


def main() -> None:
    values = np.random.default_rng(0).normal(size=_BATCHES_PER_REPORT)
    num_events = _REPORTS * _BATCHES_PER_REPORT * len(_TAGS)
    timings: dict[str, list[Timing]] = {name: [] for name in _CONTESTANTS}
    for _ in range(_ROUNDS):
        for name, run in _CONTESTANTS.items():
            with tempfile.TemporaryDirectory() as directory:
                timings[name].append(run(directory, values))
    print(f"{num_events} events in reports of {_BATCHES_PER_REPORT} batches, {_ROUNDS} rounds")
    print(f"{'us per event':<24}{'caller':>10}{'total':>10}")
    for name, pairs in timings.items():
        caller, total = (
            statistics.median(column) / num_events * 1e6 for column in zip(*pairs, strict=True)
        )
        print(f"{name:<24}{caller:>10.2f}{total:>10.2f}")


if __name__ == "__main__":
    main()
