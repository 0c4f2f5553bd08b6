"""One experiment: its curves and what its search found."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from tests.dashboard.browser.conftest import Page, until_address
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


def middle(page: Page, selector: str = ".plot") -> tuple[float, float, float, float]:
    box = page.locator(selector).first.bounding_box()
    return box["x"], box["y"], box["width"], box["height"]


def test_the_overview_names_the_best_trial_and_how_to_load_it(page: Page) -> None:
    page.goto("/experiments/1")
    page.get_by_role("heading", name="digits-adaptive").wait_for()
    best = page.get_by_role("region", name="Best trial")
    best.get_by_role("link", name="Trial 13").wait_for()
    assert "load_trial_from_checkpoint_path" in best.inner_text()


def test_a_metric_that_nobody_reports_is_told_with_the_reported_ones(page: Page) -> None:
    def without_best(route: Any) -> None:
        response = route.fetch()
        content = response.json()
        content["searcher"]["metric"] = "val_loss"
        route.fulfill(response=response, json={**content, "best": None})

    page.route("**/api/experiments/1", without_best)
    page.goto("/experiments/1")
    best = page.get_by_role("region", name="Best trial")
    best.get_by_text("No validation has val_loss").wait_for()
    assert "Reported instead: " in best.inner_text()
    assert "accuracy" in best.inner_text()


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
    decisions = page.get_by_role("region", name="Decisions").first
    assert decisions.get_by_text("was stopped at").first.inner_text().startswith("Trial ")
    assert page.get_by_text("came here").count() > 0


def test_axes_are_moved_by_keys_and_by_dragging(page: Page) -> None:
    def order() -> list[str]:
        return list(page.locator(".axis-title").all_inner_texts())

    page.goto("/experiments/1/search")
    page.get_by_role("button", name="net.units").first.wait_for()
    first, second, *rest = order()
    page.locator(".axis-title").first.focus()
    page.keyboard.press("ArrowRight")
    assert order() == [second, first, *rest]
    page.keyboard.press("ArrowRight")  # the focus went along
    assert order() == [second, rest[0], first, *rest[1:]]
    page.locator(".axis-title").last.drag_to(page.locator(".axis-title").first)
    moved = [rest[-1], second, rest[0], first, *rest[1:-1]]
    assert order() == moved
    page.locator(".axis-title").first.click()
    until_address(page, "axes=metric", "flip=metric")
    page.reload()
    page.locator(".axis-title").first.wait_for()
    assert order() == [f"{moved[0]} ↓", *moved[1:]]


def test_every_view_of_a_search_is_saved(page: Page) -> None:
    page.goto("/experiments/1/search")
    for view, chart in {
        "Parallel coordinates": "parallel coordinates",
        "Scatter": "scatter",
        "Contour": "contour",
        "Heat map": "heat map",
    }.items():
        page.get_by_role("button", name=view, exact=True).click()
        with page.expect_download() as saved:
            page.get_by_role("button", name=f"Save {chart} as PNG").click()
        assert saved.value.path().read_bytes().startswith(b"\x89PNG")
    page.get_by_role("button", name="Importance").click()
    page.get_by_role("progressbar", name="Importance of lr").wait_for()
    with page.expect_download() as saved:
        page.get_by_role("button", name="as CSV").click()
    lines = saved.value.path().read_text().splitlines()
    assert lines[0] == "hyperparameter,importance"
    assert len(lines) == 5


def test_a_dot_between_contour_lines_names_its_trial(page: Page) -> None:
    page.goto("/experiments/1/search?view=contour&sx=lr&sy=net.units")
    page.get_by_text("Dots are 16 trials").wait_for()
    canvas = page.get_by_role("img", name="Contour lines of trials")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    page.locator(".plot-tip").get_by_text("Trial 1", exact=True).wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url("**/trials/1")


# A cone has circles as contour lines; where only one corner of a saddle's cells is high, two lines.
CONTOURS = """async () => {
    const {surface, contourLine} = await import("/static/js/chart/field.js");
    const size = 41;
    const values = Float64Array.from({length: size * size}, (_, at) =>
        Math.hypot((at % size) / (size - 1) - 0.5, Math.floor(at / size) / (size - 1) - 0.5));
    const whole = values.map(() => 1);
    const circle = contourLine({size, values, trust: whole}, 0.3);
    const saddle = contourLine(
        {size: 2, values: Float64Array.of(1, 0, 0, 1), trust: Float64Array.of(1, 1, 1, 1)}, 0.6);
    const corner = [{x: 0, y: 0, value: 1}, {x: 0, y: 0.1, value: 3}, {x: 0.1, y: 0, value: 2}];
    const {values: found, trust, size: n} = surface(corner);
    return {circle, saddle, at: [found[0], found[n - 1]], trust: [trust[0], trust[n * n - 1]]};
}"""


def test_contour_lines_lie_where_the_surface_has_their_value(page: Page) -> None:
    page.goto("/queue")
    found = page.evaluate(CONTOURS)
    ends = [end for line in found["circle"] for end in (line[:2], line[2:])]
    assert len(ends) > 100
    assert max(abs(math.dist(end, (0.5, 0.5)) - 0.3) for end in ends) < 0.002
    met = Counter((round(x, 9), round(y, 9)) for x, y in ends)
    assert set(met.values()) == {2}  # each segment goes on in another: the line is closed
    assert len(found["saddle"]) == 2
    near, far = found["at"]
    assert near == pytest.approx(1, abs=1e-3)  # it passes through what was measured
    assert 1 < far < 3  # and never leaves the range of what was measured
    assert found["trust"] == [1, 0]


def test_trials_are_sorted_by_a_hyperparameter(page: Page) -> None:
    page.goto("/experiments/1/trials")
    page.locator("tr[data-id='16']").wait_for()
    page.get_by_role("button", name="net.units").click()
    eventually(
        lambda: page.locator("tbody tr[data-id]").first.get_attribute("data-id") == "1",
        "most units first",
    )


def test_a_few_lost_trials_do_not_flatten_the_landscape(page: Page) -> None:
    page.goto("/queue")
    cut = """async (values) => {
        const {makeContour} = await import("/static/js/chart/contour.js");
        const places = values.map((_, at) => at);
        const side = {values: places, kind: "linear", low: 0, high: values.length - 1};
        const {cut, marks} = makeContour({
            x: side, y: side, values, kind: "linear", smallerIsBetter: true});
        return [cut, marks.length];
    }"""
    even = [1 + n / 10 for n in range(12)]
    assert page.evaluate(cut, even)[0] is None
    edge, lines = page.evaluate(cut, [*even, 1e6])
    assert edge == max(even)  # worse ones share its tint
    assert lines > 3


def test_two_configurations_are_compared_line_by_line(page: Page) -> None:
    page.goto("/experiments/1/config")
    page.get_by_label("Compare with experiment").fill("2")
    page.get_by_role("button", name="Show").click()
    page.locator(".diff .add").first.wait_for()
    until_address(page, "other=2")


def test_the_logs_of_all_trials_are_searched_for_text_alone(page: Page) -> None:
    page.goto("/experiments/1/logs?search=batch&regex=1")  # as a trial's own log may have it
    page.locator(".log-line").first.wait_for()
    assert page.get_by_role("alert").count() == 0
    assert page.get_by_title("Search with a regular expression").count() == 0


def test_lines_of_two_runs_with_one_number_both_stay(page: Page) -> None:
    page.goto("/queue")
    shown = page.evaluate("""async () => {
        const {LogView} = await import("/static/js/widgets/log_view.js");
        const view = new LogView({older: () => {}, href: () => "", many: true});
        const line = (run) => ({line: 1, trial_id: 1, source: `run ${run}`, text: `of run ${run}`,
            time: null, level: null, rank: null});
        view.set([line(1), line(2)]);
        view.set([line(1), line(2)]); // as a change of the experiment does
        return [...view.node.querySelectorAll("code")].map((one) => one.textContent);
    }""")
    assert shown == ["of run 1", "of run 2"]


def test_an_experiment_that_is_not_there_is_explained(page: Page) -> None:
    page.goto("/experiments/999")
    page.get_by_role("alert").get_by_text("999").wait_for()
    page.faults.clear()  # the browser notes every 404 on its console


def test_curves_are_grouped_by_a_hyperparameter_as_means_with_bands(page: Page) -> None:
    page.goto("/experiments/1/curves")
    page.locator(".legend li").nth(15).wait_for()
    assert page.get_by_role("table", name="Groups of trials").count() == 0
    choice = page.get_by_label("Group by")
    assert choice.input_value() == "trial"
    choice.select_option("net.activation")
    until_address(page, "by=net.activation")
    page.get_by_text("Lines are means over trials").wait_for()
    rows = page.get_by_role("table", name="Groups of trials").locator("tbody tr")
    names = [text.split("\t")[0] for text in rows.all_inner_texts()]
    assert 1 < len(names) < 16
    assert sorted(names) == sorted(page.locator(".legend li .cut").all_inner_texts())
    page.keyboard.press("Escape")
    page.locator(".plot-canvas").focus()
    page.keyboard.press("ArrowRight")
    page.locator(".plot-tip").get_by_text("One deviation").wait_for()
