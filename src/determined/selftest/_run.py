"""Run checks, each in a process of its own: what one breaks, no other one finds broken."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from determined.selftest._plan import Planned
from determined.selftest._result import FAILS, Result

_DEADLINE_SECONDS = 90.0
_AT_ONCE = 4


def run_all(planned: Sequence[Planned], folder: Path) -> Iterator[Result]:
    """Yield the results in the order of the plan."""
    for _, stage in groupby(planned, lambda check: check.stage):
        checks = list(stage)
        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as threads:
            yield from threads.map(lambda check: run(check, folder), checks)


def run(planned: Planned, folder: Path) -> Result:
    """Run one check; a process that dies or hangs has failed it."""
    own = folder / f"{planned.check}-{planned.device.replace(':', '-')}"
    own.mkdir()
    start = time.monotonic()
    verdict, found = _run(planned, own)
    return Result(planned.check, planned.device, verdict, found, time.monotonic() - start)


def _run(planned: Planned, folder: Path) -> tuple[str, str]:
    answer = folder / "result.json"
    module = "determined.selftest._child"
    command = [sys.executable, "-m", module, planned.check, planned.device, str(answer)]
    # What is trained here is nothing to remember, and stays where it is removed.
    variables = {
        "DET_TRACKING": "off",
        "DET_STORAGE": str(folder / "storage"),
        "DET_HOME": str(folder / "home"),
        "DET_SUPERVISOR_IDLE_SECONDS": "5",
    }
    with (folder / "errors").open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        try:
            status = process.wait(_DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            return FAILS, f"not done after {_DEADLINE_SECONDS:.0f} s"
        finally:
            _end(process)
    if answer.exists():
        verdict, found = json.loads(answer.read_text())
        return verdict, found
    lines = (folder / "errors").read_text(errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
    return FAILS, f"the process ended with status {status}: {last}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a check: its process, or ranks that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
