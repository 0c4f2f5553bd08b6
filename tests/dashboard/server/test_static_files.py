"""The files of the page."""

from __future__ import annotations

from tests.dashboard.served import Served


def test_files_are_checked_before_they_are_sent_again(shown: Served) -> None:
    first = shown.client.get("/static/js/api.js")
    assert first.headers["content-encoding"] == "gzip"
    assert first.headers["cache-control"] == "no-cache"
    again = shown.client.get("/static/js/api.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    plain = shown.client.get("/static/js/api.js", headers={"Accept-Encoding": "identity"})
    assert plain.content == first.content
    page = shown.client.get("/experiments/1/curves")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["cache-control"] == "no-cache"
    assert shown.client.get("/experiments/1/a/b").status_code == 404


def test_an_address_without_a_page_is_a_page_for_browsers(shown: Served) -> None:
    as_browser = shown.client.get("/no/such/place", headers={"accept": "text/html,*/*"})
    assert (as_browser.status_code, as_browser.headers["content-type"]) == (
        404,
        "text/html; charset=utf-8",
    )
    other = shown.client.get("/no/such/place", headers={"accept": "application/json"})
    assert (other.status_code, other.json()) == (404, {"error": "There is no such page."})
