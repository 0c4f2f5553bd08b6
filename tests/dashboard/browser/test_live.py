"""A small experiment runs while one looks: what is shown moves, and verbs show their effect."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dashboard.browser.conftest import Page, opened, served
from tests.support.lab import Lab, lab

__all__ = ["lab"]

# Does a batch once the file allows it: the test, not the clock, decides how far it is.
STEP_BY_STEP = """
import pathlib, time
import determined as det
from determined import core

def main(ctx):
    batch, latest = 0, det.get_cluster_info().latest_checkpoint
    if latest:
        with ctx.checkpoint.restore_path(latest) as path:
            batch = int((path / "batch").read_text())
    while batch < 10:
        while batch >= int(pathlib.Path(GO).read_text() or 0):
            if ctx.preempt.should_preempt():
                with ctx.checkpoint.store_path({"steps_completed": batch}) as (path, _):
                    (path / "batch").write_text(str(batch))
                return
            time.sleep(0.02)
        batch += 1
        print(f"now at batch {batch} <i>of</i> 10", flush=True)
        ratio = float("nan") if batch == 2 else batch
        ctx.train.report_validation_metrics(batch, {"loss": 1 / batch, "ratio": ratio})
        ctx.train.report_progress(batch / 10)

with core.init() as ctx:
    main(ctx)
"""


class Show:
    """An experiment, a page that shows it, and how far it may go."""

    def __init__(self, lab: Lab, browser: Any, stack: contextlib.ExitStack) -> None:
        self.lab = lab
        self._go = lab.folder / "go"
        self.allow(2)
        self.id = lab.create(f"GO = {str(self._go)!r}\n{STEP_BY_STEP}", name="step by step")
        self.dashboard = stack.enter_context(served(lab.home.path))
        self.page: Page = stack.enter_context(opened(browser, self.dashboard))
        self.page.goto("/")
        self.page.evaluate("window.stayed = true")

    def allow(self, batches: int) -> None:
        draft = self._go.with_suffix(".draft")
        draft.write_text(str(batches))
        draft.replace(self._go)

    def progress(self, percent: int) -> None:
        bar = f".progress[aria-valuenow='{percent}']"
        self.page.locator(bar).first.wait_for()

    def state(self, *states: str) -> None:
        head = ", ".join(f".head .state[data-state={state}]" for state in states)
        self.page.locator(head).first.wait_for()

    def says(self, text: str) -> None:
        self.page.locator("#toasts").get_by_text(text).wait_for()


@pytest.fixture
def show(lab: Lab, browser: Any) -> Iterator[Show]:
    with contextlib.ExitStack() as stack:
        yield Show(lab, browser, stack)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_happens_is_shown_without_a_reload(show: Show) -> None:
    page = show.page
    show.progress(20)
    show.allow(4)
    show.progress(40)

    page.get_by_role("link", name="step by step").click()
    page.get_by_role("link", name="Curves").click()
    page.locator(".chart-count").get_by_text("4 points").wait_for()
    show.allow(5)
    page.locator(".chart-count").get_by_text("5 points").wait_for()

    page.get_by_role("link", name="Overview").click()
    page.get_by_role("link", name="Trial 1").click()
    page.get_by_role("link", name="Logs").click()
    page.get_by_text("now at batch 5 <i>of</i> 10").wait_for()
    show.allow(6)
    page.get_by_text("now at batch 6 <i>of</i> 10").wait_for()

    page.get_by_role("link", name="Metrics").click()
    chart = page.get_by_role("region", name="validation ratio")
    chart.get_by_text("× NaN or infinite: validation ratio.").wait_for()

    page.get_by_role("link", name="step by step").click()
    page.get_by_role("button", name="Pause").click()
    show.state("PAUSED")
    show.says("at batch 6.")
    assert show.lab.experiment(show.id).state == "PAUSED"

    page.get_by_role("link", name="Notes").click()
    page.get_by_role("textbox", name="Notes").fill("Too slow at first, <b>fine</b> later.")
    page.get_by_role("button", name="Save").click()
    show.says("Saved.")
    assert show.lab.experiment(show.id).notes == "Too slow at first, <b>fine</b> later."

    page.get_by_role("link", name="Overview").click()
    page.get_by_role("button", name="Activate").click()
    show.state("RUNNING", "QUEUED")
    show.allow(7)
    page.locator(".chart-count").get_by_text("7 points").wait_for()

    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    show.state("CANCELED")
    show.says("Canceled: experiment 1")
    assert page.evaluate("window.stayed")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_page_says_who_is_missing_and_comes_back(show: Show) -> None:
    page = show.page
    show.progress(20)
    show.lab.kill_supervisor()
    page.locator("#banner").get_by_text("supervisor").wait_for()
    show.lab.service.wake_if_needed()
    page.wait_for_function("() => document.getElementById('banner').textContent === ''")

    show.dashboard.stop()
    page.locator(".stream[data-stream=lost]").wait_for()
    show.allow(3)
    show.dashboard.start()
    page.locator(".stream[data-stream=live]").wait_for()
    show.progress(30)
    assert page.evaluate("window.stayed")
    page.faults.clear()  # the browser notes refused connections on its console

    page.keyboard.press("j")
    page.keyboard.press("p")
    page.locator("tr[data-id='1'] .state[data-state=PAUSED]").wait_for()
    show.says("Paused: experiment 1 at batch 3.")

    page.goto(f"/experiments/{show.id}")
    page.get_by_role("button", name="Kill").click()
    page.get_by_role("dialog").get_by_role("button", name="Kill").click()
    show.state("CANCELED")
