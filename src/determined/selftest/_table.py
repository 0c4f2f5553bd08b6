"""What came out, as a table for a terminal and as a block for a report. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from determined.selftest._plan import CHECKS
from determined.selftest._result import FAILS, HOLDS, NOT_RUN, Result

_WIDTH = 100
_DEVICE_WIDTH = len("cuda:0")


def table(results: Sequence[Result]) -> str:
    """Return a row for each result, and below it what was found."""
    check = max(map(len, CHECKS))
    device = max([_DEVICE_WIDTH, *(len(result.device) for result in results)])
    indent = " " * (check + device + 4)
    lines = []
    for result in results:
        head = f"{result.check:<{check}}  {result.device:<{device}}  "
        lines.append(f"{head}{result.verdict}: {CHECKS.get(result.check, result.check)}")
        lines += textwrap.wrap(
            f"{result.found} ({result.seconds:.0f} s)",
            _WIDTH,
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
        )
    return "\n".join(lines)


def summary(results: Sequence[Result]) -> str:
    """Return one line: how many hold, and the names of those that do not."""
    count = {
        verdict: sum(r.verdict == verdict for r in results) for verdict in (HOLDS, FAILS, NOT_RUN)
    }
    failed = ", ".join(f"{r.check} on {r.device}" for r in results if r.verdict == FAILS)
    parts = [f"{count[HOLDS]} of {len(results)} hold"]
    parts += [f"{count[FAILS]} FAIL ({failed})"] if failed else []
    parts += [f"{count[NOT_RUN]} were not run"] if count[NOT_RUN] else []
    return ", ".join(parts) + "."


def report(machine: Mapping[str, str], results: Sequence[Result]) -> str:
    """Return a block to paste into a report."""
    facts = [f"{name}: {value}" for name, value in machine.items()]
    rows = [
        f"{r.verdict} | {r.check} | {r.device} | {r.seconds:.1f} s | {r.found}" for r in results
    ]
    return "\n".join(["```text", "determined selftest", *facts, "", *rows, "```"])
