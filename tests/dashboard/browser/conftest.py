"""A real browser on a real server: one of each per module."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.dashboard.browser import ARGUMENTS, find_browser
from benchmarks.dashboard.make_store import make_small

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

Page = Any  # of playwright, which may be missing

DEADLINE_MS = 60_000


class Served:
    """A dashboard in its own process."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = 0
        self.start()

    def start(self) -> None:
        """Start it, on the port it had before if it had one."""
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "determined.cli", "dashboard"),
                *("--no-browser", "--port", str(self.port)),
            ],
            env={**os.environ, "DET_HOME": str(self.home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line
            if found := re.search(r"(http://\S+:(\d+))/\?token=\S+", line):
                self.entrance, self.root, self.port = found[0], found[1], int(found[2])
                return
        raise AssertionError(f"the dashboard did not start: {said}")

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)


@contextlib.contextmanager
def served(home: Path) -> Iterator[Served]:
    dashboard = Served(home)
    try:
        yield dashboard
    finally:
        dashboard.stop()


@pytest.fixture(scope="module")  # not longer: while it is open, no other event loop can run
def browser() -> Iterator[Any]:
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium here: install it, or name one in DET_BROWSER")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A dashboard of a made store: a bit of everything, nothing of it runs."""
    home = tmp_path_factory.mktemp("made") / "home"
    make_small(home)
    with served(home) as dashboard:
        yield dashboard


@contextlib.contextmanager
def opened(browser: Any, dashboard: Served, **options: Any) -> Iterator[Page]:
    """A page that has come in; fails at its end if anything went wrong inside."""
    options = {"viewport": {"width": 1400, "height": 900}, **options}
    with contextlib.closing(browser.new_context(base_url=dashboard.root, **options)) as context:
        context.set_default_timeout(DEADLINE_MS)
        page = context.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.extend([said.text] if said.type == "error" else []))
        page.faults = faults
        context.request.get(dashboard.entrance)  # leaves the cookie
        yield page
        assert faults == []


def until_address(page: Page, *parts: str) -> None:
    """Wait until the address holds these parts; the page may change it without loading anything."""
    holds = "parts => parts.every(part => location.href.includes(part))"
    page.wait_for_function(holds, arg=list(parts))


@pytest.fixture
def page(browser: Any, made: Served) -> Iterator[Page]:
    with opened(browser, made) as page:
        yield page
