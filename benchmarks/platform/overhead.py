"""What the platform costs a trial per batch, over the same script alone with the same threads.

Both train at the same time, but in turns of a fraction of a second: while one trains, the other
waits. So a busy machine slows both alike, and there are very many pairs of neighbours to compare.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.platform.figure import Figure, in_turns, ratio
from benchmarks.platform.site import SCRIPTS, Site, open_site

_START_SECONDS = 120.0
_TURN_SECONDS = 60.0
_SKIPPED = 5  # of the first turns: caches are cold
_NETS = {
    "a tiny net": (100, {}),
    "a net of 300,000 parameters": (20, {"WIDTH": "512", "BATCH_SIZE": "80"}),
}


def measure(is_quick: bool) -> list[Figure]:
    rounds = 60 if is_quick else 400
    return [_compare(name, batches, net, rounds) for name, (batches, net) in _NETS.items()]


def _compare(name: str, batches: int, net: Mapping[str, str], rounds: int) -> Figure:
    with open_site(slots=1) as site, socket.socket(socket.AF_UNIX) as server:
        address = str(site.folder / "turns")
        server.bind(address)
        server.listen()
        server.settimeout(_START_SECONDS)
        variables = {**net, "TURNS": address, "MARK_EVERY": str(batches), "BATCHES": str(10**9)}
        site.create("net", variables=variables, hyperparameters={"lr": 0.001})
        platform = _contender(server, batches)
        process = _start_alone(site, variables)
        try:
            alone = _contender(server, batches)
            samples = in_turns(rounds + _SKIPPED, platform=platform, alone=alone)
        finally:
            process.kill()  # it would finish its turn first
            process.wait()
    counted = {who: values[_SKIPPED:] for who, values in samples.items()}
    return Figure(
        f"time per batch of {name}, over the same script alone",
        ratio(counted, "platform", "alone"),
        "times",
        goal=1.01,
        samples=counted,
    )


def _contender(server: socket.socket, batches: int) -> Callable[[], float]:
    """Wait for the next one that arrives; return what gives it a turn: its microseconds a batch."""
    connection, _ = server.accept()
    connection.settimeout(_TURN_SECONDS)
    file: Any = connection.makefile("rw")
    file.readline()  # it is where its first turn begins

    def turn() -> float:
        file.write("go\n")
        file.flush()
        return 1e6 * float(file.readline()) / batches

    return turn


def _start_alone(site: Site, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(Path(SCRIPTS) / "net.py")],
        env={**os.environ, **variables},
        cwd=site.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
