"""The dashboard's benchmark runs, on homes that are small in every way."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.dashboard.__main__ import Size, measure
from benchmarks.dashboard.answers import questions
from benchmarks.dashboard.browser import Browser, a_browser
from benchmarks.dashboard.large_things import find_large_things
from benchmarks.dashboard.make_store import make_full
from benchmarks.dashboard.pages import CURVES, measure_pages, measure_zoom, pages
from benchmarks.dashboard.peers import ours
from benchmarks.dashboard.peers.compare import PEERS, measure_peers
from benchmarks.dashboard.report import show
from benchmarks.dashboard.served import Dashboard

pytestmark = pytest.mark.slow
_MACHINE = {"cores": 2, "load_before": 0.5, "load_after": 0.7}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dashboard") / "home"
    path.with_name("home.made").touch()
    made = make_full(
        path, experiments=3, trials=20, curves=2, points=20_000, metrics=3, log_bytes=20_000
    )
    assert set(made) == {"search", "curves", "metrics_trial", "log_trial"}
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as opened:
        if opened is None:
            pytest.skip("no Chromium here: install it, or name one in DET_BROWSER")
        yield opened


def test_answers_ticks_and_memory_are_measured(home: Path) -> None:
    size = Size(answers=1, ticks=2, points=10_000, requests=10)
    found = measure(home.parent, ("answers", "ticks", "memory"), size, sys.executable)
    assert found["answers"].keys() == questions(find_large_things(home)).keys()
    assert all(row["median_ms"] > 0 for row in found["answers"].values())
    for what in ("empty", "10,000 points"):
        assert 1000 < found["ticks"][what]["bytes"] < 10_000
    assert len(found["memory"]["megabytes"]) == 11
    text = show({**found, "machine": _MACHINE})
    assert "| 50 curves of 1,000,000 points |" in text
    assert "- requests: 10" in text


def test_pages_and_zoom_are_measured_in_a_browser(home: Path, browser: Browser) -> None:
    large = find_large_things(home)
    wanted = {name: pages(large)[name] for name in (CURVES, "log of 200 MB")}
    with contextlib.closing(Dashboard(home)) as dashboard:
        found = measure_pages(browser, dashboard, wanted, rounds=1)
        assert found.keys() == wanted.keys()
        assert all(row["shown_ms"] > 0 and row["wire_kb"] > 10 for row in found.values())
        zoomed = measure_zoom(browser, dashboard, large, rounds=1)
        assert "of 40,000 points" in zoomed["whole range"]["count"]
        assert "of" not in zoomed["zoom 2"]["count"]  # every point is drawn by itself


def test_peers_that_are_missing_say_so(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(home: Path) -> None:
        ours.fill(home, points=20_000, count=5)

    for name, peer in PEERS.items():
        monkeypatch.setitem(PEERS, name, peer._replace(package=f"no-such-{name}"))
    found: dict[str, Any] = measure_peers(browser, tmp_path, sys.executable, 1, make)
    assert found["here"]["spike_is_kept"] == "yes"
    assert found["here"]["table_kb"] > 0
    assert len(found) == 4
    assert all("not installed" in row["note"] for name, row in found.items() if name != "here")
