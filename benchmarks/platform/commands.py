"""How soon the command line answers, over an interpreter that does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.platform.figure import Figure, difference, in_turns
from benchmarks.platform.site import open_site

_GOAL_SECONDS = 0.15


def measure(is_quick: bool) -> list[Figure]:
    with open_site() as site:
        site.finish(site.create("reports"))
        return answers(5 if is_quick else 15)


def answers(rounds: int) -> list[Figure]:
    """Time the commands in the current home."""
    det = str(Path(sys.executable).with_name("det"))
    commands = {
        "empty interpreter": [sys.executable, "-c", ""],
        "det e list": [det, "e", "list"],
        "det --help": [det, "--help"],
    }
    timed = {name: lambda words=words: seconds_of(words) for name, words in commands.items()}
    for time_once in timed.values():
        time_once()  # fills the file cache
    samples = in_turns(rounds, **timed)  # type: ignore[arg-type]
    return [
        Figure(
            f"`{name}` over an empty interpreter",
            difference(samples, name, "empty interpreter"),
            goal=_GOAL_SECONDS,
            samples={name: samples[name], "empty interpreter": samples["empty interpreter"]},
        )
        for name in ("det e list", "det --help")
    ]


def seconds_of(words: list[str], variables: Mapping[str, str] | None = None) -> float:
    """Run a command to its end."""
    began = time.perf_counter()
    environment = {**os.environ, **(variables or {})}
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - began
