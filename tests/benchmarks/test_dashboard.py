"""The dashboard's benchmark runs, on a home that is small in every way."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.dashboard.__main__ import Dashboard, answers, live, memory
from benchmarks.dashboard.make_store import make_full


@pytest.mark.slow
def test_the_benchmark_measures_what_pages_ask(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made = make_full(
        home, experiments=3, trials=20, curves=2, points=20_000, metrics=3, log_bytes=20_000
    )
    assert set(made) == {"search", "curves", "metrics_trial", "log_trial"}
    dashboard = Dashboard(home)
    try:
        rows = answers(dashboard, home, rounds=1)
        assert len(rows) > 20
        assert all(row["median_ms"] > 0 for row in rows)
        held = memory(dashboard, home, requests=10)["megabytes"]
        assert len(held) > 1
        tick = live(dashboard, home, ticks=2)
        assert 1000 < tick["bytes"] < 20_000
    finally:
        dashboard.close()
