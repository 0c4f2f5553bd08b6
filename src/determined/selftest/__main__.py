"""The command line: `python -m determined.selftest [--json]`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from pathlib import Path

from determined.selftest import _machine
from determined.selftest._plan import CHECKS, plan
from determined.selftest._result import FAILS
from determined.selftest._run import run_all
from determined.selftest._table import report, summary, table


def main(arguments: list[str] | None = None) -> int:
    """Run the checks; 1 if one does not hold."""
    options = _parser().parse_args(arguments)
    devices = [options.device] if options.device else _machine.devices()
    results = []
    with tempfile.TemporaryDirectory(prefix="determined-selftest-") as folder:
        for result in run_all(plan(devices, options.check), Path(folder)):
            results.append(result)
            if not options.json:
                print(table([result]), flush=True)
    machine = _machine.facts()
    if options.json:
        rows = [dataclasses.asdict(result) for result in results]
        print(json.dumps({"machine": machine, "results": rows}, indent=2))
    else:
        print(f"\n{summary(results)}\nTo paste into a report:\n\n{report(machine, results)}")
    return int(any(result.verdict == FAILS for result in results))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m determined.selftest",
        description="Check on the devices of this machine what the library promises: about two "
        "minutes. Nothing is left behind. Exit status 1: something does not hold.",
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    # For our tests: a device that is not the first accelerator, and fewer checks.
    parser.add_argument("--device", help=argparse.SUPPRESS)
    parser.add_argument(
        "--check", action="append", choices=list(CHECKS), default=[], help=argparse.SUPPRESS
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
