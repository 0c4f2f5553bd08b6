"""Patterns select what `glob` would find on disk."""

from __future__ import annotations

import glob
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.storage._base import list_directory
from determined.storage._patterns import remaining

PATHS = ["a.pt", "b.bin", "d/a.pt", "d/e/b.pt", "d/e/.h", ".x/a.pt", "empty/"]
part = st.sampled_from(["**", "*", "*.pt", "d", "e", ".*", "?.bin", "**.pt", "d*", "[ab].*"])


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for path in PATHS:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).mkdir() if path.endswith("/") else (root / path).write_bytes(b"x")
    return root


@given(parts=st.lists(part, min_size=1, max_size=3), slash=st.booleans())
def test_deletion_matches_glob(tree: Path, parts: list[str], slash: bool) -> None:
    pattern = "/".join(parts) + ("/" if slash else "")
    copy = tree.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(tree, copy)
    for match in sorted(glob.glob(pattern, root_dir=copy, recursive=True)):  # noqa: PTH207  # the reference
        target = copy / match
        if match and target.is_dir():
            shutil.rmtree(target)
        elif match:
            target.unlink(missing_ok=True)
    expected = {} if pattern == "**/*" else list_directory(copy)
    assert remaining(list_directory(tree), [pattern]) == expected
