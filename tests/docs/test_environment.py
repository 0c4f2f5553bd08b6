"""The reference of environment variables names every one that the code knows, and no other."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

_NAME = re.compile(r"(?<![A-Z_])DET_[A-Z0-9_]*[A-Z0-9]")


def test_every_variable_of_the_source_is_in_the_reference_and_no_other() -> None:
    page = ROOT / "docs" / "reference" / "environment.md"
    sources = (ROOT / "src").rglob("*.py")
    known = {name for file in sources for name in _NAME.findall(file.read_text())}
    assert set(_NAME.findall(page.read_text())) == known
