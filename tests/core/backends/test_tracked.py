"""A script that nobody launched: what is recorded of it, and that this is never in its way."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from determined import journal
from determined.core import EarlyExitReason
from determined.core.backends.backend import RunDescription
from determined.core.backends.recorder import Recorder
from determined.core.backends.run_log import LogTap
from determined.core.backends.tracked import TrackedBackend
from determined.journal import InboxItem, JournalReader, Record, item_names
from tests.support import tracked
from tests.support.waiting import eventually

STORAGE = {"type": "shared_fs", "host_path": "/data"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    monkeypatch.setenv("DET_HOME", str(path))
    return path


@pytest.fixture
def backend(home: Path) -> Iterator[TrackedBackend]:
    made = TrackedBackend(STORAGE)
    yield made
    made.close()


def items(home: Path) -> list[InboxItem]:
    return [InboxItem(home / "inbox" / name) for name in item_names(home)]


def records_of(item: InboxItem, *kinds: type[Record]) -> list[Any]:
    return list(JournalReader(item.journal).records(only=kinds))


class TestWhatIsRecorded:
    def test_nothing_until_something_is_reported(self, home: Path) -> None:
        backend = TrackedBackend(STORAGE)
        backend.set_status("starting")
        backend.report_progress(0.0)
        backend.close()
        assert not home.exists()

    def test_a_run_introduces_itself_and_tells_its_end(
        self, home: Path, backend: TrackedBackend
    ) -> None:
        backend.set_status("starting")
        backend.describe_run(
            RunDescription(
                run_id="me",
                hparams={"lr": 0.1, "net": {"depth": np.int64(3)}, "f": print},
                seed=7,
                continues="some-uuid",
                steps_completed=40,
                metric="loss",
                smaller_is_better=False,
            )
        )
        batches = [{"loss": 0.75}, {"loss": 0.25}]
        backend.report_metrics("training", 42, {"loss": np.float32(0.5), "raw": b"x"}, batches)
        backend.note_end(None, None)
        backend.close()
        (item,) = items(home)
        first, started, metrics, ended = records_of(item)
        assert isinstance(first, journal.Introduction)
        assert (first.run_id, first.continues, first.seed) == ("me", "some-uuid", 7)
        assert first.hparams["net"] == {"depth": 3}
        assert (first.storage, first.pid, first.metric) == (STORAGE, os.getpid(), "loss")
        assert (first.steps_completed, first.smaller_is_better) == (40, False)
        assert started.steps_completed == 40
        assert metrics.metrics == {"loss": 0.5}
        assert metrics.batches.to_dicts() == batches
        assert (ended.state, ended.reason) == ("COMPLETED", "finished")
        assert not item.is_held

    def test_a_checkpoint_alone_is_worth_it_and_is_on_disk_first(
        self, home: Path, backend: TrackedBackend
    ) -> None:
        backend.before_save("u", {"steps_completed": 3})
        (item,) = items(home)
        assert [r.uuid for r in records_of(item, journal.CheckpointAnnounced)] == ["u"]
        record = {"uuid": "u", "resources": {"w": 1}, "metadata": {"p": Path("x")}}
        backend.report_checkpoint(record)
        backend.checkpoint_deleted("u")
        backend.report_early_exit(EarlyExitReason.INVALID_HP)
        backend.close()
        kinds = (journal.Checkpoint, journal.CheckpointDeleted, journal.EarlyExit)
        assert [type(record) for record in records_of(item, *kinds)] == list(kinds)

    def test_a_quick_try_is_not_recorded(self, home: Path, backend: TrackedBackend) -> None:
        backend.describe_run(RunDescription(is_trial_run=True))
        backend.report_metrics("training", 1, {"loss": 1.0})
        backend.before_save("u", {})
        backend.close()
        assert not home.exists()

    def test_each_fit_of_a_process_is_a_run(self, home: Path, backend: TrackedBackend) -> None:
        for number in (1, 2):
            backend.describe_run(RunDescription(run_id=f"run-{number}"))
            backend.report_metrics("training", 1, {"loss": 1.0})
        backend.note_end(ValueError("second"), None)
        backend.close()
        first, second = items(home)
        assert records_of(first)[0].run_id == "run-1"
        assert records_of(first)[-1].state == "COMPLETED"
        assert (records_of(second)[0].run_id, records_of(second)[-1].state) == ("run-2", "ERROR")
        assert "ValueError: second" in second.log.read_text()

    def test_a_failure_that_the_script_survives_is_a_failure_once(
        self, home: Path, backend: TrackedBackend
    ) -> None:
        backend.report_metrics("training", 1, {"loss": 1.0})
        error = ValueError("survived")
        for known in (error, error, None):
            backend.note_end(known, None)
        backend.describe_run(RunDescription(run_id="next"))
        backend.report_metrics("training", 1, {"loss": 1.0})
        backend.note_end(None, None)
        backend.close()
        first, second = items(home)
        assert [records_of(item)[-1].state for item in (first, second)] == ["ERROR", "COMPLETED"]
        assert first.log.read_text().count("ValueError: survived") == 1

    def test_reports_reach_the_disk_a_moment_later(
        self, home: Path, backend: TrackedBackend
    ) -> None:
        backend.report_metrics("training", 1, {"loss": 1.0})
        eventually(lambda: items(home) and records_of(items(home)[0], journal.Metrics))
        backend.report_metrics("training", 2, {"loss": 1.0})
        eventually(lambda: len(records_of(items(home)[0], journal.Metrics)) == 2)

    def test_many_reports_keep_their_order(self, home: Path, backend: TrackedBackend) -> None:
        for step in range(5000):
            backend.report_metrics("training", step, {"loss": float(step)})
        backend.close()
        (item,) = items(home)
        assert [r.steps_completed for r in records_of(item, journal.Metrics)] == list(range(5000))


class TestWhatIsNeverInTheWay:
    def test_a_home_that_cannot_be_written_is_one_debug_line(
        self, home: Path, backend: TrackedBackend, caplog: pytest.LogCaptureFixture
    ) -> None:
        home.write_text("in the way")
        with caplog.at_level(logging.DEBUG, logger="determined.core"):
            for step in range(3):
                backend.report_metrics("training", step, {"loss": 1.0})
                backend.before_save(str(step), {})
            backend.close()
        about = [r for r in caplog.records if "recorded" in r.getMessage()]
        assert [record.levelname for record in about] == ["DEBUG"]
        assert home.read_text() == "in the way"

    def test_a_disk_that_is_missing_is_not_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DET_HOME", str(tmp_path / "disk" / "home"))
        backend = TrackedBackend(STORAGE)
        backend.report_metrics("training", 1, {"loss": 1.0})
        backend.close()
        assert not (tmp_path / "disk").exists()

    @pytest.mark.parametrize("text", ["tracking: off", "tracking: false", "tracking: 'off'"])
    def test_the_home_can_say_no(self, home: Path, backend: TrackedBackend, text: str) -> None:
        home.mkdir()
        (home / "platform.yaml").write_text(f"{text}\n")
        backend.report_metrics("training", 1, {"loss": 1.0})
        backend.close()
        assert item_names(home) == []

    def test_values_that_cannot_be_written_cost_only_themselves(
        self, home: Path, backend: TrackedBackend, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, logger="determined.core")  # nobody shows the value

        class Bad:
            def __str__(self) -> str:
                raise RuntimeError("no")

            __repr__ = __str__

        backend.report_metrics("training", 1, {"loss": Bad()})
        backend.report_metrics("training", 2, {"loss": 1.0})
        backend.close()
        (item,) = items(home)
        assert [r.steps_completed for r in records_of(item, journal.Metrics)] == [2]

    def test_a_record_that_is_too_large_does_not_hold_up_the_others(
        self, home: Path, backend: TrackedBackend
    ) -> None:
        backend.report_metrics("training", 1, {"text": "x" * (65 << 20)})
        backend.report_metrics("training", 2, {"loss": 1.0})
        backend.close()
        (item,) = items(home)
        assert [r.steps_completed for r in records_of(item, journal.Metrics)] == [2]

    def test_a_forked_child_says_nothing(self, home: Path, backend: TrackedBackend) -> None:
        backend.report_metrics("training", 1, {"loss": 1.0})
        eventually(lambda: items(home) and records_of(items(home)[0], journal.Metrics))
        child = os.fork()
        if child == 0:
            backend.report_metrics("training", 99, {"loss": 1.0})
            backend.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        backend.report_metrics("training", 2, {"loss": 1.0})
        backend.close()
        (item,) = items(home)
        assert [r.steps_completed for r in records_of(item, journal.Metrics)] == [1, 2]

    def test_threads_may_report_at_once(self, home: Path, backend: TrackedBackend) -> None:
        def report(group: str) -> None:
            for step in range(200):
                backend.report_metrics(group, step, {"loss": 1.0})

        threads = [threading.Thread(target=report, args=(f"g{i}",)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        backend.close()
        (item,) = items(home)
        found = records_of(item, journal.Metrics)
        for i in range(4):
            assert [r.steps_completed for r in found if r.group == f"g{i}"] == list(range(200))

    def test_nothing_is_recorded_after_the_end(self, home: Path, backend: TrackedBackend) -> None:
        backend.report_metrics("training", 1, {"loss": 1.0})
        backend.close()
        size = items(home)[0].size
        backend.report_metrics("training", 2, {"loss": 1.0})
        backend.close()
        assert [item.size for item in items(home)] == [size]


class TestTheLog:
    def test_lines_of_the_library_are_kept_with_their_times(
        self, home: Path, backend: TrackedBackend
    ) -> None:
        backend.report_metrics("training", 1, {"loss": 1.0})
        logging.getLogger("determined.pytorch").warning("something is odd")
        backend.close()
        (item,) = items(home)
        lines = item.log.read_text().splitlines()
        assert any(line.endswith("determined.pytorch: something is odd") for line in lines)
        assert item.log_times.stat().st_size > 0

    def test_warnings_are_shown_where_python_shows_them(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        taken: list[str] = []
        tap = LogTap(taken.append)
        logger = logging.getLogger("determined.some.part")
        logger.warning("before")
        tap.attach()
        logger.warning("with")
        logging.getLogger("determined").addHandler(logging.NullHandler())
        logger.warning("handled elsewhere")
        logging.getLogger("determined").handlers.pop()
        tap.detach()
        logger.warning("after")
        assert capsys.readouterr().err == "before\nwith\nafter\n"
        assert len(taken) == 2


_SCRIPT = """
import os, sys, time
from determined import core
context = core.init()
context.__enter__()
for step in range(1, 4):
    context.train.report_training_metrics(step, {"loss": 1.0 / step})
print("out")
print("err", file=sys.stderr)
mode = sys.argv[1]
if mode == "forget":
    pass
elif mode == "raise":
    raise ValueError("bad")
elif mode == "wait":
    print("ready", flush=True)
    time.sleep(600)
"""


class TestProcesses:
    def test_a_context_that_nobody_closes_ends_with_its_process(self, home: Path) -> None:
        script = tracked.write(home.parent, _SCRIPT)
        assert tracked.run(home, script, "forget") == (0, "out\n", "err\n")
        status, output, errors = tracked.run(home, script, "raise")
        assert (status, output) == (1, "out\n")
        assert errors.startswith("err\nTraceback")
        ends = [records_of(item)[-1] for item in items(home)]
        assert [(e.state, e.reason) for e in ends] == [
            ("COMPLETED", "finished"),
            ("ERROR", "ValueError: bad"),
        ]

    def test_a_killed_process_leaves_what_it_reported_and_a_free_lock(self, home: Path) -> None:
        process = tracked.start(home, tracked.write(home.parent, _SCRIPT), "wait")
        assert process.stdout is not None
        while process.stdout.readline() != "ready\n":
            pass
        eventually(lambda: items(home) and len(records_of(items(home)[0], journal.Metrics)) == 3)
        assert items(home)[0].is_held
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not items(home)[0].is_held
        assert records_of(items(home)[0], journal.Ended) == []

    def test_tracking_off_and_one_liners_leave_no_trace(self, home: Path) -> None:
        script = tracked.write(home.parent, _SCRIPT)
        tracked.run(home, script, "forget", DET_TRACKING="off")
        code = "import sys; sys.argv = ['x', 'forget']\n" + _SCRIPT
        done = subprocess.run(
            [sys.executable, "-c", code], env=tracked.environment(home), capture_output=True
        )
        assert done.returncode == 0
        assert not home.exists()

    def test_recording_imports_nothing_heavy(self, home: Path) -> None:
        text = _SCRIPT + "context.close()\nprint(json.dumps(sorted(sys.modules)))\n"
        script = tracked.write(home.parent, "import json\n" + text)
        _, output, _ = tracked.run(home, script, "none")
        loaded = json.loads(output.splitlines()[-1])
        assert items(home)
        assert {"torch", "pydantic", "sqlite3", "yaml"} & set(loaded) == set()


def test_a_recorder_that_never_began_can_be_closed() -> None:
    def introduce(item: InboxItem) -> journal.Introduction:
        raise AssertionError

    recorder = Recorder(introduce)
    recorder.note(journal.Heartbeat())
    recorder.close("COMPLETED", "")
    assert not recorder.has_begun
