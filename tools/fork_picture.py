"""Take the picture of a fork in docs/images/fork.png: the story of docs/howto/fork.md, really run.

python -m tools.fork_picture
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.dashboard.browser import ARGUMENTS, find_browser
from determined.platform.homes.home import Home
from determined.platform.supervisor import presence
from tests.dashboard.browser.conftest import opened, served
from tests.docs.pages import ROOT, blocks
from tools.dashboard_pictures import save

_COMMANDS = (
    ("experiment", "create", "jump.yaml", ".", "--follow-first-trial"),
    ("trial", "fork", "1", "--at", "7900", "--set", "learning_rate=0.001", "--follow"),
)
_PAGE = "/compare?trials=1,2&from=7600&to=8200"


def _trained(folder: Path) -> Path:
    """Run the trial and its fork; return their home."""
    code, home = folder / "code", folder / "home"
    code.mkdir()
    for block in blocks(ROOT / "docs" / "howto" / "fork.md"):
        if block.title in ("jump.py", "jump.yaml"):
            (code / block.title).write_text(block.code)
    for words in _COMMANDS:
        command = [sys.executable, "-m", "determined.cli", *words]
        environment = {**os.environ, "DET_HOME": str(home), "OMP_NUM_THREADS": "1"}
        subprocess.run(command, env=environment, cwd=code, check=True)
    return home


def main() -> None:
    """Train, open the page that draws both, and take the picture."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        home = _trained(Path(name))
        browser = driver.chromium.launch(executable_path=find_browser(), args=list(ARGUMENTS))
        size = {"width": 1280, "height": 480}
        with served(home) as dashboard, opened(browser, dashboard, viewport=size) as page:
            page.goto(_PAGE)
            page.locator(".chart-count:not(:empty)").first.wait_for()
            page.locator(".stream[data-stream=live]").wait_for()
            page.evaluate(
                "() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
            )
            save(page, "fork")
        browser.close()
        presence.stop(Home(home))


if __name__ == "__main__":
    main()
