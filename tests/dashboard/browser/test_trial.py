"""One trial: its metrics and its log."""

from __future__ import annotations

from tests.dashboard.browser.conftest import Page, until_address
from tests.support.waiting import eventually


def test_a_failed_trial_shows_its_first_traceback_as_text(page: Page) -> None:
    page.goto("/trials/5")
    shown = page.get_by_label("Traceback")
    shown.wait_for()
    assert "<script>alert(1)</script>" in shown.inner_text()
    assert page.locator(".head .state").get_attribute("data-state") == "ERROR"


def test_a_log_is_searched_and_what_was_found_is_marked(page: Page) -> None:
    page.goto("/trials/5/logs")
    page.locator(".log-line").first.wait_for()
    page.keyboard.press("/")
    page.keyboard.type("batch 37")
    until_address(page, "search=batch")
    eventually(lambda: 0 < page.locator(".log-line").count() < 20, "only lines that fit")
    assert set(page.locator("mark").all_inner_texts()) == {"batch 37"}


def test_a_line_of_a_log_has_its_own_address(page: Page) -> None:
    page.goto("/trials/5/logs?line=7")
    marked = page.locator(".log-line[data-marked]")
    marked.wait_for()
    assert marked.locator("a").inner_text() == "7"
    assert marked.is_visible()


def test_levels_and_ranks_filter_a_log(page: Page) -> None:
    page.goto("/trials/5/logs?level=WARNING&rank=1")
    page.locator(".log-line").first.wait_for()
    levels = {one.get_attribute("data-level") for one in page.locator(".log-line").all()}
    assert levels == {"WARNING"}
    assert set(page.locator(".log-line > span").all_inner_texts()) == {"r1"}


def test_each_metric_has_a_chart_and_is_found_by_name(page: Page) -> None:
    page.goto("/trials/1/metrics")
    page.get_by_role("region", name="training loss").wait_for()
    page.get_by_label("Find a metric").fill("accuracy")
    eventually(lambda: page.locator(".chart").count() == 1, "one chart")
    until_address(page, "find=accuracy")


def test_a_trial_lists_its_runs_and_restarts(page: Page) -> None:
    page.goto("/trials/5")
    runs = page.get_by_role("region", name="Runs and restarts")
    runs.wait_for()
    assert runs.locator("tbody tr").count() >= 1
