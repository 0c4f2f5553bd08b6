"""Writing past the system's cache, where a file system has that, and refusing it elsewhere."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from determined._os.direct import open_past_cache, write_past_cache


def test_whole_pages_arrive_and_others_are_left_to_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    descriptor = open_past_cache(path)
    if descriptor < 0:
        pytest.skip("this file system has only cached writes")
    try:
        with mmap.mmap(-1, 1 << 16) as memory:
            memory[:] = os.urandom(1 << 16)
            whole, odd = memoryview(memory), memoryview(memory)[1:1000]
            assert write_past_cache(descriptor, whole, 0) == 1 << 16
            assert path.read_bytes() == bytes(memory)
            assert write_past_cache(descriptor, odd, 1 << 16) == 0
            whole.release()
            odd.release()
    finally:
        os.close(descriptor)


def test_memory_and_devices_are_written_the_ordinary_way() -> None:
    assert open_past_cache(Path("/dev/full")) == -1  # on no device of its own
    assert open_past_cache(Path("/does/not/exist")) == -1
