"""The pages of the documentation: a wheel has copies beside this file, a checkout has `docs`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

INDEX = "llms.txt"
_PACKED = Path(__file__).with_name("pages")
_CHECKOUT = Path(__file__).parents[3] / "docs"
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)  # notes to whoever writes or tests a page
_HEADING = re.compile(r"^#{1,4} (.+)$")


@dataclass(frozen=True)
class Section:
    """A part of a page, under one heading."""

    page: str
    heading: str
    text: str


def folder() -> Path | None:
    """Where the pages are; None if this installation has none."""
    return next((path for path in (_PACKED, _CHECKOUT) if (path / INDEX).is_file()), None)


@cache
def names() -> tuple[str, ...]:
    """The pages, by their path below the documentation."""
    root = folder()
    if root is None:
        return ()
    return tuple(sorted(path.relative_to(root).as_posix() for path in root.rglob("*.md")))


def read(name: str) -> str:
    """The text of a page, or of the index."""
    root = folder()
    if root is None or name not in (INDEX, *names()):
        raise KeyError(name)
    return _COMMENT.sub("", (root / name).read_text(encoding="utf-8"))


def sections(name: str) -> list[Section]:
    """A page by its headings; a line that begins with # inside of code is no heading."""
    found: list[Section] = []
    heading, lines, is_code = name, list[str](), False
    for line in read(name).splitlines():
        is_code ^= line.lstrip().startswith("```")
        match = None if is_code else _HEADING.match(line)
        if match is None:
            lines.append(line)
            continue
        found.append(Section(name, heading, "\n".join(lines).strip()))
        heading, lines = match[1], []
    found.append(Section(name, heading, "\n".join(lines).strip()))
    return [section for section in found if section.text]


def search(words: str, limit: int) -> list[Section]:
    """The sections with most of the words, those with them in the heading first."""
    wanted = set(re.findall(r"\w+", words.lower()))
    ranked = []
    for name in names():
        for section in sections(name):
            head = set(re.findall(r"\w+", f"{section.heading} {name}".lower()))
            body = set(re.findall(r"\w+", section.text.lower()))
            score = 3 * len(wanted & head) + len(wanted & body)
            if score:
                ranked.append((-score, len(section.text), section))
    ranked.sort(key=lambda item: item[:2])
    return [section for *_, section in ranked[:limit]]
