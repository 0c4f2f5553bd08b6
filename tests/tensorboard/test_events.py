from __future__ import annotations

import logging
import math
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from torch.utils.tensorboard import SummaryWriter

from determined.tensorboard import _events
from determined.tensorboard._events import ScalarEvents
from tests.tensorboard.read_events import read_events, read_points


def test_tensorboard_reads_many_points_of_many_tags(tmp_path: Path) -> None:
    events = ScalarEvents(tmp_path / "made" / "when" / "needed")
    events.add("loss", np.arange(1000, dtype=np.float32), range(1000))
    events.add("accuracy", [0.5, 1], [999, 1000])
    events.add_scalar("loss", 7, 1000)
    events.close()
    points = read_points(tmp_path / "made" / "when" / "needed")
    assert points == {
        "loss": [(i, float(i)) for i in range(1000)] + [(1000, 7.0)],
        "accuracy": [(999, 0.5), (1000, 1.0)],
    }


def test_values_that_are_not_finite_survive(tmp_path: Path) -> None:
    events = ScalarEvents(tmp_path)
    events.add("x", [math.nan, math.inf, -math.inf, 1e300], range(4))
    events.close()
    values = [value for _, value in read_points(tmp_path)["x"]]
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf, math.inf]


def test_nothing_is_created_before_the_first_point(tmp_path: Path) -> None:
    events = ScalarEvents(tmp_path / "unused")
    events.add("x", [], [])
    events.flush()
    events.close()
    assert not (tmp_path / "unused").exists()


def test_a_flushed_point_is_in_the_file_while_it_is_open(tmp_path: Path) -> None:
    events = ScalarEvents(tmp_path)
    for step in range(3):
        events.add_scalar("x", step, step)
        events.flush()
        assert len(read_points(tmp_path)["x"]) == step + 1
    assert len(list(tmp_path.iterdir())) == 1
    events.close()


def test_points_reach_the_file_without_a_flush(tmp_path: Path) -> None:
    events = ScalarEvents(tmp_path)
    events.add_scalar("x", 1, 1)
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob("*tfevents*")) or not read_points(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    events.close()


def test_a_closed_writer_starts_a_new_file(tmp_path: Path) -> None:
    events = ScalarEvents(tmp_path)
    for step in range(2):
        events.add_scalar("x", step, step)
        events.close()
        events.close()
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 2
    assert read_points(tmp_path) == {"x": [(0, 0.0), (1, 1.0)]}
    assert not [t for t in threading.enumerate() if t.name == "tensorboard-events"]


def test_it_shares_a_directory_with_a_summary_writer(tmp_path: Path) -> None:
    events = ScalarEvents(tmp_path)
    with SummaryWriter(str(tmp_path)) as writer:
        for step in range(5):
            events.add_scalar("ours", step, step)
            events.flush()
            writer.add_scalar("theirs", step, step)
            writer.flush()
    events.close()
    points = [(step, float(step)) for step in range(5)]
    assert read_points(tmp_path) == {"ours": points, "theirs": points}


def test_wall_times_rise_from_report_to_report(tmp_path: Path) -> None:
    before = time.time()
    events = ScalarEvents(tmp_path)
    for report in range(3):
        events.add("x", np.zeros(10), range(10 * report, 10 * report + 10))
    events.close()
    wall_times = [event.wall_time for event in read_events(tmp_path)["x"]]
    assert wall_times == sorted(wall_times)
    assert before <= wall_times[0] <= wall_times[-1] <= time.time()


def test_the_callers_array_may_change_after_add(tmp_path: Path) -> None:
    events = ScalarEvents(tmp_path)
    values = np.ones(3)
    events.add("x", values, range(3))
    values[:] = 5
    events.close()
    assert read_points(tmp_path) == {"x": [(0, 1.0), (1, 1.0), (2, 1.0)]}


@pytest.mark.parametrize(("values", "steps"), [([1.0], [1, 2]), ([[1.0]], [[1]]), (1.0, 1)])
def test_points_that_do_not_match_are_refused(
    tmp_path: Path, values: object, steps: object
) -> None:
    with pytest.raises(ValueError, match="equally long"):
        ScalarEvents(tmp_path).add("x", values, steps)  # type: ignore[arg-type]  # wrong on purpose


def test_threads_lose_nothing(tmp_path: Path) -> None:
    events = ScalarEvents(tmp_path)

    def log(tag: str) -> None:
        for step in range(200):
            events.add_scalar(tag, step, step)
            if step % 50 == 0:
                events.flush()

    threads = [threading.Thread(target=log, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    events.close()
    expected = [(step, float(step)) for step in range(200)]
    assert read_points(tmp_path) == {f"t{i}": expected for i in range(4)}


def test_a_directory_that_cannot_be_made_warns_once_and_recovers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "directory"
    directory.write_text("a file is in the way")
    events = ScalarEvents(directory)
    with caplog.at_level(logging.WARNING):
        for step in range(3):
            events.add_scalar("x", step, step)
            events.flush()
    assert len(caplog.records) == 1
    assert str(directory) in caplog.text
    directory.unlink()
    events.add_scalar("x", 3, 3)
    events.close()
    assert read_points(directory) == {"x": [(3, 3.0)]}


def test_a_write_that_stops_half_way_leaves_whole_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    events = ScalarEvents(tmp_path)
    events.add("x", np.zeros(10), range(10))
    events.flush()
    (file,) = tmp_path.iterdir()
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 100, limits[1]))
        events.add("x", np.zeros(10), range(10, 20))
        events.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    events.add("x", np.zeros(10), range(20, 30))
    events.close()
    assert [step for step, _ in read_points(tmp_path)["x"]] == [*range(10), *range(20, 30)]
    assert "File too large" in caplog.text


def test_a_disk_that_hangs_costs_points_not_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_events, "_MAX_POINTS", 100)
    monkeypatch.setattr(_events, "_STALL_SECONDS", 0.05)
    blocked, release = tmp_path / "blocked", threading.Event()

    class SlowDisk(ScalarEvents):
        def _write(self, data: bytes) -> None:
            release.wait(60)
            super()._write(data)

    events = SlowDisk(blocked)
    for report in range(50):
        events.add("x", np.zeros(10), range(10 * report, 10 * report + 10))
    events.flush(timeout_seconds=0.05)
    release.set()
    events.add_scalar("later", 1, 1)
    events.close()
    points = read_points(blocked)
    assert [step for step, _ in points["x"]] == list(range(100))
    assert "cannot keep up" in caplog.text
    assert len(caplog.records) == 1


_SCRIPT = """
import sys
import numpy as np
from determined.tensorboard._events import ScalarEvents

events = ScalarEvents(sys.argv[1])
step = 0
while True:
    events.add("x", np.zeros(100), range(step, step + 100))
    step += 100
    if step % 1000 == 0:
        events.flush()
        print(step, flush=True)
    if step == int(sys.argv[2]):
        break
"""


def test_kill_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, str(tmp_path), "-1"], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= 20_000:
                os.kill(process.pid, signal.SIGKILL)
                break
        process.wait(60)
    steps = [step for step, _ in read_points(tmp_path)["x"]]
    assert len(steps) >= 20_000
    assert steps == list(range(len(steps)))


def test_a_process_that_forgets_to_close_loses_nothing(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _SCRIPT, str(tmp_path), "500"], check=True, timeout=60)
    assert len(read_points(tmp_path)["x"]) == 500


def test_a_forked_child_leaves_the_file_alone(tmp_path: Path) -> None:
    script = f"""
    import os
    from determined.tensorboard._events import ScalarEvents

    events = ScalarEvents({str(tmp_path)!r})
    events.add_scalar("x", 1, 1)
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        events.add_scalar("x", 2, 2)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=60)
    assert read_points(tmp_path) == {"x": [(1, 1.0), (2, 2.0)]}
