"""How much of the fault tests to run, and where."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest


def factor() -> int:
    """Return `DET_TEST_FAULTS`: 1 for the short form, more for as many times the cases."""
    return max(1, int(os.environ.get("DET_TEST_FAULTS") or 1))


def at_least(short: int, each: int) -> int:
    """Return how many cases to take: a few in the short form, `each` times the factor in others."""
    return short if factor() == 1 else each * factor()


def in_turns(first: Iterable[Any], second: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return each of `first` with the next of `second`; all pairs in the long form."""
    if factor() > 1:
        return list(itertools.product(first, second))
    return list(zip(first, itertools.cycle(second), strict=False))


def draw_seed(short: int | None = None) -> int:
    """Return a seed, and print it; `DET_TEST_SEED` repeats a failure.

    `short` is that of the short form. Tests in `make test` have one, as they prove the same each
    time; random moments belong to tests that are marked as slow.
    """
    drawn = short if short is not None and factor() == 1 else random.SystemRandom().randrange(2**31)
    seed = int(os.environ.get("DET_TEST_SEED") or drawn)
    print(f"DET_TEST_SEED={seed}")  # noqa: T201  # shown if the test fails
    return seed


@pytest.fixture(name="tmp_path")
def in_memory() -> Iterator[Path]:
    """A folder without a disk below it. Import this where no promise is about disks."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def mounted(*arguments: str, at: Path) -> contextlib.ExitStack:
    """Mount something until the stack is closed; skip where that is not allowed."""
    at.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *arguments, str(at)], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    stack = contextlib.ExitStack()
    stack.callback(subprocess.run, ["umount", "--lazy", str(at)], check=True)
    return stack
