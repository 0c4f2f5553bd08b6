"""A real browser, and the time until something is seen in it.

Time is measured inside the page, from the start of the navigation or from the event that asked for
something, until the wanted content is there and the next frame is drawn. Pixels of every canvas are
read back before the clock stops: what the browser put off drawing is drawn by then.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
TIMEOUT_SECONDS = 30.0
_CLOCK = """
window.seenAfter = (since, isThere, patience) =>
  new Promise((resolve) => {
    setTimeout(() => resolve(-1), patience);
    const drawn = () => {
      for (const canvas of document.querySelectorAll("canvas"))
        if (canvas.width && canvas.height) canvas.getContext("2d")?.getImageData(0, 0, 1, 1);
      resolve(performance.now() - since());
    };
    const look = () => requestAnimationFrame(isThere() ? drawn : look);
    look();
  });
addEventListener("pointerup", () => (window.releasedAt = performance.now()), true);
"""
_SIZES = "performance.getEntriesByType('resource').map((one) => one.encodedBodySize)"


class NotShown(Exception):
    """A page did not show what it should."""


class Shown(NamedTuple):
    """A page, and how one knows that it is there: a node whose text fits."""

    path: str
    selector: str
    text: str = ""

    @property
    def is_there(self) -> str:
        """As an expression of JavaScript."""
        nodes = f"[...document.querySelectorAll({json.dumps(self.selector)})]"
        return f"{nodes}.some((one) => RegExp({json.dumps(self.text)}).test(one.textContent))"


@dataclass(frozen=True)
class View:
    """What it took to see a page: until it was shown, and what that cost and brought."""

    shown_ms: float
    browser_cpu_ms: float
    requests: int
    wire_kb: float


class Browser:
    """Chromium, headless. Every view begins with an empty cache, as the first one of a person."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened
        self._devtools = opened.new_browser_cdp_session()

    @contextlib.contextmanager
    def page(self, root: str, entrance: str | None = None) -> Iterator[Any]:
        """A page in a context of its own, with the cookie of the dashboard if there is one."""
        size = {"width": 1400, "height": 900}
        with contextlib.closing(self._opened.new_context(base_url=root, viewport=size)) as context:
            context.set_default_timeout(4e3 * TIMEOUT_SECONDS)
            context.add_init_script(_CLOCK)
            if entrance is not None:
                context.request.get(entrance)
            yield context.new_page()

    def cpu_ms(self) -> float:
        """What all processes of the browser have computed so far."""
        answer = self._devtools.send("SystemInfo.getProcessInfo")
        return 1e3 * sum(float(one["cpuTime"]) for one in answer["processInfo"])

    def view(self, page: Any, wanted: Shown) -> View:
        """Go to an address and wait until it is there and drawn."""
        begin = self.cpu_ms()
        page.goto(wanted.path, wait_until="commit")
        shown = seen_after(page, "0", wanted.is_there)
        cpu = self.cpu_ms() - begin
        sizes = page.evaluate(_SIZES)
        return View(shown, cpu, len(sizes), sum(sizes) / 1e3)


def seen_after(page: Any, since: str, is_there: str) -> float:
    """Milliseconds from a moment of the page's clock until something is seen."""
    took = float(
        page.evaluate(f"seenAfter(() => {since}, () => {is_there}, {1e3 * TIMEOUT_SECONDS})")
    )
    if took < 0:
        raise NotShown(f"{page.url} does not show {is_there} within {TIMEOUT_SECONDS} s")
    return took


def find_browser() -> str | None:
    """The Chromium that `DET_BROWSER` names, or one that is installed."""
    installed = filter(None, map(shutil.which, _PROGRAMS))
    return os.environ.get("DET_BROWSER") or next(installed, None)


@contextlib.contextmanager
def a_browser() -> Iterator[Browser | None]:
    """Chromium, or None where it or Playwright is missing."""
    program = find_browser()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        yield None
        return
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        try:
            yield Browser(opened)
        finally:
            opened.close()
