"""The code of the README and of every page runs as it stands."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks, pages, run_pages, sequences
from tests.support.workers import SERVER

_PAGES = pages()
_BLOCKS = [block for page in _PAGES for block in blocks(page)]
_SECONDS = 580


def _name(pages: list[Path]) -> str:
    return str(pages[0].relative_to(ROOT))


@pytest.mark.slow
@pytest.mark.multiprocess
@pytest.mark.timeout(600)
@pytest.mark.parametrize("pages", sequences(), ids=_name)
def test_the_code_of_pages_runs(pages: list[Path], tmp_path: Path) -> None:
    directory, log = tmp_path / "reader", tmp_path / "log"
    directory.mkdir()
    process = SERVER.Process(target=run_pages, args=(pages, directory, log))
    process.start()
    process.join(_SECONDS)
    if process.exitcode is None:
        assert process.pid is not None
        os.killpg(process.pid, signal.SIGKILL)
    assert process.exitcode == 0, log.read_text()


@pytest.mark.parametrize("block", [b for b in _BLOCKS if b.language == "python"], ids=str)
def test_python_is_python_whether_it_runs_or_not(block: Block) -> None:
    block.compile()


@pytest.mark.parametrize("block", [b for b in _BLOCKS if b.language in ("sh", "bash")], ids=str)
def test_commands_run_or_say_why_they_do_not(block: Block) -> None:
    assert block.marker, f"{block}: write `<!-- run -->` or `<!-- not run: reason -->` before it"


def test_every_named_file_of_a_page_is_used_by_it() -> None:
    for page in _PAGES:
        found = list(blocks(page))
        for index, block in enumerate(found):
            if block.title is not None and not block.marker:
                later = [b for b in found[index + 1 :] if not b.marker.startswith("not run")]
                used = any(Path(block.title).stem in b.code for b in later)
                assert used, f"{block} is never run: follow it with a command that does"
