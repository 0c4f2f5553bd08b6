"""Pages for everybody: narrow screens, both themes, assistive technology, no jumping."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.browser.conftest import Page, Served, opened

pytestmark = pytest.mark.slow

# Where to go, and what is there once the page has its data.
PAGES = {
    "/": "tr[data-id]",
    "/experiments/1": ".big-number",
    "/experiments/1/curves": ".legend li",
    "/experiments/1/metrics": ".chart-count:not(:empty)",
    "/experiments/1/trials": "tr[data-id]",
    "/experiments/1/search": ".axis-title",
    "/experiments/1/search?view=scatter": ".plot",
    "/experiments/1/search?view=contour": ".plot",
    "/experiments/1/search?view=heat": ".plot",
    "/experiments/1/search?view=rungs": ".rung",
    "/experiments/1/search?view=importance": ".importance",
    "/experiments/1/checkpoints": "tr[data-id]",
    "/experiments/1/code": ".code",
    "/experiments/1/config?other=2": ".diff",
    "/experiments/1/logs": ".log-line",
    "/experiments/1/notes": "textarea",
    "/experiments/3": "h1",
    "/experiments/5": ".traceback",
    "/trials": "tr[data-id]",
    "/trials/5": ".traceback",
    "/trials/5/metrics": ".chart",
    "/trials/5/logs": ".log-line",
    "/trials/5/system": ".chart",
    "/trials/5/media": ".empty",
    "/trials/5/profile": ".empty, .importance",
    "/compare?trials=1,3,19": ".differs",
    "/models": "tr[data-id]",
    "/models/digits-net": ".facts",
    "/queue": ".slot",
}
# Axe takes its time: one page of each kind.
KINDS = (
    "/",
    "/experiments/1",
    "/experiments/1/curves",
    "/experiments/1/search",
    "/experiments/1/search?view=contour",
    "/experiments/1/search?view=rungs",
    "/experiments/1/checkpoints",
    "/experiments/1/config?other=2",
    "/experiments/1/metrics",
    "/experiments/5",
    "/trials",
    "/trials/5",
    "/trials/5/logs",
    "/compare?trials=1,3,19",
    "/models/digits-net",
    "/queue",
)
NO_AXE = "DET_AXE does not name the file axe.min.js of the npm package axe-core"


def visit(page: Page, path: str) -> None:
    page.goto(path)
    page.locator(PAGES[path]).first.wait_for(state="attached")


def test_no_page_is_wider_than_a_phone(browser: Any, made: Served) -> None:
    with opened(browser, made, viewport={"width": 390, "height": 844}) as page:
        wide = []
        for path in PAGES:
            visit(page, path)
            if page.evaluate("() => document.documentElement.scrollWidth > innerWidth"):
                wide.append(path)
        assert wide == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("theme", "options"),
    [("light", {}), ("dark", {"runOnly": ["color-contrast"]})],  # themes differ in colours only
    ids=["light", "dark"],
)
@pytest.mark.skipif("DET_AXE" not in os.environ, reason=NO_AXE)
def test_axe_finds_nothing_to_complain_of(
    theme: str, options: dict[str, Any], browser: Any, made: Served
) -> None:
    axe = Path(os.environ["DET_AXE"]).read_text()
    with opened(browser, made, color_scheme=theme, bypass_csp=True) as page:
        complaints = []
        for path in KINDS:
            visit(page, path)
            page.evaluate(axe)
            found = page.evaluate("options => axe.run(document, options)", options)["violations"]
            complaints += [(path, one["id"], one["nodes"][0]["html"]) for one in found]
        assert complaints == []


def test_nothing_jumps_while_a_page_loads(browser: Any, made: Served) -> None:
    with opened(browser, made) as page:
        for path in ("/", "/experiments/1/trials", "/trials/5/metrics"):
            visit(page, path)
            moved = page.evaluate("""() => new Promise(done => {
                const seen = new PerformanceObserver(list => done(
                    list.getEntries().reduce((sum, one) => sum + one.value, 0)));
                seen.observe({type: "layout-shift", buffered: true});
                setTimeout(() => done(0));
            })""")
            assert moved < 0.1, path
