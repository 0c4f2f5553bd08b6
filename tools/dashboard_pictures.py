"""Take the pictures of the dashboard in docs/images, light and dark, of a real search.

The search takes minutes: `python -m tools.dashboard_pictures HOME` keeps it in HOME for the next
time.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from benchmarks.dashboard.browser import ARGUMENTS, find_browser
from determined.platform.homes.home import Home
from determined.platform.supervisor import presence
from tests.dashboard.browser.conftest import Served, opened, served

_ROOT = Path(__file__).parents[1]
_IMAGES = _ROOT / "docs" / "images"
_MOST_BYTES = 150_000
_MANY_COLOURS = 1500

# Where to go, and what is there once all is drawn.
_PAGES = {
    "experiments": ("/", "tr[data-id='1'] .spark"),
    "overview": ("/experiments/1", ".chart-count:not(:empty)"),
    "curves": ("/experiments/1/curves?envelope=1", ".legend li:nth-child(12)"),
    "trials": ("/experiments/1/trials?sort=best&order=desc", "tr[data-id]"),
    "parallel": ("/experiments/1/search", ".parallel .axis-title"),
    "contour": ("/experiments/1/search?view=contour&sx=learning_rate", ".plot"),
    "rungs": ("/experiments/1/search?view=rungs", ".rung"),
    "importance": ("/experiments/1/search?view=importance", ".importance"),
    "trial": ("/trials/1/metrics", ".chart-count:not(:empty)"),
    "log": ("/trials/14/logs?search=missing%24&regex=1", "mark"),
    "compare": ("/compare?trials=1,2,3,4", ".chart-count:not(:empty)"),
    "queue": ("/queue", ".slot"),
}


def run_det(home: Path, *words: str, fails: bool = False) -> None:
    """Run `det` in the folder of the example."""
    environment = {**os.environ, "DET_HOME": str(home), "DET_SLOTS": "2", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "determined.cli", *words],
        env=environment,
        cwd=_ROOT / "examples" / "digits",
    )
    assert (done.returncode != 0) == fails


@contextlib.contextmanager
def _searched(home: Path) -> Iterator[Served]:
    """A dashboard of a search, a single trial, one that failed and one that waits."""
    if not (home / "store.db").exists():
        create = ("experiment", "create")
        run_det(home, *create, "adaptive.yaml", ".", "--config", "labels=[search, digits]")
        run_det(home, "experiment", "wait", "1")
        run_det(home, *create, "const.yaml", ".", "--config", "labels=[digits]")
        run_det(home, *create, "const.yaml", ".", *_broken())
        run_det(home, "experiment", "wait", "2")
        run_det(home, "experiment", "wait", "3", fails=True)
        run_det(home, *create, "const.yaml", ".", "--paused", "--config", "name=digits-tomorrow")
    with served(home) as dashboard:
        yield dashboard
    presence.stop(Home(home))


def _broken() -> tuple[str, ...]:
    entrypoint = "python3 -c 'raise RuntimeError(\"the labels are missing\")'"
    changes = (f"entrypoint={entrypoint}", "name=digits-broken", "max_restarts=1")
    return tuple(word for change in changes for word in ("--config", change))


def save(taken: bytes, name: str) -> None:
    """Save a picture in its 256 most frequent colours: true grounds, sharp text, small files."""
    from PIL import Image

    picture = Image.open(io.BytesIO(taken)).convert("RGB")
    target = _IMAGES / f"{name}.png"
    colours: list[tuple[int, Any]] = picture.getcolors(picture.width * picture.height) or []
    if len(colours) > _MANY_COLOURS:  # tints, whose steps are to be even
        few = picture.quantize(256, dither=Image.Dither.NONE)
    else:
        frequent = [colour for _, colour in sorted(colours, reverse=True)[:256]]
        palette = Image.new("P", (1, 1))
        palette.putpalette([part for colour in frequent for part in colour])
        few = picture.quantize(palette=palette, dither=Image.Dither.NONE)
    few.save(target, optimize=True)
    assert target.stat().st_size < _MOST_BYTES


def _take(browser: Any, dashboard: Served, name: str, theme: str) -> None:
    path, drawn = _PAGES[name]
    size = {"width": 1280, "height": 800}
    with opened(browser, dashboard, viewport=size, color_scheme=theme) as page:
        page.goto(path)
        page.locator(drawn).first.wait_for()
        page.locator(".stream[data-stream=live]").wait_for()
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        save(page.screenshot(), name if theme == "light" else f"{name}-dark")


def main(home: Path) -> None:
    """Take all pictures, of the search in this home; it is made if there is none."""
    with _searched(home) as dashboard, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_browser(), args=list(ARGUMENTS))
        for name in _PAGES:
            for theme in ("light", "dark"):
                _take(browser, dashboard, name, theme)
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "home")
