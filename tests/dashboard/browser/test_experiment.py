"""One experiment: its curves and what its search found."""

from __future__ import annotations

from tests.dashboard.browser.conftest import Page, until_address
from tests.support.waiting import eventually


def middle(page: Page, selector: str = ".plot") -> tuple[float, float, float, float]:
    box = page.locator(selector).first.bounding_box()
    return box["x"], box["y"], box["width"], box["height"]


def test_the_overview_names_the_best_trial_and_how_to_load_it(page: Page) -> None:
    page.goto("/experiments/1")
    page.get_by_role("heading", name="digits-adaptive").wait_for()
    best = page.get_by_role("region", name="Best trial")
    best.get_by_role("link", name="Trial 13").wait_for()
    assert "load_trial_from_checkpoint_path" in best.inner_text()


def test_all_curves_are_drawn_and_the_hovered_one_is_named(page: Page) -> None:
    page.goto("/experiments/1/curves")
    page.locator(".legend li").nth(15).wait_for()
    assert page.locator(".chart-count").inner_text() == "85 points"
    x, y, width, height = middle(page)
    # the best curve ends at the lower right
    page.mouse.move(x + width - 18, y + height - 62)
    tip = page.locator(".plot-tip")
    tip.wait_for()
    assert "Trial 13" in tip.inner_text()
    assert "net.units" in tip.inner_text()
    page.mouse.click(x + width - 18, y + height - 62)
    page.wait_for_url("**/trials/13")


def test_zoom_is_in_the_address_and_can_be_undone(page: Page) -> None:
    page.goto("/experiments/1/curves")
    page.locator(".legend li").nth(15).wait_for()
    x, y, width, height = middle(page)
    page.mouse.move(x + width * 0.5, y + height / 2)
    page.mouse.down()
    page.mouse.move(x + width * 0.7, y + height / 2 + 4, steps=4)
    page.mouse.up()
    until_address(page, "from=", "to=")
    page.get_by_role("button", name="Whole range").click()
    page.wait_for_function("() => !location.search.includes('from=')")


def test_the_switches_of_curves_are_in_the_address(page: Page) -> None:
    page.goto("/experiments/1/curves?smooth=0.6&logy=1")
    page.locator(".legend li").nth(15).wait_for()
    assert page.get_by_role("button", name="Log y").get_attribute("aria-pressed") == "true"
    assert page.get_by_label("Smoothing").input_value() == "0.6"
    page.get_by_role("button", name="Best so far").click()
    page.locator(".legend").get_by_text("Best so far").wait_for()
    page.get_by_label("Over").select_option("relative")
    until_address(page, "x=relative")


def test_keys_move_the_cursor_of_a_chart(page: Page) -> None:
    page.goto("/experiments/1/curves")
    page.locator(".legend li").nth(15).wait_for()
    page.locator(".plot-canvas").focus()
    page.keyboard.press("ArrowRight")
    page.locator(".plot-tip").get_by_text("Trial 13").wait_for()
    page.keyboard.press("ArrowDown")
    page.locator(".plot-tip").get_by_text("Trial 4").wait_for()


def test_a_chart_is_saved_as_a_picture(page: Page) -> None:
    page.goto("/experiments/1/curves")
    page.locator(".legend li").nth(15).wait_for()
    with page.expect_download() as saved:
        page.get_by_role("button", name="as PNG").click()
    assert saved.value.path().read_bytes().startswith(b"\x89PNG")
    assert saved.value.suggested_filename == "validation_loss.png"


def test_brushing_an_axis_filters_the_table_below(page: Page) -> None:
    page.goto("/experiments/1/search")
    page.get_by_text("16 trials", exact=True).last.wait_for()
    x, y, width, height = middle(page, ".parallel")
    page.mouse.move(x + 64, y + 60)
    page.mouse.down()
    page.mouse.move(x + 64, y + height / 2, steps=5)
    page.mouse.up()
    page.get_by_text("of 16 trials").wait_for()
    kept = page.locator("tbody tr[data-id]").count()
    assert 0 < kept < 16
    page.reload()
    page.get_by_text(f"{kept} of 16 trials").wait_for()
    page.get_by_role("button", name="Clear").click()
    eventually(lambda: page.locator("tbody tr[data-id]").count() == 16, "all trials again")


def test_the_rungs_say_who_was_stopped_and_why(page: Page) -> None:
    page.goto("/experiments/1/search?view=rungs")
    page.get_by_role("region", name="Decisions").first.wait_for()
    marks = page.locator(".mark[data-outcome=stopped]")
    assert marks.count() > 1
    assert page.get_by_role("region", name="Decisions").first.get_by_text("stopped").count() > 0


def test_importance_scatter_and_heat_map_are_shown(page: Page) -> None:
    page.goto("/experiments/1/search?view=scatter")
    page.get_by_role("img", name="Scatter of trials").wait_for()
    page.get_by_role("button", name="Heat map").click()
    page.get_by_role("img", name="Best value by pairs").wait_for()
    page.get_by_role("button", name="Importance").click()
    page.get_by_role("progressbar", name="Importance of lr").wait_for()


def test_trials_are_sorted_by_a_hyperparameter(page: Page) -> None:
    page.goto("/experiments/1/trials")
    page.locator("tr[data-id='16']").wait_for()
    page.get_by_role("button", name="net.units").click()
    eventually(
        lambda: page.locator("tbody tr[data-id]").first.get_attribute("data-id") == "1",
        "most units first",
    )


def test_two_configurations_are_compared_line_by_line(page: Page) -> None:
    page.goto("/experiments/1/config")
    page.get_by_label("Difference to experiment").fill("2")
    page.get_by_role("button", name="Show").click()
    page.locator(".diff .add").first.wait_for()
    until_address(page, "other=2")


def test_an_experiment_that_is_not_there_is_explained(page: Page) -> None:
    page.goto("/experiments/999")
    page.get_by_role("alert").get_by_text("999").wait_for()
    page.faults.clear()  # the browser notes every 404 on its console
