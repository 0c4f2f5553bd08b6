"""The table of experiments, as one works with it."""

from __future__ import annotations

import pytest

from tests.dashboard.browser.conftest import Page, until_address
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def page(page: Page) -> Page:
    page.goto("/")
    return page


def rows(page: Page) -> list[str]:
    read = "rows => rows.map(row => row.dataset.id)"
    return list(page.eval_on_selector_all("tbody tr[data-id]", read))


def shows(page: Page, *ids: str) -> None:
    eventually(lambda: rows(page) == list(ids), f"rows {ids}, not {rows(page)}")


def test_all_but_archived_experiments_are_listed_newest_first(page: Page) -> None:
    shows(page, "9", "8", "6", "5", "4", "3", "2", "1")
    page.get_by_role("button", name="Archived").click()
    shows(page, "9", "8", "7", "6", "5", "4", "3", "2", "1")
    until_address(page, "archived=1")


def test_names_with_markup_are_shown_as_text(page: Page) -> None:
    name = page.locator("tr[data-id='3'] .name a")
    name.wait_for()
    assert "<b>bold</b>" in name.text_content()
    assert page.locator("main b, main script").count() == 0


def test_a_search_is_in_the_address_and_survives_a_reload(page: Page) -> None:
    page.locator("tr[data-id='1']").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("adaptive")
    shows(page, "1")
    until_address(page, "search=adaptive")
    page.reload()
    shows(page, "1")
    assert page.get_by_label("Search experiments").input_value() == "adaptive"


def test_a_click_on_a_heading_sorts_and_back_undoes_it(page: Page) -> None:
    shows(page, "9", "8", "6", "5", "4", "3", "2", "1")
    page.get_by_role("button", name="Trials", exact=True).click()
    eventually(lambda: rows(page)[0] == "1", "most trials first")
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("Trials")
    page.go_back()
    shows(page, "9", "8", "6", "5", "4", "3", "2", "1")


def test_states_are_chosen_in_a_menu(page: Page) -> None:
    page.get_by_role("button", name="State", exact=True).first.click()
    page.get_by_role("checkbox", name="Error").check()
    shows(page, "5")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="State: error").wait_for()


def test_a_filter_that_nothing_fits_says_so(page: Page) -> None:
    page.goto("/?search=there-is-no-such-thing")
    page.get_by_text("No experiments match these filters.").wait_for()
    page.get_by_role("link", name="Show all").click()
    page.locator("tr[data-id='1']").wait_for()


def test_columns_are_added_at_will(page: Page) -> None:
    page.locator("tr[data-id='1']").wait_for()
    page.get_by_role("button", name="Columns").click()
    page.get_by_label("Find a column").fill("net.units")
    page.get_by_role("checkbox", name="net.units").check()
    page.get_by_role("columnheader", name="net.units").wait_for()
    until_address(page, "net.units")
    page.reload()
    page.get_by_role("columnheader", name="net.units").wait_for()


def test_keys_select_rows_and_compare_their_best_trials(page: Page) -> None:
    page.locator("tr[data-id='1']").wait_for()
    for key in ("j", "x", "j", "j", "x"):
        page.keyboard.press(key)
    page.get_by_text("2 selected").wait_for()
    page.keyboard.press("c")
    page.wait_for_url("**/compare?trials=*")
    page.get_by_role("heading", name="Compare 2 trials").wait_for()


def test_the_help_names_the_keys(page: Page) -> None:
    page.locator("tr[data-id='1']").wait_for()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    dialog.get_by_text("Compare the selection").wait_for()
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")


def test_enter_opens_the_row(page: Page) -> None:
    page.locator("tr[data-id='9']").wait_for()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/experiments/9")


def test_the_table_is_saved_as_csv(page: Page) -> None:
    page.locator("tr[data-id='1']").wait_for()
    with page.expect_download() as saved:
        page.get_by_role("link", name="CSV").click()
    text = saved.value.path().read_text()
    assert "digits-adaptive" in text


def test_the_theme_is_switched_and_kept(page: Page) -> None:
    page.locator("tr[data-id='1']").wait_for()
    assert page.locator("html").get_attribute("data-theme") == "light"
    page.get_by_role("button", name="Light or dark theme").click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.reload()
    page.locator("tr[data-id='1']").wait_for()
    assert page.locator("html").get_attribute("data-theme") == "dark"
