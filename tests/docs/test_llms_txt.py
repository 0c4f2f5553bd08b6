"""The list of pages for language models is current, and names pages that exist."""

from __future__ import annotations

import re

from tools.llms_txt import DOCS, TARGET, text


def test_the_list_is_what_the_pages_say() -> None:
    assert TARGET.read_text() == text(), "run `python -m tools.llms_txt`"


def test_every_page_is_named_once_and_described() -> None:
    lines = [line for line in TARGET.read_text().splitlines() if line.startswith("- ")]
    paths = [re.search(r"\]\(([^)]+)\)", line) for line in lines]
    named = [match[1] for match in paths if match is not None]
    assert sorted(named) == sorted(p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md"))
    assert [line for line in lines if len(line.partition("): ")[2]) < 20] == []
