"""Small experiments run while one looks: what is shown moves, and verbs show their effect."""

from __future__ import annotations

import itertools
import re
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from determined.dashboard.server.token import FILE_NAME
from tests.dashboard.browser.conftest import Page, Served, opened, served
from tests.support.lab import Lab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

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


class Run:
    """An experiment, and how far it may go."""

    numbers = itertools.count()

    def __init__(self, lab: Lab) -> None:
        self._go = lab.folder / f"go-{next(self.numbers)}"
        self.allow(2)
        self.id = lab.create(f"GO = {str(self._go)!r}\n{STEP_BY_STEP}", name="step by step")

    def allow(self, batches: int) -> None:
        draft = self._go.with_suffix(".draft")
        draft.write_text(str(batches))
        draft.replace(self._go)


class Show:
    """A page that shows what happens in a lab."""

    def __init__(self, lab: Lab, dashboard: Served, page: Page) -> None:
        self.lab = lab
        self.dashboard = dashboard
        self.page = page

    def begin(self) -> Run:
        """Start an experiment, and see it in the table after two batches."""
        run = Run(self.lab)
        self.page.goto("/")
        self.page.evaluate("window.stayed = true")
        self.progress(run, 20)
        return run

    def row(self, run: Run) -> Any:
        return self.page.locator(f"tr[data-id='{run.id}']")

    def progress(self, run: Run, percent: int) -> None:
        self.row(run).locator(f".progress[aria-valuenow='{percent}']").wait_for()

    def state(self, *states: str) -> None:
        head = ", ".join(f".head .state[data-state={state}]" for state in states)
        self.page.locator(head).first.wait_for()

    def says(self, text: str | re.Pattern[str]) -> None:
        self.page.locator("#toasts").get_by_text(text).wait_for()

    def click(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    def confirm(self, name: str) -> None:
        self.page.get_by_role("dialog").get_by_role("button", name=name, exact=True).click()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Served]]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DET_SUPERVISOR_IDLE_SECONDS", "60")
        environment.setenv("DET_SLOTS", "2")
        lab = Lab(tmp_path_factory.mktemp("live"))
        with served(lab.home.path) as dashboard:
            yield lab, dashboard
        lab.close()


@pytest.fixture
def show(stage: tuple[Lab, Served], browser: Any) -> Iterator[Show]:
    lab, dashboard = stage
    with opened(browser, dashboard) as page:
        yield Show(lab, dashboard, page)


def test_what_happens_is_shown_without_a_reload(show: Show) -> None:
    page, run = show.page, show.begin()
    run.allow(4)
    show.progress(run, 40)

    page.get_by_role("link", name="step by step").click()
    page.get_by_role("link", name="Curves").click()
    page.locator(".chart-count").get_by_text("4 points").wait_for()
    run.allow(5)
    page.locator(".chart-count").get_by_text("5 points").wait_for()

    page.get_by_role("link", name="Overview").click()
    page.get_by_role("link", name="Trial 1").click()
    page.get_by_role("link", name="Metrics").wait_for()  # the experiment has a link Logs, too
    page.get_by_role("link", name="Logs").click()
    page.get_by_text("now at batch 5 <i>of</i> 10").wait_for()
    run.allow(6)
    page.get_by_text("now at batch 6 <i>of</i> 10").wait_for()

    page.get_by_role("link", name="Metrics").click()
    chart = page.get_by_role("region", name="validation ratio")
    chart.get_by_text("× NaN or infinite: validation ratio.").wait_for()

    page.get_by_role("link", name="step by step").click()
    show.click("Pause")
    show.state("PAUSED")
    show.says("at batch 6.")
    assert show.lab.experiment(run.id).state == "PAUSED"

    page.get_by_role("link", name="Notes").click()
    page.get_by_role("textbox", name="Notes").fill("Too slow at first, <b>fine</b> later.")
    show.click("Save")
    show.says("Saved.")
    assert show.lab.experiment(run.id).notes == "Too slow at first, <b>fine</b> later."

    page.get_by_role("link", name="Overview").click()
    show.click("Activate")
    show.state("RUNNING", "QUEUED")
    run.allow(7)
    page.locator(".chart-count").get_by_text("7 points").wait_for()

    show.click("Cancel")
    show.confirm("Cancel")
    show.state("CANCELED")
    show.says(f"Canceled: experiment {run.id}")
    assert page.evaluate("window.stayed")


def test_the_page_says_who_is_missing_and_comes_back(show: Show) -> None:
    page, run = show.page, show.begin()
    show.lab.kill_supervisor()
    page.locator("#banner").get_by_text("supervisor").wait_for()
    show.lab.service.wake_if_needed()
    page.wait_for_function("() => document.getElementById('banner').textContent === ''")

    show.dashboard.stop()
    page.locator(".stream[data-stream=lost]").wait_for()
    page.locator("#banner").get_by_text("not responding").wait_for()
    run.allow(3)
    show.dashboard.start()
    page.locator(".stream[data-stream=live]").wait_for()
    show.progress(run, 30)
    assert page.evaluate("window.stayed")
    page.faults.clear()  # the browser notes refused connections on its console

    page.keyboard.press("j")
    page.keyboard.press("p")
    show.row(run).locator(".state[data-state=PAUSED]").wait_for()
    show.says(f"Paused: experiment {run.id} at batch 3.")

    page.goto(f"/experiments/{run.id}")
    show.click("Kill")
    show.confirm("Kill")
    show.state("CANCELED")


def test_verbs_on_many_tell_what_became_of_each(show: Show) -> None:
    page, runs = show.page, [show.begin(), show.begin()]
    lab, (one, two) = show.lab, [run.id for run in runs]
    both = (f"experiment {one}", f"experiment {two}")

    def select_both() -> None:
        for run in runs:
            page.get_by_role("checkbox", name=f"Select row {run.id}", exact=True).check()
        page.get_by_text("2 selected").wait_for()

    select_both()
    show.click("Pause 2")
    show.says(f"Paused: {both[0]} at batch 2. Paused: {both[1]} at batch 2.")
    assert {lab.experiment(run.id).state for run in runs} == {"PAUSED"}
    assert not lab.service.reader.unfinished_runs()

    show.click("Activate 2")
    show.says(re.compile(rf"(Running|Queued): {both[0]}. (Running|Queued): {both[1]}."))
    assert {lab.experiment(run.id).state for run in runs} == {"ACTIVE"}

    show.click("Label")
    page.get_by_role("dialog").get_by_label("Label").fill("keep <i>")
    show.confirm("Add")
    show.says("Labelled 2 experiments “keep <i>”.")
    assert [lab.experiment(run.id).labels for run in runs] == [["keep <i>"]] * 2

    show.click("Kill 2")
    show.confirm("Kill")
    show.says(f"Canceled: {both[0]} at batch 2. Canceled: {both[1]} at batch 2.")
    assert not lab.service.reader.unfinished_runs()

    show.click("Archive 2")
    show.says(f"Archived: {both[0]}. Archived: {both[1]}.")
    show.row(runs[0]).wait_for(state="detached")

    page.get_by_role("button", name="Archived", exact=True).click()
    select_both()
    page.get_by_role("button", name="Unarchive 2").wait_for()
    show.click("Delete 2")
    show.confirm("Delete")
    show.says(f"Deleted: {both[0]}. Deleted: {both[1]}.")
    show.row(runs[1]).wait_for(state="detached")
    assert lab.service.reader.experiment(one) is None
    page.faults.clear()  # the browser notes on its console that they are not found any more


def test_a_checkpoint_becomes_a_version_of_a_model(show: Show) -> None:
    page, run = show.page, show.begin()
    show.lab.service.pause(run.id)  # saves a checkpoint
    show.lab.until(lambda: show.lab.checkpoints(run.id))
    show.lab.service.kill(run.id)
    (checkpoint,) = show.lab.checkpoints(run.id)

    page.goto(f"/experiments/{run.id}/checkpoints")
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download").click()
    assert saved.value.suggested_filename == f"{checkpoint.uuid}.tar"
    show.click("Register")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name of the new model").fill("net <b>")
    show.confirm("Register")
    show.says("Registered: version 1 of net <b>.")
    page.get_by_role("link", name="net <b> v1").wait_for()
    page.get_by_role("link", name=checkpoint.uuid[:8]).click()
    show.confirm("Register …")
    dialog.get_by_label("Model", exact=True).select_option("net <b>")
    show.confirm("Register")
    show.says("Registered: version 2 of net <b>.")

    page.get_by_role("link", name="net <b> v1").click()
    page.get_by_role("heading", name="net <b>").wait_for()
    show.click("Edit description and labels")
    dialog.get_by_label("Labels").fill("good, small")
    show.confirm("Save")
    page.locator(".chip").get_by_text("small").wait_for()
    show.click("Edit version 1")
    dialog.get_by_label("Comment").fill("the <first>")
    show.confirm("Save")
    page.get_by_text("the <first>").wait_for()
    page.get_by_role("region", name="Version 2").get_by_role("button", name="Delete").click()
    show.confirm("Delete")
    page.get_by_text("1 version", exact=True).wait_for()
    page.get_by_role("button", name="Archive", exact=True).click()
    page.get_by_role("button", name="Unarchive", exact=True).wait_for()
    page.locator(".head").get_by_role("button", name="Delete").click()
    show.confirm("Delete")
    page.get_by_text("No models registered yet.").wait_for()
    assert show.lab.service.reader.registry.models() == []


def test_a_browser_is_sent_on_to_a_name_that_no_other_server_has(browser: Any, show: Show) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(show.dashboard.entrance)
    page.wait_for_url(re.compile(r"http://det-\w{8}\.localhost:\d+/(?!\?)"))
    page.get_by_role("heading", name="Experiments").wait_for()
    assert context.cookies(show.dashboard.root) == []  # what other servers of 127.0.0.1 would get
    (cookie,) = context.cookies(page.url)
    assert cookie["httpOnly"]
    context.close()


def test_trials_open_in_tensorboard_which_ends_with_the_dashboard(show: Show) -> None:
    pytest.importorskip("tensorboard")
    page, run = show.page, show.begin()
    (trial,) = show.lab.trials(run.id)
    page.goto(f"/trials/{trial.id}")
    show.click("TensorBoard")
    link = page.get_by_role("dialog").get_by_role("link", name="Open tb-")
    url = link.get_attribute("href")
    assert url is not None
    with page.context.expect_page() as popup:
        link.click()
    board = popup.value
    board.wait_for_url(re.compile(r"http://tb-\w+\.localhost:\d+/[^?]*$"))  # the token is gone
    assert "TensorBoard" in board.title()
    assert [c["name"] for c in page.context.cookies(board.url)] == ["det_tensorboard"]
    board.close()
    page.get_by_role("dialog").get_by_text(f"det tensorboard start -t {trial.id}").wait_for()
    show.confirm("Close")
    show.click("TensorBoard")
    assert link.get_attribute("href") == url
    show.confirm("Close")
    show.lab.service.kill(run.id)

    show.dashboard.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("localhost", urlsplit(url).port), 60)
    (
        show.lab.home.path / FILE_NAME
    ).unlink()  # another token: this browser's cookie is no longer good
    show.dashboard.start()
    page.locator("#banner").get_by_text("Run `det dashboard`").wait_for()
    page.reload()
    page.get_by_text("Run det dashboard").wait_for()
    page.faults.clear()
