"""Record `python -m determined.demo` on a terminal of 80 columns: docs/images/demo.svg.

Waits of more than two seconds are shortened to two, and the title says how long it took. The test
of the demo compares the lines with those that it prints, apart from numbers and paths.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

from tools.terminal_svg import Line, lines_of, svg, with_short_waits

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "demo.svg"
_COLUMNS, _ROWS = 80, 24
_LONGEST_WAIT = 2.0
_HOLD = 6.0


def record(folder: Path) -> tuple[int, list[Line]]:
    """Run the demo in `folder` on a terminal of its own; return its exit code and its lines."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "determined.demo", "--folder", str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env={**plain, "TERM": "xterm"},
    )
    os.close(terminal)
    chunks = []
    try:
        while chunk := _read(controller):
            chunks.append((time.monotonic() - began, chunk.decode()))
    finally:
        os.close(controller)
    return process.wait(), lines_of(chunks)


def _read(controller: int) -> bytes:
    try:
        return os.read(controller, 65536)
    except OSError:  # how Linux says that nobody holds the terminal any more
        return b""


def essence(texts: list[str], folder: Path | None = None) -> list[str]:
    """What does not change from run to run: each kind of line once, without its numbers."""
    kinds = []
    for text in texts:
        if folder is not None:
            text = text.replace(str(folder), "~/determined-demo")
        text = re.sub(r"\b[0-9a-f]{16}\b|\d+(\.\d+)?(e-\d+)?", "#", text)
        kinds.append(re.sub(r"-{2,}", "--", re.sub(r"\s+", " ", text)).strip())
    return list(dict.fromkeys(kinds))


def main() -> int:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "determined-demo"
        code, lines = record(folder)
        if code:
            sys.exit(f"The demo failed:\n{chr(10).join(line.text for line in lines)}")
        home = [
            Line(
                line.seconds,
                tuple((t.replace(str(folder), "~/determined-demo"), c) for t, c in line.parts),
            )
            for line in lines
        ]
    began = [Line(0.0, (("$ ", "dim"), ("python -m determined.demo", "bold"))), *home]
    title = f"python -m determined.demo: {lines[-1].seconds:.0f} s, long waits shortened"
    shown = with_short_waits(began, _LONGEST_WAIT)
    PICTURE.write_text(svg(shown, title, _COLUMNS, _ROWS, _HOLD))
    return 0


if __name__ == "__main__":
    sys.exit(main())
