"""System metrics and the profile of a trial."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from determined.dashboard.endpoints.endpoints import Routes
from determined.dashboard.endpoints.parameters import Id
from determined.dashboard.view import View
from determined.store import PROFILER_GROUPS

routes = Routes("system")

_TITLES = {
    "cpu_util_simple": ("CPU", "%"),
    "memory_free": ("Free memory", "B"),
    "disk_iops": ("Disk operations", "1/s"),
    "disk_throughput_read": ("Disk throughput", "B/s"),
    "disk_throughput_write": ("Disk throughput", "B/s"),
    "disk_util": ("Disk in use", "%"),
    "net_throughput_sent": ("Network", "B/s"),
    "net_throughput_recv": ("Network", "B/s"),
    "gpu_util": ("GPU", "%"),
    "gpu_free_memory": ("Free GPU memory", "B"),
}
_NAMES = {
    "disk_throughput_read": "read",
    "disk_throughput_write": "write",
    "net_throughput_sent": "sent",
    "net_throughput_recv": "received",
}


class CurveJson(TypedDict):
    """Means over equal time intervals, with the extremes of each interval."""

    name: str
    x: list[float]
    y: list[float]
    min: list[float]
    max: list[float]


class ChartJson(TypedDict):
    title: str
    unit: str
    total: int
    series: list[CurveJson]


class SystemJson(TypedDict):
    charts: list[ChartJson]


@routes.get("/trials/{id}/system")
def system(view: View, id: Id, px: Annotated[int, Field(ge=2, le=2000)] = 400) -> SystemJson:
    """System metrics of the machine while a trial ran; x is in seconds since 1970."""
    view.trial(id)
    found: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    for group in PROFILER_GROUPS:
        for samples in view.reader.metrics.samples(id, group):
            for path, value in _numbers(samples.samples):
                title = _TITLES.get(path[-1], (path[-1], ""))
                name = " ".join([*path[:-1], _NAMES.get(path[-1], "")]).strip()
                found.setdefault(title, {}).setdefault(name, []).append((samples.time, value))
    charts: list[ChartJson] = [
        {
            "title": title,
            "unit": unit,
            "total": sum(map(len, series.values())),
            "series": [thinned(name, points, px) for name, points in series.items()],
        }
        for (title, unit), series in found.items()
    ]
    return {"charts": charts}


def _numbers(samples: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[Any, float]]:
    for name, value in samples.items():
        if isinstance(value, dict):
            yield from _numbers(value, (*path, name))
        elif type(value) in (int, float):
            yield (*path, name), float(value)


def thinned(name: str, points: list[tuple[float, float]], parts: int) -> CurveJson:
    """Reduce points to equal time intervals; a few points are returned unchanged."""
    points = sorted(points)
    groups: list[list[tuple[float, float]]] = [[point] for point in points]
    if len(points) > parts:
        begin, width = points[0][0], (points[-1][0] - points[0][0]) / parts or 1.0
        by_part: dict[int, list[tuple[float, float]]] = {}
        for point in points:
            by_part.setdefault(min(int((point[0] - begin) / width), parts - 1), []).append(point)
        groups = list(by_part.values())
    values = [[value for _, value in group] for group in groups]
    return {
        "name": name,
        "x": [sum(time for time, _ in group) / len(group) for group in groups],
        "y": [sum(part) / len(part) for part in values],
        "min": [min(part) for part in values],
        "max": [max(part) for part in values],
    }


class PartJson(TypedDict):
    """A part of training, the seconds it took, and its share of the time."""

    what: str
    seconds: float
    share: float
    calls: int | None


class ProfileJson(TypedDict):
    rows: list[PartJson]
    batches: int | None
    advice: list[str]
    note: str


@routes.get("/trials/{id}/profile")
def profile(view: View, id: Id) -> ProfileJson:
    """Where training time went, if the trial was profiled."""
    view.trial(id)
    folder = view.home.tensorboard / str(id)
    found = sorted(folder.rglob("profile.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        note = "This trial was not profiled: set `profiling.enabled: true` in its configuration."
        return {"rows": [], "batches": None, "advice": [], "note": note}
    try:
        content = json.loads(found[-1].read_bytes())
        rows: list[PartJson] = [
            {
                "what": str(what),
                "seconds": float(part["seconds"]),
                "share": float(part["share"]),
                "calls": int(part["calls"]),
            }
            for what, part in content["parts"].items()
        ]
        other = float(content["other_share"])
        seconds = other * float(content["wall_seconds"])
        rows.append({"what": "other", "seconds": seconds, "share": other, "calls": None})
        advice = [str(line) for line in content["advice"]]
        batches = int(content["batches"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        note = f"The profile cannot be read: {type(error).__name__}."
        return {"rows": [], "batches": None, "advice": [], "note": note}
    return {"rows": rows, "batches": batches, "advice": advice, "note": ""}
