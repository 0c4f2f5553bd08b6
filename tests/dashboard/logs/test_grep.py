"""Regular expressions over logs, in a process that can be ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.dashboard.logs import grep


def test_an_expression_that_never_ends_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a" * 60 + "!\n")
    part = grep.Part(str(path), 0, 0, 0, 1)
    with pytest.raises(grep.SearchTimeoutError):
        grep.grep("(a+)+$", [part], 10, 0.1, hard_limit=0.5)
