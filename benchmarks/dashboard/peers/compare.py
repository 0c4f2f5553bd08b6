"""Serve the same data with each of them, and look at it with the same browser.

Of each: how soon the curve of 200,000 points is drawn and the table of 2,000 trials is there (first
view, empty cache), how long the slowest question for data took, how many bytes such questions
brought, and whether the one point that stands out is among them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import statistics
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from benchmarks.dashboard.browser import TIMEOUT_SECONDS, Browser, NotShown, Shown
from benchmarks.dashboard.made_once import make_once
from benchmarks.dashboard.peers import ours
from benchmarks.dashboard.peers.data import SPIKE
from benchmarks.dashboard.served import Dashboard

_START_SECONDS = 120.0
_DATA = (
    "performance.getEntriesByType('resource')"
    ".filter((one) => ['fetch', 'xmlhttprequest'].includes(one.initiatorType))"
    ".map((one) => [one.responseEnd - one.requestStart, one.encodedBodySize])"
)
_SPIKES = (str(SPIKE).encode(), struct.pack("<f", SPIKE), struct.pack("<d", SPIKE))


class Place(NamedTuple):
    """Where a dashboard is: its address, how to come in, its curve and its table."""

    root: str
    entrance: str | None
    curve: Shown
    table: Shown


class Peer(NamedTuple):
    """Another dashboard: what it is installed as, how it is started, where things are."""

    package: str
    arguments: Callable[[Path, int], list[str]]
    curve: Callable[[Path], Shown]
    table: Shown


PEERS = {
    "mlflow": Peer(
        "mlflow",
        lambda folder, port: [
            *("-m", "mlflow", "ui", "--workers", "1", "--port", str(port)),
            *("--backend-store-uri", f"sqlite:///{folder}/mlflow.db"),
        ],
        lambda folder: Shown(f"/#/experiments/{(folder / 'long').read_text()}", ".js-line"),
        Shown("/#/experiments/1/runs", "a", r"^trial-\d+$"),
    ),
    "optuna_dashboard": Peer(
        "optuna-dashboard",
        lambda folder, port: [
            *("-c", "from optuna_dashboard._cli import main; main()", "--port", str(port)),
            *("--storage-class", "JournalFileStorage", f"{folder}/journal.log"),
        ],
        lambda folder: Shown("/dashboard/studies/0", "#graph-intermediate-values .js-line"),
        Shown("/dashboard/studies/0/trials", "main, #root, body", r"Trial 1\D"),
    ),
    "trackio": Peer(
        "trackio",
        lambda folder, port: [
            "-c",
            "import os; os.environ['TRACKIO_DIR'] = " + repr(str(folder)) + "; import trackio; "
            f"trackio.show(open_browser=False, block_thread=True, server_port={port})",
        ],
        lambda folder: Shown("/?project=curve", "canvas"),
        Shown("/runs?project=search", "td", "trial-"),
    ),
}


def measure_peers(
    browser: Browser,
    folder: Path,
    python: str,
    rounds: int,
    make: Callable[[Path], None] = ours.fill,
) -> dict[str, dict[str, Any]]:
    """A row for each, ours first (as `make` makes it); one that is not there says why."""
    found: dict[str, dict[str, Any]] = {}
    with _ours(folder / "ours", make) as place:
        found["here"] = _look(browser, place, rounds)
    for name, peer in PEERS.items():
        version = _version(python, peer.package)
        if version is None:
            found[peer.package] = {"note": f"not installed for {python}"}
            continue
        with _served(folder / name, python, name, peer) as place:
            found[f"{peer.package} {version}"] = _look(browser, place, rounds)
    return found


def _look(browser: Browser, place: Place, rounds: int) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for what, wanted in (("curve", place.curve), ("table", place.table)):
        try:
            views = [_view(browser, place, wanted) for _ in range(rounds)]
        except NotShown:
            row[f"{what}_ms"] = f"not within {TIMEOUT_SECONDS:.0f} s"
            continue
        for key in ("ms", "answer_ms", "kb"):
            row[f"{what}_{key}"] = round(statistics.median(view[key] for view in views), 1)
        if what == "curve":
            row["spike_is_kept"] = "yes" if all(view["spike"] for view in views) else "no"
    return row


def _view(browser: Browser, place: Place, wanted: Shown) -> dict[str, Any]:
    with browser.page(place.root, place.entrance) as page:
        answers: list[Any] = []
        page.on("response", lambda answer: answers.append(answer))
        shown = browser.view(page, wanted).shown_ms
        data = page.evaluate(_DATA)
        return {
            "ms": shown,
            "answer_ms": max(took for took, _ in data),
            "kb": sum(size for _, size in data) / 1e3,
            "spike": any(spike in body for body in _bodies(answers) for spike in _SPIKES),
        }


def _bodies(answers: list[Any]) -> Iterator[bytes]:
    """What came as data, streams left out."""
    from playwright.sync_api import Error

    for answer in answers:
        is_stream = "event-stream" in answer.headers.get("content-type", "")
        if answer.request.resource_type in ("fetch", "xhr") and not is_stream:
            with contextlib.suppress(Error):  # the page gave it up
                yield answer.body()


@contextlib.contextmanager
def _ours(home: Path, make: Callable[[Path], None]) -> Iterator[Place]:
    make_once(home, make)
    with contextlib.closing(Dashboard(home)) as dashboard:
        yield Place(
            dashboard.root,
            dashboard.entrance,
            Shown("/trials/1/metrics", ".chart-count", r"of [\d,]+ points"),
            Shown("/experiments/1/trials", ".table td", r"\d"),
        )


@contextlib.contextmanager
def _served(folder: Path, python: str, name: str, peer: Peer) -> Iterator[Place]:
    make_once(folder, lambda target: _fill(target, python, name))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    root, log = f"http://127.0.0.1:{port}", folder / "server.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [python, *peer.arguments(folder, port)],
            cwd=folder,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _until_it_answers(process, root, peer, log)
        yield Place(root, None, peer.curve(folder), peer.table)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def _fill(folder: Path, python: str, name: str) -> None:
    folder.mkdir()
    module = f"benchmarks.dashboard.peers.{name}"
    subprocess.run([python, "-m", module, str(folder.resolve())], check=True)


def _until_it_answers(process: subprocess.Popen[bytes], root: str, peer: Peer, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            httpx.get(root, timeout=10, follow_redirects=True)
            return
        time.sleep(0.2)
    raise RuntimeError(f"{peer.package} did not start:\n{log.read_text()[-2000:]}")


def _version(python: str, package: str) -> str | None:
    script = f"from importlib.metadata import version; print(version({package!r}))"
    answer = subprocess.run([python, "-c", script], capture_output=True, text=True)
    return answer.stdout.strip() or None
