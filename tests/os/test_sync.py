from __future__ import annotations

import os
from pathlib import Path

from determined._os.sync import begin_writeback, sync


def test_a_file_whose_writeback_began_early_is_whole(tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    try:
        for begin in range(0, len(content), 1 << 20):
            os.write(descriptor, content[begin : begin + (1 << 20)])
            begin_writeback(descriptor, begin, 1 << 20)
    finally:
        os.close(descriptor)
    sync(tmp_path / "file")
    sync(tmp_path)
    assert (tmp_path / "file").read_bytes() == content


def test_what_cannot_be_written_back_early_is_left_alone(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    begin_writeback(writer, 0, 10)
    os.close(reader)
    os.close(writer)
    begin_writeback(writer, 0, 10)  # no file at all
