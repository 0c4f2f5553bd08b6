from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.launch.wrap_rank import LONGEST_LINE_BYTES, find_rank, split_lines
from tests.support.waiting import eventually


def _wrap(*args: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "determined.launch.wrap_rank", *args]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, timeout=30
    )


def _wrap_python(text: str) -> subprocess.CompletedProcess[bytes]:
    return _wrap("7", "--", sys.executable, "-c", text)


def _lines(chunks: list[bytes]) -> list[bytes]:
    return list(chain.from_iterable(split_lines(chunks)))


class TestOutput:
    def test_every_line_of_both_streams_is_tagged(self) -> None:
        done = _wrap_python("import sys; print('one\\ntwo'); print('three', file=sys.stderr)")
        assert done.stdout == b"[rank=7] one\n[rank=7] two\n"
        assert done.stderr == b"[rank=7] three\n"

    def test_a_progress_bar_becomes_lines(self) -> None:
        done = _wrap_python("print('10%\\r20%\\r30%', end='')")
        assert done.stdout == b"[rank=7] 10%\n[rank=7] 20%\n[rank=7] 30%\n"

    def test_bytes_that_are_no_text_stop_nothing(self) -> None:
        done = _wrap_python(
            "import sys; sys.stdout.buffer.write(b'\\xff\\xfe!\\n' * 100000); print('end')"
        )
        assert done.returncode == 0
        assert done.stdout.startswith("[rank=7] \ufffd\ufffd!\n".encode())
        assert done.stdout.endswith(b"[rank=7] end\n")

    def test_long_lines_are_cut(self) -> None:
        done = _wrap_python(f"print('x' * {LONGEST_LINE_BYTES + 5})")
        lines = done.stdout.splitlines()
        assert lines == [b"[rank=7] " + b"x" * LONGEST_LINE_BYTES, b"[rank=7] " + b"x" * 5]

    def test_a_grandchild_that_keeps_the_pipe_does_not_keep_us(self) -> None:
        done = _wrap_python(
            "import subprocess, sys\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(15)'])\n"
            "print(child.pid, flush=True)\n"
        )
        assert done.returncode == 0
        os.kill(int(done.stdout.split()[-1]), signal.SIGKILL)


class TestExitCode:
    @pytest.mark.parametrize("code", [0, 1, 77])
    def test_it_is_the_workers(self, code: int) -> None:
        assert _wrap_python(f"raise SystemExit({code})").returncode == code

    def test_a_signal_counts_from_128(self) -> None:
        done = _wrap_python("import os; os.kill(os.getpid(), 9)")
        assert done.returncode == 128 + 9


class TestRank:
    @pytest.mark.parametrize(
        ("text", "rank"), [("3", 3), ("RANK", 1), ("NO_SUCH,RANK", 1), ("OTHER,RANK", 2)]
    )
    def test_it_is_a_number_or_the_first_variable_set(
        self, text: str, rank: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("OTHER", "2")
        assert find_rank(text) == rank

    def test_an_unknown_rank_is_an_error(self) -> None:
        done = _wrap("NO_SUCH,NOR_THIS", "--", "true")
        assert done.returncode == 1
        assert b"NO_SUCH,NOR_THIS" in done.stderr

    def test_nothing_to_run_is_an_error(self) -> None:
        assert b"nothing to run" in _wrap("0").stderr

    def test_the_script_may_have_dashes_of_its_own(self) -> None:
        done = _wrap("0", "--", "echo", "a", "--", "-b")
        assert done.stdout == b"[rank=0] a -- -b\n"


@given(st.lists(st.lists(st.sampled_from([b"\r", b"\n", b"a", b"x" * 5000])).map(b"".join)))
def test_lines_do_not_depend_on_how_they_arrive(chunks: list[bytes]) -> None:
    chunks = [chunk for chunk in chunks if chunk]
    whole = b"".join(chunks)
    assert _lines(chunks) == _lines([whole] if whole else [])
    assert b"".join(_lines(chunks)) == re.sub(rb"[\r\n]", b"", whole)
    assert all(len(line) <= LONGEST_LINE_BYTES for line in _lines(chunks))


@pytest.mark.multiprocess
def test_a_shell_that_ends_leaves_it_running(tmp_path: Path) -> None:
    worker = (
        "import os, time\n"
        "while os.path.exists('running'): time.sleep(0.02)\n"
        "open('done', 'w').close()\n"
    )
    (tmp_path / "worker.py").write_text(worker)
    (tmp_path / "running").touch()
    wrapped = f"{sys.executable} -m determined.launch.wrap_rank 0 {sys.executable} worker.py"
    subprocess.run(["sh", "-c", f"{wrapped} & sleep 1"], cwd=tmp_path, check=True)
    time.sleep(0.5)  # the shell is gone: a signal would have come
    (tmp_path / "running").unlink()
    eventually((tmp_path / "done").exists)
