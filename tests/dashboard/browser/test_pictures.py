"""Pictures for the documentation, taken of a real search: `DET_WRITE_PICTURES=1`.

The search takes minutes. `DET_PICTURES_HOME` names a home that keeps it for the next time.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from determined.platform.homes.home import Home
from determined.platform.supervisor import presence
from tests.dashboard.browser.conftest import Page, Served, opened, served

ROOT = Path(__file__).parents[3]
PICTURES = ROOT / "docs" / "pictures"
MOST_BYTES = 150_000
MANY_COLOURS = 1500

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("DET_WRITE_PICTURES") != "1", reason="takes minutes: DET_WRITE_PICTURES=1"
    ),
    pytest.mark.timeout(3600),
]

# Where to go, and what is there once all is drawn.
PAGES = {
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


def det(home: Path, *words: str, fails: bool = False) -> None:
    environment = {**os.environ, "DET_HOME": str(home), "DET_SLOTS": "2", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "determined.cli", *words],
        env=environment,
        cwd=ROOT / "examples" / "digits",
    )
    assert (done.returncode != 0) == fails


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A dashboard of a search, a single trial, one that failed and one that waits."""
    kept = os.environ.get("DET_PICTURES_HOME")
    home = Path(kept) if kept else tmp_path_factory.mktemp("pictures") / "home"
    if not (home / "store.db").exists():
        create = ("experiment", "create")
        det(home, *create, "adaptive.yaml", ".", "--config", "labels=[search, digits]")
        det(home, "experiment", "wait", "1")
        det(home, *create, "const.yaml", ".", "--config", "labels=[digits]")
        det(home, *create, "const.yaml", ".", *_broken())
        det(home, "experiment", "wait", "2")
        det(home, "experiment", "wait", "3", fails=True)
        det(home, *create, "const.yaml", ".", "--paused", "--config", "name=digits-tomorrow")
    with served(home) as dashboard:
        yield dashboard
    presence.stop(Home(home))


def _broken() -> tuple[str, ...]:
    entrypoint = "python3 -c 'raise RuntimeError(\"the labels are missing\")'"
    changes = (f"entrypoint={entrypoint}", "name=digits-broken", "max_restarts=1")
    return tuple(word for change in changes for word in ("--config", change))


def save(page: Page, name: str) -> None:
    """Save a picture in its 256 most frequent colours: true grounds, sharp text, small files."""
    from PIL import Image

    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    target = PICTURES / f"{name}.png"
    target.parent.mkdir(exist_ok=True)
    colours: list[tuple[int, Any]] = picture.getcolors(picture.width * picture.height) or []
    if len(colours) > MANY_COLOURS:  # tints, whose steps are to be even
        few = picture.quantize(256, dither=Image.Dither.NONE)
    else:
        frequent = [colour for _, colour in sorted(colours, reverse=True)[:256]]
        palette = Image.new("P", (1, 1))
        palette.putpalette([part for colour in frequent for part in colour])
        few = picture.quantize(palette=palette, dither=Image.Dither.NONE)
    few.save(target, optimize=True)
    assert target.stat().st_size < MOST_BYTES


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", list(PAGES))
def test_each_page_has_its_picture(name: str, theme: str, browser: Any, searched: Served) -> None:
    path, drawn = PAGES[name]
    size = {"width": 1280, "height": 800}
    with opened(browser, searched, viewport=size, color_scheme=theme) as page:
        page.goto(path)
        page.locator(drawn).first.wait_for()
        page.locator(".stream[data-stream=live]").wait_for()
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        save(page, name if theme == "light" else f"{name}-dark")
