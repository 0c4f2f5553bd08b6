"""kill -9 of any process of a home, one, two or all at once, at random times."""

from __future__ import annotations

import collections
import contextlib
import os
import random
import signal
from pathlib import Path

import psutil

from tests.support.lab import Lab

# By what their command line says; forked ones keep that of their parent.
KINDS = {
    "supervisor": "determined.platform.supervisor",
    "keeper": "keeper",
    "trial": "script.py",
    "dashboard": "dashboard",
    "fork server": "platform/runs/warm/__main__.py",
    "launcher": "determined.launch.torch_distributed",
}
_ONE, _TWO, _ALL = 0.8, 0.15, 0.05


class RandomKills:
    """Kills and counts."""

    def __init__(self, lab: Lab, generator: random.Random) -> None:
        self._lab = lab
        self._generator = generator
        self.killed: collections.Counter[str] = collections.Counter()

    @property
    def count(self) -> int:
        return sum(self.killed.values())

    def kill_some(self) -> None:
        """Kill a process of a random kind, two of any kind, or everything."""
        (how_many,) = self._generator.choices([1, 2, 1000], [_ONE, _TWO, _ALL])
        by_kind: dict[str, list[psutil.Process]] = {}
        for process in self._lab.processes():
            by_kind.setdefault(kind_of(process), []).append(process)
        by_kind.pop("", None)
        kinds = sorted(by_kind)
        if kinds == ["supervisor"] and self._generator.random() < 0.8:
            return  # let it start something, or it would be nearly the only victim
        self._generator.shuffle(kinds)
        everybody = [process for kind in kinds for process in by_kind[kind]]
        victims = [self._generator.choice(by_kind[kind]) for kind in kinds[:how_many]]
        for victim in everybody if how_many > 2 else victims:
            self._kill(victim)

    def _kill(self, process: psutil.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            if kind := kind_of(process):
                os.kill(process.pid, signal.SIGKILL)
                self.killed[kind] += 1


def kind_of(process: psutil.Process) -> str:
    """The kind of a process; "" for one that is gone, or none of ours."""
    with contextlib.suppress(psutil.Error):
        if process.status() == psutil.STATUS_ZOMBIE:
            return ""
        words = process.cmdline()
        text = " ".join([Path(words[0]).name, *words[1:]]) if words else ""
        return next((kind for kind, mark in KINDS.items() if mark in text), "")
    return ""
