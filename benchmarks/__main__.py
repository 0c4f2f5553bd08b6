"""Compare determined.pytorch with a plain torch loop and with its peers.

python -m benchmarks            everything, with the peers that are installed
python -m benchmarks --quick    the most telling part, without peers
"""

from __future__ import annotations

import argparse
import datetime
import functools
import importlib.metadata
import json
import os
import pathlib
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks import checkpoint, measure, report, suite

_RESULTS = pathlib.Path(__file__).parent / "results"


def measurements(peers: list[str], rounds: int | None) -> dict[str, Callable[[], dict[str, Any]]]:
    """Return everything that can be measured, by name."""
    todo: dict[str, Callable[[], dict[str, Any]]] = {}
    for comparison in suite.COMPARISONS:
        todo[comparison.name] = functools.partial(measure.compare, comparison, peers, rounds)
    todo["stall"] = functools.partial(measure.stall, suite.STALL, peers, rounds)
    todo["durable"] = functools.partial(checkpoint.durable, rounds)
    todo["resume"] = functools.partial(measure.starts, suite.RESUME, peers, rounds)
    todo["imports"] = functools.partial(measure.imports, peers, rounds)
    for growth in suite.GROWTH:
        todo[growth.name] = functools.partial(measure.grow, growth, rounds)
    return todo


def machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    packages = ("torch", "lightning", "accelerate", "pytorch-ignite")
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.date.today().isoformat(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "versions": versions,
    }


def _processor() -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="the most telling part, without peers")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these measurements")
    parser.add_argument("--rounds", type=int, help="turns per contender, instead of the usual")
    parser.add_argument("--output", type=pathlib.Path, help="where the JSON goes")
    options = parser.parse_args()

    peers = [] if options.quick else suite.installed_peers()
    todo = measurements(peers, options.rounds)
    names = options.only or [name for name in todo if not options.quick or name in suite.QUICK]
    if unknown := [name for name in names if name not in todo]:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(todo)}")

    output = options.output or _RESULTS / ("quick.json" if options.quick else "full.json")
    output.parent.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"machine": machine(), "results": []}
    for name in names:
        began = time.monotonic()
        result = todo[name]()
        results["results"].append(result)
        if name == "tiny":
            results["results"].append(measure.memory(result))
        output.write_text(json.dumps(results, indent=1))
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    print(report.text(results))
    print(f"\nWritten to {output}")


if __name__ == "__main__":
    main()
