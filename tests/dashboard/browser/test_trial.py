"""One trial: its metrics and its log."""

from __future__ import annotations

import time

import pytest

from tests.dashboard.browser.conftest import Page, until_address
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


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


def test_times_filter_a_log(page: Page) -> None:
    page.goto("/trials/13/logs")
    page.locator(".log-line").first.wait_for()
    first, last = page.evaluate("""async () => {
        const ask = async (query) => (await fetch("/api/trials/13/logs?" + query)).json();
        const [head, tail] = [await ask("limit=1"), await ask("limit=1&tail=1")];
        return [Math.floor(head.lines[0].time), Math.floor(tail.lines[0].time)];
    }""")
    assert first < last
    middle = (first + last) // 2

    def shown() -> list[str]:
        read = "all => all.map(one => one.title)"
        return list(page.eval_on_selector_all(".log-line time", read))

    def choose(label: str, moment: int) -> str:
        local = time.localtime(moment)
        page.get_by_label(label, exact=True).fill(time.strftime("%Y-%m-%dT%H:%M:%S", local))
        page.get_by_label(label, exact=True).press("Enter")
        return time.strftime("%Y-%m-%d %H:%M:%S", local)

    page.get_by_role("button", name="Time", exact=True).click()
    end = choose("To", middle)
    until_address(page, f"until={middle}")
    eventually(lambda: max(shown(), default="~") <= end, "only early lines")
    choose("To", first - 10)
    page.get_by_text("No lines match these filters.").wait_for()
    choose("To", last + 10)
    begin = choose("From", middle)
    until_address(page, f"since={middle}")
    eventually(lambda: min(shown(), default="") >= begin, "only late lines")


def test_a_click_on_a_number_gives_a_line_its_address(page: Page) -> None:
    page.goto("/trials/5/logs?level=WARNING")
    page.locator(".log-line").first.wait_for()
    page.get_by_role("link", name="390", exact=True).click()
    until_address(page, "line=390", "level=WARNING")
    page.reload()
    assert page.locator(".log-line[data-marked] a").inner_text() == "390"


def test_a_log_is_compared_with_that_of_another_trial(page: Page) -> None:
    page.goto("/trials/5/logs")
    field = page.get_by_label("Compare with the log of trial")
    field.fill("13")
    field.press("Enter")
    until_address(page, "other=13")
    page.locator(".diff .remove").get_by_text("RuntimeError: CUDA error").wait_for()
    page.get_by_role("button", name="Close the diff").click()
    page.locator(".log-line").first.wait_for()


def test_tables_of_a_trial_are_saved_as_csv(page: Page) -> None:
    page.goto("/trials/5")
    for name, word in {"trial-5-metrics": "validation_loss", "trial-5-runs": "failed"}.items():
        with page.expect_download() as saved:
            page.get_by_role("button", name=f"Save {name} as CSV").click()
        assert saved.value.suggested_filename == f"{name}.csv"
        assert word in saved.value.path().read_text()


def test_each_metric_has_a_chart_and_is_found_by_name(page: Page) -> None:
    page.goto("/trials/1/metrics")
    page.get_by_role("region", name="training loss").wait_for()
    assert page.get_by_role("region", name="epochs").count() == 0  # how far, not how good
    page.get_by_role("button", name="Counters").click()
    page.get_by_role("region", name="training epochs").wait_for()
    page.get_by_label("Find a metric").fill("accuracy")
    eventually(lambda: page.locator(".chart").count() == 1, "one chart")
    until_address(page, "find=accuracy")


def test_a_trial_lists_its_runs_and_restarts(page: Page) -> None:
    page.goto("/trials/5")
    runs = page.get_by_role("region", name="Runs and restarts")
    runs.wait_for()
    assert runs.locator("tbody tr").count() >= 1
