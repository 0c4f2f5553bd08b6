"""A home in which every text means harm, in a real browser: on no page does any of it run."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.dashboard.browser.conftest import Page, Served, opened, served
from tests.faults.platform.hostile_home import make_hostile
from tests.support.faults import at_least

pytestmark = pytest.mark.slow

# Each would set a mark in the window, ask a question or call for a file if a page took it for more
# than text.
PAYLOADS = (
    "<img src=/x-injected onerror=window.injected=1>",
    "<svg/onload=window.injected=1>",
    "<script>window.injected=1</script>",
    "</script><script>window.injected=1</script>",
    "</textarea></title></style><iframe srcdoc='<script>parent.injected=1</script>'>",
    "\"' autofocus onfocus=window.injected=1 onmouseover=window.injected=1 x='",
    "javascript:window.injected=1",
    "[click](javascript:window.injected=1) ![x](javascript:window.injected=1)",
    "<a href='javascript:window.injected=1'>click</a>",
    "data:text/html,<script>opener.injected=1</script>",
    "${window.injected=1} {{constructor.constructor('window.injected=1')()}} `${alert(1)}`",
    "<style>*{background:url(/x-injected)}</style><link rel=stylesheet href=/x-injected>",
    "<base href=//127.0.0.1:9/><meta http-equiv=refresh content='0;url=/x-injected'>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.injected=1>",
    "__proto__ constructor toString \u202egnp.\u2066txt\u2069 \u0000\ufeff\u2028",
)
PAGES = [
    "/",
    *(f"/?search={name}" for name in ("%3Cimg%20src%3Dx%20onerror%3Dwindow.injected%3D1%3E",)),
    *(
        f"/experiments/{number}{tab}"
        for number in (1, 3)
        for tab in (
            "",
            "/trials",
            "/search",
            "/checkpoints",
            "/code",
            "/config",
            "/logs",
            "/events",
        )
    ),
    *(f"/experiments/1/{tab}" for tab in ("hparams", "notes", "%3Cscript%3E", "diff?other=2")),
    *(f"/trials/{number}{tab}" for number in (1, 5) for tab in ("", "/logs", "/checkpoints")),
    *(f"/trials/5/{tab}" for tab in ("config", "hparams", "system", "profiler", "javascript:1")),
    "/trials/5/logs?search=%3Csvg%2Fonload%3Dwindow.injected%3D1%3E",
    "/compare?trials=1,2,3",
    "/compare?trials=%3Cimg%20src%3Dx%20onerror%3Dwindow.injected%3D1%3E",
    "/models",
    "/queue",
    "/%3Cimg%20src%3Dx%20onerror%3Dwindow.injected%3D1%3E",
]

_WATCH = """
window.violations = [];
addEventListener("securitypolicyviolation", (event) => violations.push(event.violatedDirective));
"""
# What a page may not have, wherever it came from.
_MARKUP = """() => [...document.querySelectorAll("*")].flatMap((one) => [
    ...[...one.attributes].filter((a) => a.name.startsWith("on"))
        .map((a) => one.tagName + " " + a.name),
    ...(["IFRAME", "OBJECT", "EMBED", "BASE"].includes(one.tagName) ? [one.tagName] : []),
    ...["href", "src", "action", "formaction", "xlink:href"].filter((name) =>
        /^\\s*(javascript|data|vbscript):/i.test(one.getAttribute(name) ?? "")
        && one.tagName !== "LINK").map((name) => one.tagName + " " + name),
])"""


@pytest.fixture(scope="module", params=range(at_least(1, len(PAYLOADS)))[: len(PAYLOADS)])
def hostile(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A home with another payload in each place; in the long form, with each of them in all."""
    home = tmp_path_factory.mktemp("injection") / "home"
    make_hostile(home, PAYLOADS, request.param)
    _poison_tracebacks(home)
    with served(home) as dashboard:
        yield dashboard


def _poison_tracebacks(home: Path) -> None:
    for log in home.rglob("log"):
        with log.open("ab") as file:
            file.write(
                b'\nTraceback (most recent call last):\n  File "x.py", line 1, in <module>\n'
            )
            file.write(f"ValueError: {' '.join(PAYLOADS)}\n".encode("utf-8", "replace"))


def _names(home: Path, query: str) -> list[str]:
    store = sqlite3.connect(home / "store.db")
    found = [row[0] for row in store.execute(query)]
    store.close()
    return found


@pytest.fixture
def page(browser: Any, hostile: Served) -> Iterator[Page]:
    with opened(browser, hostile) as page:
        page.add_init_script(_WATCH)
        dialogs: list[str] = []
        calls: list[str] = []
        refused: list[str] = []

        def dismiss(dialog: Any) -> None:
            dialogs.append(dialog.message)
            dialog.dismiss()

        page.on("dialog", dismiss)
        page.on(
            "request",
            lambda r: calls.extend([r.url] if urlsplit(r.url).path == "/x-injected" else []),
        )
        page.context.on("page", lambda other: dialogs.append(f"opened {other.url}"))
        page.dialogs, page.calls = dialogs, calls
        page.on("response", lambda r: refused.extend([r.url] if r.status == 422 else []))
        page.refused = refused
        yield page
        # Addresses that do not exist, and what is not there, are answered so, and said so.
        page.faults[:] = [f for f in page.faults if "404" not in f and "422" not in f]


def _visit(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_function(
        "() => !document.getElementById('main') || document.querySelector('#main > *')"
    )
    page.wait_for_load_state("load")
    page.evaluate("new Promise((done) => setTimeout(done, 150))")


def _nothing_ran(page: Page, where: str) -> None:
    assert page.evaluate("window.injected") is None, where
    assert page.evaluate("violations") == [], where
    assert page.evaluate(_MARKUP) == [], where
    assert page.dialogs == [], where
    assert page.calls == [], where
    assert page.evaluate("({}).injected") is None, where


def test_nothing_that_somebody_wrote_runs_on_any_page(page: Page, hostile: Served) -> None:
    models = _names(hostile.home, "SELECT name FROM model")
    assert models
    addresses = [*PAGES, *(f"/models/{quote(name, safe='')}" for name in models)]
    shown = 0
    for address in addresses:
        _visit(page, address)
        _nothing_ran(page, address)
        assert "Cannot read" not in "".join(page.faults), (address, page.faults)
        shown += any(p in page.evaluate("document.body.innerText") for p in PAYLOADS)
    assert shown >= len(addresses) // 2, "hardly any page shows what was written"
    made_up = [url for url in page.refused if "trials=%3C" not in url]
    assert made_up == [], "a page asks for what it was offered, and is refused"


def test_nothing_runs_when_tips_menus_and_dialogs_are_opened(page: Page) -> None:
    for address in ("/", "/experiments/1", "/trials/5", "/queue"):
        _visit(page, address)
        for button in page.locator("main button:visible, main summary:visible").all()[:12]:
            with_tip = button.bounding_box()
            if with_tip is None:
                continue
            button.hover(force=True, timeout=2000)
            if (
                button.get_attribute("aria-haspopup")
                or button.evaluate("b => b.tagName") == "SUMMARY"
            ):
                button.click(force=True, timeout=2000)
                page.keyboard.press("Escape")
        _nothing_ran(page, address)
