"""Fork and replay on a trial's page: what it costs, links between both, the command to type."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dashboard.browser.conftest import opened, served, until_address
from tests.support.forked import create, finished
from tests.support.lab import Lab, lab

__all__ = ["lab"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def test_a_trial_is_forked_on_its_page(browser: Any, lab: Lab) -> None:
    finished(lab, create(lab))
    with served(lab.home.path) as dashboard, opened(browser, dashboard) as page:
        page.goto("/trials/1")
        page.get_by_role("button", name="Fork").click()
        page.get_by_label("At batch").fill("12")
        page.get_by_label("lr").fill("0.02")
        page.get_by_text("2 batches are trained again").wait_for()
        page.get_by_label("Name of the new experiment").fill("by the page")
        page.locator("dialog").get_by_role("button", name="Fork").click()
        until_address(page, "/experiments/2")
        finished(lab, 2)
        assert lab.experiment(2).name == "by the page"
        assert lab.trials(2)[0].hparams["lr"] == 0.02
        page.goto("/trials/2")
        page.get_by_role("link", name="fork of trial 1").click()
        until_address(page, "/trials/1")
        page.get_by_role("link", name="forked as trial 2").wait_for()
        page.goto("/trials/1/metrics?from=8.4&to=15.6")  # as after dragging in a chart
        page.get_by_role("button", name="Replay this span").click()
        page.get_by_text("det trial replay 1 --batches 9:15").wait_for()
