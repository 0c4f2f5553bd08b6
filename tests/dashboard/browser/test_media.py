"""The media of a trial in a browser, in both themes: a slider over the steps, and nothing runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from determined.platform.homes.home import Home
from determined.platform.trackers.foreign_run import ForeignRun
from determined.platform.trackers.importing import import_runs
from tests.dashboard.browser.conftest import Served, opened, served
from tests.support.waiting import eventually
from tests.tensorboard.made_events import (
    histogram_event,
    image_event,
    png,
    png_of,
    record,
    text_event,
)

pytestmark = pytest.mark.slow
_HTML = "<script>window.injected=1</script><img src=/x onerror=window.injected=1>"
_COLORS = ((220, 60, 60), (60, 180, 90), (30, 120, 220))


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = Home(tmp_path_factory.mktemp("media") / "home")
    list(import_runs(home, [ForeignRun("a", "run", "p", lambda: [])]))
    folder = home.tensorboard / "1"
    folder.mkdir()
    events = [
        *(image_event(step * 100, png(16 * step, 16, _COLORS[step - 1])) for step in (1, 2, 3)),
        image_event(1, png_of(60_000, 60_000, b""), "bomb"),
        *(text_event(step * 100, f"{_HTML} at {step}", tag="notes <b>") for step in (1, 2)),
        *(histogram_event(step * 100, num_buckets=10 * step) for step in (1, 2, 3)),
    ]
    path = folder / "events.out.tfevents.1"
    path.write_bytes(b"".join(map(record, events)))
    with served(home.path) as found:
        yield found


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_sliders_show_what_was_written_at_each_step(
    browser: Any, dashboard: Served, theme: str
) -> None:
    with opened(browser, dashboard, color_scheme=theme) as page:
        page.goto("/trials/1/media")
        image = page.get_by_alt_text("picture, step 300")
        image.wait_for()
        read = "all => all.map(one => [one.naturalWidth, one.complete])"
        eventually(
            lambda: page.eval_on_selector_all(".media img", read) == [[48, True]], "the last image"
        )
        slider = page.get_by_label("Step of picture")
        slider.focus()
        page.keyboard.press("Home")
        page.get_by_alt_text("picture, step 100").wait_for()
        eventually(
            lambda: page.eval_on_selector_all(".media img", read) == [[16, True]], "the first image"
        )
        page.keyboard.press("ArrowRight")
        page.get_by_alt_text("picture, step 200").wait_for()
        assert page.get_by_text("An image of 60000 x 60000 pixels is not shown.").is_visible()
        assert page.locator(".media pre").inner_text() == f"{_HTML} at 2"
        assert page.locator(".media .histogram rect").count() == 30
        page.get_by_label("Step of weights").fill("0")
        eventually(
            lambda: page.locator(".media .histogram rect").count() == 10, "the first histogram"
        )
        assert page.evaluate("window.injected") is None
        if folder := os.environ.get("DET_TEST_PICTURES"):
            page.screenshot(path=str(Path(folder, f"media-{theme}.png")), full_page=True)
