"""Take the picture of a run and its forks in docs/images, light and dark, of real training.

The runs take a minute: `python -m tools.fork_picture HOME` keeps them in HOME for the next time.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from benchmarks.dashboard.browser import ARGUMENTS, find_browser
from determined.platform.homes.home import Home
from determined.platform.supervisor import presence
from tests.dashboard.browser.conftest import Served, opened, served
from tools.dashboard_pictures import run_det, save

_AT = 450  # ten epochs of the handwritten digits
_RATES = ("0.003", "0.0003")
_CREATE = {
    "name": "rate 0.03",
    "entrypoint": "python3 train.py --epochs 20",
    "hyperparameters.learning_rate": "0.03",
}
_CHART = ".chart[aria-label=validation_loss]"
_SIZE = {"width": 1000, "height": 1000}
_MARGIN = 12
# Leaves one chart of the page, as wide as it.
_ALONE = """(chosen) => {
  for (const chart of document.querySelectorAll(".chart"))
    if (!chart.matches(chosen)) chart.style.display = "none";
  document.querySelector(".chart-grid").style.gridTemplateColumns = "1fr";
}"""


def _train(home: Path) -> None:
    """Train with a rate that is too high, and go on from the middle with lower ones."""
    changes = [word for key, value in _CREATE.items() for word in ("--config", f"{key}={value}")]
    run_det(home, "experiment", "create", "const.yaml", ".", *changes, "--follow-first-trial")
    for rate in _RATES:
        words = ("--at", str(_AT), "--set", f"learning_rate={rate}", "--name", f"rate {rate}")
        run_det(home, "trial", "fork", "1", *words, "--follow")


def _take(browser: Any, dashboard: Served, theme: str) -> None:
    with opened(browser, dashboard, viewport=_SIZE, color_scheme=theme) as page:
        page.goto("/compare?trials=1,2,3&logy=1")
        page.locator(".stream[data-stream=live]").wait_for()
        page.locator(f"{_CHART} .chart-count:not(:empty)").wait_for()
        page.evaluate(_ALONE, _CHART)
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        legend, chart = (page.locator(what).bounding_box() for what in (".legend-row", _CHART))
        assert legend is not None
        assert chart is not None
        top, bottom = legend["y"] - _MARGIN, chart["y"] + chart["height"] + _MARGIN
        clip = {"x": 0, "y": top, "width": _SIZE["width"], "height": bottom - top}
        save(page.screenshot(clip=clip), "fork" if theme == "light" else "fork-dark")


def main(home: Path) -> None:
    """Take both pictures, of the runs in this home; they are made if there are none."""
    if not (home / "store.db").exists():
        _train(home)
    with served(home) as dashboard, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_browser(), args=list(ARGUMENTS))
        for theme in ("light", "dark"):
            _take(browser, dashboard, theme)
        browser.close()
    presence.stop(Home(home))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary) / "home")
