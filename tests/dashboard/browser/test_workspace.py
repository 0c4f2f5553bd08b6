"""What one sees at a glance: the best of each metric, states, errors, where to begin."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.dashboard.make_store import unmanaged
from benchmarks.dashboard.scene import a_scene
from determined.platform.homes.home import Home
from determined.platform.supervisor import presence
from determined.store import Writer
from tests.dashboard.browser.conftest import Page, Served, opened, served, until_address
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


def texts(page: Page, selector: str) -> list[str]:
    return list(page.locator(selector).all_inner_texts())


def test_the_best_names_its_metric_and_keeps_metrics_apart(page: Page) -> None:
    page.goto("/?sort=best&order=desc")
    page.locator("tr[data-id='1'] .best small").wait_for()
    metrics = texts(page, "tbody .best small")
    assert metrics == sorted(metrics)
    assert len(set(metrics)) > 1
    page.goto(f"/?metric={metrics[0]}")
    page.get_by_role(
        "columnheader", name=f"Best {metrics[0]}"
    ).wait_for()  # said once, in the title
    assert page.locator("tbody .best small").count() == 0


def test_trials_differ_in_word_and_colour_by_how_they_ended(page: Page) -> None:
    page.goto("/experiments/1/trials")
    page.locator(".state[data-state=STOPPED]").first.wait_for()
    words, colours = set(), set()
    for state in ("COMPLETED", "STOPPED", "ERROR"):
        badge = page.locator(f"tbody .state[data-state={state}]").first
        words.add(badge.inner_text())
        colours.add(badge.evaluate("it => getComputedStyle(it).color"))
    assert words == {"Completed", "Stopped", "Error"}
    assert len(colours) == 3
    page.get_by_label("State").select_option("STOPPED")
    until_address(page, "state=STOPPED")
    eventually(
        lambda: set(texts(page, "tbody .state")) == {"Stopped"}, "only trials that were stopped"
    )


def test_a_failed_experiment_opens_with_its_traceback(page: Page) -> None:
    page.goto("/experiments/5")
    first = page.locator("main .card").first
    first.locator(".traceback").wait_for()
    assert "Failed" in first.locator("h2").inner_text()
    words = first.locator(".error-words").inner_text()
    assert first.locator(".traceback").inner_text().rstrip().endswith(words)
    first.get_by_role("link", name="Trial").click()
    page.wait_for_url("**/trials/*")


def test_a_search_says_whether_it_minimizes(page: Page) -> None:
    page.goto("/experiments/1")
    page.get_by_text("adaptive_asha, minimize validation_loss").wait_for()
    page.goto("/experiments/2")
    page.get_by_text("grid, maximize accuracy").wait_for()


def test_an_address_without_a_page_says_where_to_go(page: Page) -> None:
    for address, words in (
        ("/no/such/place", "There is nothing at this address."),
        ("/experiments/9999", "There is no experiment 9999."),
        ("/trials/9999/logs", "There is no trial 9999."),
    ):
        page.goto(address)
        page.get_by_text(words).wait_for()
        page.get_by_role("link", name="All experiments", exact=True).click()
        page.locator("tr[data-id='1']").wait_for()
    assert all("404" in fault for fault in page.faults)  # as the browser reports them
    page.faults.clear()


def test_an_empty_home_says_how_to_begin(browser: Any, tmp_path: Path) -> None:
    Writer(tmp_path / "home").close()
    with served(tmp_path / "home") as empty, opened(browser, empty) as page:
        page.goto("/")
        page.get_by_text("No experiments yet.").wait_for()
        for command in ("python -m determined.demo", "python train.py", "det experiment create"):
            assert page.locator(".begin code", has_text=command).count() == 1


def test_narrow_screens_keep_the_best_and_wide_ones_are_used(browser: Any, made: Served) -> None:
    with opened(browser, made, viewport={"width": 420, "height": 900}) as page:
        page.goto("/")
        value = page.locator("tr[data-id='1'] .best")
        value.wait_for()
        box = value.bounding_box()
        assert box["x"] + box["width"] < 420
        badge = page.locator("tr[data-id='1'] .state")
        assert badge.evaluate("it => it.textContent") == "Completed"  # for those who cannot see it
    with opened(browser, made, viewport={"width": 2400, "height": 1200}) as page:
        page.goto("/experiments/1/trials")
        page.locator("tr[data-id]").first.wait_for()
        assert page.locator("section.card").bounding_box()["width"] > 2300


def test_all_trials_of_a_project_are_one_table_with_its_filters_in_the_address(page: Page) -> None:
    page.goto("/trials")
    page.get_by_text("trials", exact=False).first.wait_for()
    page.get_by_label("Conditions on hyperparameters").fill("lr<0.01; net.activation=relu")
    until_address(page, "hparams=lr")
    page.get_by_label("State").select_option("COMPLETED")
    page.get_by_label("Project").select_option(label="vision / digits")
    until_address(page, "state=COMPLETED", "project=")
    page.get_by_role("button", name="Best", exact=True).click()
    until_address(page, "sort=best", "order=desc")
    eventually(lambda: set(texts(page, "tbody .state")) == {"Completed"}, "the state")
    kept = texts(page, "tbody tr[data-id] td:nth-child(2)")
    assert kept
    page.reload()
    eventually(lambda: texts(page, "tbody tr[data-id] td:nth-child(2)") == kept, "the same rows")
    names = set(texts(page, "tbody .name"))
    assert names <= {"digits-adaptive", "digits-grid", "digits-random-running"}
    page.locator("tbody .pick input").first.check()
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/compare?trials=*")


def test_a_comparison_begins_with_curves_and_marks_the_best(page: Page) -> None:
    page.goto("/compare?trials=1,3,13")
    page.locator("table.differs .best-mark").first.wait_for()
    grid, table = (page.locator(one).bounding_box() for one in (".chart-grid", "table.differs"))
    assert grid["y"] < table["y"]
    assert texts(page, ".differs .section")[:2] == ["Result", "Hyperparameters"]
    row = page.locator(".differs tr", has_text="best validation_loss")
    values = [float(one.replace("★", "")) for one in row.locator("td").all_inner_texts()]
    assert float(row.locator(".best-mark").inner_text().replace("★", "")) == min(values)
    for text in texts(page, ".differs tbody tr:not(.section)"):
        assert len(set(text.split("\t")[1:])) > 1, f"{text} does not differ"
    assert (
        page.locator(".differs th", has_text="searcher.").count() == 0
    )  # one search, no internals
    heads = page.eval_on_selector_all(
        ".differs thead th", "all => all.map(one => Math.round(one.getBoundingClientRect().width))"
    )
    assert max(heads[:-1]) - min(heads[:-1]) <= 1  # the last one also has the card's margin


def test_charts_have_no_axes_before_they_have_data(page: Page) -> None:
    page.add_init_script("""
        const real = window.fetch;
        const gate = new Promise(open => { window.letCurvesCome = open; });
        window.fetch = async (url, ...more) => {
            if (String(url).includes("/api/series")) { window.areAsked = true; await gate; }
            return real(url, ...more);
        };
    """)
    page.goto("/compare?trials=1,3")
    page.wait_for_function("() => window.areAsked")
    assert page.locator(".plot").count() > 0
    assert page.locator(".plot[data-ready]").count() == 0
    page.evaluate("() => window.letCurvesCome()")
    page.locator(".plot[data-ready]").first.wait_for()


def test_every_metric_of_an_experiment_has_its_chart(page: Page) -> None:
    page.goto("/experiments/1/metrics?top=5")
    page.locator(".chart-count:not(:empty)").first.wait_for()
    titles = texts(page, ".chart h2")
    assert titles[0] == "validation_loss"  # what the search is after
    assert len(titles) == len(set(titles)) > 2
    assert page.locator(".legend-row li").count() == 5
    page.get_by_label("Find a metric").fill("accuracy")
    eventually(lambda: all("accuracy" in one for one in texts(page, ".chart h2")), "those found")
    until_address(page, "find=accuracy")


def test_charts_of_a_search_begin_with_what_matters_most(page: Page) -> None:
    page.goto("/experiments/1/search?view=importance")
    page.locator(".importance").wait_for()
    first, second = texts(page, ".importance .mono")[:2]
    for view in ("scatter", "contour", "heat"):
        page.goto(f"/experiments/1/search?view={view}")
        page.locator(".plot[data-ready]").wait_for()
        assert page.get_by_label("x", exact=True).input_value() == first
        expected = "metric" if view == "scatter" else second
        assert page.get_by_label("y", exact=True).input_value() == expected
    page.goto("/experiments/1/search?view=contour&sx=net.activation&sy=lr")
    page.get_by_text("Between categories nothing is interpolated.").wait_for()
    page.goto("/experiments/1/search")
    page.locator(".axis-title").first.wait_for()
    assert texts(page, ".axis-title")[:2] == [first, second]
    # The legend at the right: the strongest colour at its top, the weakest at its foot.
    columns = """() => {
        const canvas = document.querySelector(".parallel canvas");
        const dense = canvas.width / canvas.clientWidth;
        const at = y => [...canvas.getContext("2d").getImageData(
            (canvas.clientWidth - 70) * dense, y * dense, 1, 1).data];
        return [at(54), at(208)];
    }"""
    eventually(lambda: page.evaluate(columns)[0][3] == 255, "the legend to be drawn")
    best, worst = page.evaluate(columns)
    assert sum(best[:3]) < sum(worst[:3])  # dark on a light ground


def test_a_recorded_script_can_be_renamed(browser: Any, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with a_scene(home.path, time.time() - 3600) as scene:
        unmanaged(scene)
    try:
        with served(home.path) as shown, opened(browser, shown) as page:
            page.goto("/experiments/1")
            page.get_by_role("button", name="Edit name, description and labels").click()
            page.get_by_label("Name", exact=True).fill("baseline by hand")
            page.get_by_role("button", name="Save", exact=True).click()
            page.get_by_role("heading", name="baseline by hand").wait_for()
            page.reload()
            page.get_by_role("heading", name="baseline by hand").wait_for()
    finally:
        presence.stop(home)
