"""Reads event files back with TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def read_events(directory: Path) -> dict[str, list[Any]]:
    """Return every scalar event by tag; events have `wall_time`, `step` and `value`."""
    accumulator = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {tag: accumulator.Scalars(tag) for tag in accumulator.Tags()["scalars"]}


def read_points(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """Return every (step, value) by tag."""
    return {
        tag: [(event.step, event.value) for event in events]
        for tag, events in read_events(directory).items()
    }
