"""The folder of a run: values survive it, and nothing in it is for others."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from determined._os.json_file import write_json
from determined._os.processes import Identity
from determined.errors import DeterminedError
from determined.platform.runs.folder import (
    LOST,
    LogMatch,
    LogPolicy,
    RunExit,
    RunFolder,
    RunSpec,
    Traceback,
)


def make(path: Path) -> RunFolder:
    run = RunFolder(path)
    spec = RunSpec(("a", "b c"), "1.r.1", (LogPolicy("p", "x", None),), "hello\n", 1.5, 2.5)
    run.create(spec, {"A": "\udcff"}, {"cluster": {"task_id": "1.r"}})
    return run


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    run = make(tmp_path / "experiments" / "run")
    assert run.spec == RunSpec(
        ("a", "b c"), "1.r.1", (LogPolicy("p", "x", None),), "hello\n", 1.5, 2.5
    )
    assert run.environment == {"A": "\udcff"}
    assert json.loads((run.info / "cluster.json").read_text()) == {"task_id": "1.r"}
    assert (run.keeper, run.entrypoint, run.exit, run.matches) == (None, None, None, ())
    run.save_processes(Identity("b", 1, 2), Identity("b", 3, 4))
    assert (run.keeper, run.entrypoint) == (Identity("b", 1, 2), Identity("b", 3, 4))
    matches = (LogMatch("p", "cancel_retries", 3, "x"),)
    run.save_matches(matches)
    assert run.matches == matches
    end = RunExit(1, LOST, "why", None, "SIGKILL", 1.0, 2.0, Traceback(1, "t"), ("l",), matches, 3)
    run.save_exit(end)
    assert run.exit == end
    assert run.path.stat().st_mode & 0o777 == 0o700


def test_a_folder_may_be_made_again_until_the_run_starts(tmp_path: Path) -> None:
    make(tmp_path / "run")
    run = make(tmp_path / "run")
    run.mark_started()
    with pytest.raises(FileExistsError, match="belongs to a run that was already started"):
        make(tmp_path / "run")
    with pytest.raises(FileExistsError):
        run.mark_started()


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    write_json(run.path / "exit.json", {"version": 99})
    with pytest.raises(DeterminedError, match=r"exit.json has version 99, this library reads 1"):
        _ = run.exit


def test_looking_at_a_lock_does_not_take_it(tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    assert not run.is_locked
    descriptor = run.try_lock()
    assert descriptor is not None
    assert run.is_locked
    assert run.try_lock() is None


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, [])
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            write_json(path, [n] * 5000)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            content = json.loads(path.read_bytes())
            assert len(set(content)) <= 1
    finally:
        stop.set()
        writer.join()
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]
