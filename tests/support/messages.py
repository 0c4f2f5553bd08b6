"""The table of messages in the docs: each row is shown by a test, word for word.

`documented(situation, text)` fails unless `docs/messages.md` has that row. After a change of words,
run the failing tests with `DET_WRITE_MESSAGES=1`: they write their rows.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

_PAGE = Path(__file__).parents[2] / "docs" / "messages.md"
_HEAD = """# Messages

What the library says about common mistakes and surprises. The tests cause each of these situations
and compare the text; names, numbers and paths that vary are shown as `…`.

| what happened | what it says |
|---|---|
"""


def documented(situation: str, text: str, *varying: object) -> None:
    """Check that the docs show `text` for `situation`; `varying` parts of it are shown as `…`."""
    for part in sorted(map(str, varying), key=len, reverse=True):
        text = text.replace(part, "…")
    row = f"| {_cell(situation)} | {_cell(text)} |"
    if os.environ.get("DET_WRITE_MESSAGES"):
        _write(row)
    assert row in _rows(), (
        f"docs/messages.md does not show this; write it with DET_WRITE_MESSAGES=1:\n{row}"
    )


def _cell(text: str) -> str:
    text = re.sub(r"\s+", " ", text).strip().replace("|", "\\|")
    return text.replace("<", "&lt;").replace("*", "\\*").replace("__", "\\_\\_")


def _rows() -> list[str]:
    if not _PAGE.exists():
        return []
    return [line for line in _PAGE.read_text().splitlines() if line.startswith("| ")][1:]


def _write(row: str) -> None:
    situation = row.split(" | ")[0]
    with (_PAGE.parent / ".messages.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows = [r for r in _rows() if r.split(" | ")[0] != situation] + [row]
        _PAGE.write_text(_HEAD + "\n".join(sorted(rows)) + "\n")
        Path(lock.name).unlink()
