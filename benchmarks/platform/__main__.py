"""Measure the platform: starts, turnover of trials, latencies, reports, supervisor, growth.

python -m benchmarks.platform                  everything, about 20 minutes on two idle cores
python -m benchmarks.platform --quick          every row in its short form, under five minutes
python -m benchmarks.platform --only starts    only these; what else the results have is kept

Peers (Ray Tune, optuna, trackio, MLflow) take part where they are installed for the interpreter
that PEERS_PYTHON names, else for this one.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pathlib
import sys
import time
from typing import Any

from benchmarks.__main__ import machine
from benchmarks.platform.figure import Figure, table

_NAMES = (
    "commands",
    "starts",
    "turnover",
    "latency",
    "reports",
    "overhead",
    "supervisor",
    "effective",
    "growth",
    "length",
)
_RESULTS = pathlib.Path(__file__).parents[1] / "results"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.platform", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help=", ".join(_NAMES))
    parser.add_argument("--quick", action="store_true", help="the short form of each")
    parser.add_argument("--output", type=pathlib.Path, help="where the JSON goes")
    options = parser.parse_args()
    if unknown := set(options.only or ()) - set(_NAMES):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(_NAMES)}")

    name = "platform-quick.json" if options.quick else "platform.json"
    output = options.output or _RESULTS / name
    output.parent.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"machine": machine(), "figures": []}
    if options.only and output.exists():
        results["figures"] = json.loads(output.read_text())["figures"]
    figures: list[Figure] = []
    for name in options.only or _NAMES:
        began = time.monotonic()
        found = importlib.import_module(f"benchmarks.platform.{name}").measure(options.quick)
        figures += found
        results["figures"] = merged(results["figures"], name, found)
        output.write_text(json.dumps(results, indent=1))
        seconds = time.monotonic() - began
        print(f"{table(found)}\n{name}: {seconds:.0f} s\n", file=sys.stderr, flush=True)
    print(table(figures))
    print(f"\nWritten to {output}")


def merged(before: list[dict[str, Any]], name: str, found: list[Figure]) -> list[dict[str, Any]]:
    """Return all figures in the order of their groups, with those of one group replaced."""
    others = [data for data in before if data["group"] != name]
    now = others + [{"group": name, **figure.as_data()} for figure in found]
    return sorted(now, key=lambda data: _NAMES.index(data["group"]))


if __name__ == "__main__":
    main()
