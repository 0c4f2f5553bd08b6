"""Reads the code of pages and runs it as a reader would: from top to bottom, in an empty home.

- Python blocks share one namespace. One with `title="train.py"` becomes that file instead, for the
  commands of the page to run; with `<!-- run -->` before it, it runs at once.
- Before a block of commands (`sh`) stands `<!-- run -->`, or why it is left out:
  `<!-- not run: reason -->`, as before any block.
- The how-to guides run after the tutorial, in its folder and in the order of their index: they
  speak of its experiments.
- `<!-- run with: package -->` is for code of other libraries: it is compiled, and runs where
  `.venv-bench` has the package.
- `<!-- python ... -->` holds code that readers do not see: what a fragment needs to run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.workers import leave_the_server

ROOT = Path(__file__).parents[2]
_PEERS = ROOT / ".venv-bench" / "bin" / "python"
_TUTORIAL = ROOT / "docs" / "tutorial.md"
_HOWTO = ROOT / "docs" / "howto"
_INDEX = _HOWTO / "index.md"
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w+)(?P<options>.*)$")
_TITLE = re.compile(r'title="(?P<name>[^"]+)"')
_MARKER = re.compile(r"^ *<!-- (?P<words>run|not run: .+|run with: \w+) -->$")


@dataclass(frozen=True)
class Block:
    """One piece of code; `marker` is what the comment before it says."""

    page: Path
    line: int
    language: str
    code: str
    title: str | None = None
    marker: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def compile(self) -> types.CodeType:
        """Compile it so that tracebacks name the line of the page."""
        return compile("\n" * (self.line - 1) + self.code, str(self.page), "exec")


def pages() -> list[Path]:
    """Return the README and every page of the site."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """Read the code of a page."""
    lines = enumerate(page.read_text().splitlines(), start=1)
    marker = ""
    for number, line in lines:
        fence, comment = _FENCE.match(line), _MARKER.match(line)
        if line == "<!-- python":
            yield Block(page, number + 1, "python", _read_until("-->", lines))
        elif fence is not None:
            code = _read_until("```", lines, indent=len(fence["indent"]))
            title = _TITLE.search(fence["options"])
            yield Block(page, number + 1, fence["language"], code, title and title["name"], marker)
        marker = comment["words"] if comment is not None else ""


def _read_until(end: str, lines: Iterator[tuple[int, str]], indent: int = 0) -> str:
    code = []
    for _, line in lines:
        if line.strip() == end:
            break
        code.append(line[indent:])
    return "\n".join(code) + "\n"


def sequences() -> list[list[Path]]:
    """Return the pages that have code, those together that run one after another."""
    guides = [_HOWTO / name for name in re.findall(r"\]\((\w+\.md)\)", _INDEX.read_text())]
    others = [page for page in pages() if page not in (_TUTORIAL, _INDEX, *guides)]
    return [[_TUTORIAL, *guides], *([page] for page in others if any(True for _ in blocks(page)))]


def run_pages(pages: list[Path], directory: Path, log: Path) -> None:
    """Run the code of pages in `directory`, with all output in `log`.

    Meant for a process of the server's, which it leaves changed.
    """
    _redirect_output(log)
    leave_the_server()
    os.setsid()  # so that whoever waits for this can end all of it
    _become_a_reader(directory)
    sys.argv = ["page"]
    try:
        for page in pages:
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            for block in blocks(page):
                sys.stderr.write(f"--- {block}\n")
                _run(block, main)
    finally:
        subprocess.run(["det", "supervisor", "stop"], capture_output=True, check=False)


def _become_a_reader(directory: Path) -> None:
    """Work in `directory`, with an empty home and nothing set for this library or for tests."""
    home = directory.with_name("home")
    home.mkdir()
    for name in list(os.environ):
        if name.startswith(("DET_", "PYTEST_", "XDG_")):
            del os.environ[name]
    os.environ["HOME"] = str(home)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    os.chdir(directory)


def _run(block: Block, main: types.ModuleType) -> None:
    if block.marker.startswith("not run"):
        return
    if block.marker.startswith("run with"):
        block.compile()
        if _peer_is_installed(block.marker.partition(": ")[2]):
            subprocess.run([_PEERS, "-c", block.code], check=True)
    elif block.title is not None and block.marker != "run":
        Path(block.title).parent.mkdir(parents=True, exist_ok=True)
        Path(block.title).write_text(block.code)
    elif block.language == "python":
        exec(block.compile(), main.__dict__)
    elif block.marker == "run":
        subprocess.run(["bash", "-euo", "pipefail", "-c", block.code], check=True)


def _peer_is_installed(package: str) -> bool:
    return any(_PEERS.parents[1].glob(f"lib/python3*/site-packages/{package}/__init__.py"))


def _redirect_output(log: Path) -> None:
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
