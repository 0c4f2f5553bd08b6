"""Write `docs/llms.txt`: the pages of the site for language models, one line each.

    python -m tools.llms_txt

The order and the titles are those of `mkdocs.yml`; the text is the first sentence of each page.
`det mcp` serves it, and the pages it names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TARGET = DOCS / "llms.txt"

_HIDDEN = re.compile(r"\A---.*?^---$|<!--.*?-->|^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[([^]]*)\]\([^)]*\)")
_NO_TEXT = ("|", "<", "#", "![", "- ")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")
_ENOUGH = 60
_LONGEST = 240


def text() -> str:
    """The whole file."""
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    lines = [f"# {site['site_name']}", "", f"> {site['site_description']}", "", "## Start", ""]
    for entry in site["nav"]:
        ((title, below),) = entry.items()
        if isinstance(below, str):
            lines.append(_line(title, below))
        else:
            lines += ["", f"## {title}", "", *(_line(*page) for page in _pages(below))]
    return "\n".join(lines) + "\n"


def _pages(entries: list[Any]) -> Iterator[tuple[str | None, str]]:
    for entry in entries:
        if isinstance(entry, str):
            yield None, entry
            continue
        ((title, below),) = entry.items()
        if isinstance(below, str):
            yield title, below
        else:
            yield from _pages(below)


def _line(title: str | None, path: str) -> str:
    heading, sentence = summary((DOCS / path).read_text())
    return f"- [{title or heading}]({path}): {sentence}"


def summary(page: str) -> tuple[str, str]:
    """The title of a page, and the first words of its text; guides begin with their question."""
    heading, *rest = _HIDDEN.sub("", page).strip().splitlines()
    heading = heading.lstrip("# ")
    paragraph: list[str] = []
    for line in rest:
        if line.strip() and not line.startswith(_NO_TEXT):
            paragraph.append(line.strip("> "))
        elif paragraph:
            break
    plain = _LINK.sub(r"\1", " ".join(paragraph)).replace("**", "")
    said = heading if heading.endswith("?") else ""
    for sentence in _SENTENCE.split(plain):
        if len(said) < _ENOUGH:
            said = f"{said} {sentence}".strip()
    if len(said) > _LONGEST:
        said = said[:_LONGEST].rpartition(" ")[0] + " ..."
    return heading, said.rstrip(":")


if __name__ == "__main__":
    TARGET.write_text(text())
