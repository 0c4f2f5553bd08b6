"""What a program wrote to a terminal, and when, as an animated SVG: no script, nothing fetched."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_ESCAPE = re.compile(r"\x1b\[([\d;]*)([A-Za-z])")
_COLOURS = {31: "red", 32: "green", 33: "yellow", 34: "blue", 35: "magenta", 36: "cyan", 90: "dim"}
_ROW_HEIGHT = 19
_COLUMN_WIDTH = 8.43
_MARGIN = 16
_BAR = 28
_STYLE = """
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;
fill:#d5dae1;white-space:pre}
.bold{font-weight:700;fill:#fff}.red{fill:#ff7b72}.green{fill:#56d364}.yellow{fill:#e3b341}
.blue{fill:#79c0ff}.magenta{fill:#d2a8ff}.cyan{fill:#76e3ea}.dim,.title{fill:#8b949e}
@media (prefers-reduced-motion:reduce){*{animation:none!important}}
"""


@dataclass(frozen=True)
class Line:
    """A line, when it came, and its parts: texts with a class each."""

    seconds: float
    parts: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.parts).rstrip()


def lines_of(chunks: Sequence[tuple[float, str]]) -> list[Line]:
    """Parse what was written; a line came when its last character did."""
    lines, written = [], ""
    for seconds, chunk in chunks:
        *whole, written = (written + chunk).replace("\r\n", "\n").split("\n")
        lines += [Line(seconds, tuple(_parts(text))) for text in whole]
    return lines


def _parts(text: str) -> list[tuple[str, str]]:
    """Texts with their classes; only colours and bold are known here, as nothing else is used."""
    parts, names, begin = [], [""], 0
    for found in _ESCAPE.finditer(text):
        parts.append((text[begin : found.start()], " ".join(filter(None, names))))
        begin = found.end()
        if found[2] != "m":
            raise ValueError(f"The recording has {found[0]!r}, which moves the cursor.")
        for code in (int(c or 0) for c in found[1].split(";")):
            if code in (0, 39):
                names = [""]
            else:
                names.append("bold" if code == 1 else _COLOURS[code])
    parts.append((text[begin:], " ".join(filter(None, names))))
    return [part for part in parts if part[0]]


def with_short_waits(lines: Sequence[Line], longest: float) -> list[Line]:
    """The same lines, no two of them more than `longest` seconds apart."""
    shown, now, before = [], 0.0, 0.0
    for line in lines:
        now += min(longest, line.seconds - before)
        before = line.seconds
        shown.append(Line(now, line.parts))
    return shown


def svg(lines: Sequence[Line], title: str, columns: int, rows: int, hold: float) -> str:
    """Draw lines as they came, again and again; the last screen stays for `hold` seconds.

    Where nothing is animated, the last screen is shown.
    """
    end = lines[-1].seconds + hold
    width = round(2 * _MARGIN + columns * _COLUMN_WIDTH)
    height = _BAR + rows * _ROW_HEIGHT + _MARGIN
    scrolled = max(0, len(lines) - rows)
    frames = [
        f"@keyframes l{number}{{from{{visibility:hidden}}"
        f"{_percent(line.seconds, end)},to{{visibility:visible}}}}"
        f"#l{number}{{animation:l{number} {end:.2f}s step-end infinite}}"
        for number, line in enumerate(lines)
    ]
    steps = "".join(
        f"{_percent(line.seconds, end)}{{transform:translateY(-{up * _ROW_HEIGHT}px)}}"
        for up, line in enumerate(lines[rows:], 1)
    )
    rest = f"transform:translateY(-{scrolled * _ROW_HEIGHT}px)"
    moves = (
        f"@keyframes up{{from{{transform:none}}{steps}to{{{rest}}}}}"
        f"#all{{{rest};animation:up {end:.2f}s step-end infinite}}"
    )
    texts = "\n".join(_text(number, line) for number, line in enumerate(lines))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-labelledby="title">\n'
        f'<title id="title">{escape(title)}</title>\n'
        f"<style>{_STYLE}{''.join(frames)}{moves}</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>\n'
        f'<circle cx="18" cy="15" r="5" fill="#ff5f57"/><circle cx="36" cy="15" r="5" '
        f'fill="#febc2e"/><circle cx="54" cy="15" r="5" fill="#28c840"/>\n'
        f'<text class="title" x="{width // 2}" y="20" text-anchor="middle">{escape(title)}</text>\n'
        f'<svg x="0" y="{_BAR}" width="{width}" height="{rows * _ROW_HEIGHT + 6}">'
        f'<g id="all">\n{texts}\n</g></svg>\n</svg>\n'
    )


def _percent(seconds: float, end: float) -> str:
    return f"{100 * seconds / end:.3f}%"


def _text(number: int, line: Line) -> str:
    parts = "".join(
        f'<tspan class="{name}">{escape(text)}</tspan>'
        if name
        else f"<tspan>{escape(text)}</tspan>"
        for text, name in line.parts
    )
    y = number * _ROW_HEIGHT + 15
    return f'<text id="l{number}" x="{_MARGIN}" y="{y}" xml:space="preserve">{parts}</text>'
