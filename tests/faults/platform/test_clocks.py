"""Clocks that jump: what happens follows the order of things, and waits are not prolonged."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.det import run_det
from tests.cli.scripts import STEPS
from tests.dashboard.served import served
from tests.faults.platform.steady import check_as_unbroken, script
from tests.support.lab import Lab, lab
from tests.support.preloaded import compiled
from tests.support.victims import batches_noted, check_storage
from tests.support.waiting import eventually

__all__ = ["lab"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(600)]

# A time of day that is off by as many seconds as a file says; intervals are not.
_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long off(void) {
    const char *path = getenv("TEST_CLOCK");
    FILE *file = path ? fopen(path, "re") : NULL;
    long seconds = 0;
    if (file) { if (fscanf(file, "%ld", &seconds) != 1) seconds = 0; fclose(file); }
    return seconds;
}
int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, now);
    if (id == CLOCK_REALTIME) now->tv_sec += off();
    return result;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *place) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (place) *place = exact.tv_sec;
    return exact.tv_sec;
}
"""

Set = Callable[[int], None]


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Set:
    """Set the clock of the supervisor, keepers and trials off by so many seconds."""
    file = tmp_path / "clock"
    monkeypatch.setenv("LD_PRELOAD", str(compiled("clock", _CLOCK)))
    monkeypatch.setenv("TEST_CLOCK", str(file))

    def set_off(seconds: int) -> None:
        draft = file.with_suffix(".draft")
        draft.write_text(str(seconds))
        draft.replace(file)

    set_off(0)
    return set_off


_HOUR, _DAY, _YEAR = 3600, 86_400, 31_556_952


def test_everything_goes_on_while_the_clock_jumps(lab: Lab, clock: Set) -> None:
    """By hours, days and years, back and forth, while a trial reports, saves and is restarted."""
    script = STEPS.replace("SECONDS = 0.0", "SECONDS = 0.05").replace(
        "if steps % 10 == 0:",
        "if steps == 15 and info.trial._trial_run_id == 1: raise SystemExit(3)\n"
        "        if steps % 10 == 0:",
    )
    number = lab.create(script, max_restarts=2, max_wall_time=None)
    for jump in (_HOUR, -_HOUR, _DAY, -2 * _DAY, 0, _YEAR, -_YEAR, 7, -1, 0):
        clock(jump)
        time.sleep(0.1)
    clock(-_DAY)  # its restart was to wait for a second, by the clock of that time
    assert lab.wait(number).state == "COMPLETED"
    (trial,) = lab.trials(number)
    reports = lab.service.reader.metrics.reports(trial.id, "training")
    assert [report.steps_completed for report in reports] == list(range(1, 21))
    assert trial.restarts <= 1
    runs = lab.runs(number)
    assert [run.run_id for run in runs] == list(range(1, len(runs) + 1))
    saved = [checkpoint.steps_completed for checkpoint in lab.checkpoints(number)]
    assert sorted(saved) in ([10, 20], [20])
    home = {"DET_HOME": str(lab.home.path)}
    for words in (["t", "logs", "1"], ["t", "describe", "1"], ["e", "list"], ["job", "list"]):
        shown = run_det(*words, environment=home)
        assert shown.returncode == 0, shown.stderr
        assert words[1] != "logs" or shown.stdout.count("ends at 20") == 1


def test_a_clock_set_back_does_not_prolong_the_wait_for_a_restart(lab: Lab, clock: Set) -> None:
    clock(_YEAR)
    number = lab.create("raise SystemExit(1)", max_restarts=1)
    lab.until(lambda: lab.trials(number)[0].restarts == 1)
    clock(0)
    assert lab.wait(number).state == "ERROR"
    assert len(lab.runs(number)) == 2


_WAITS = "import os, time\nwhile not os.path.exists({!r}): time.sleep(0.02)"


def test_limits_of_time_do_not_follow_a_clock_that_jumps(lab: Lab, clock: Set) -> None:
    gate = lab.folder / "gate"
    script = _WAITS.format(str(gate))
    number = lab.create(script, max_wall_time=_HOUR, max_trial_wall_time=_HOUR)
    lab.until(lambda: lab.runs(number))
    time.sleep(0.5)  # the supervisor looks at it once or more
    clock(_YEAR)
    short = lab.create(_WAITS.format(""), max_wall_time=2)
    lab.until(lambda: lab.runs(short))
    clock(-_YEAR)
    assert lab.wait(short).reason == "reached max_wall_time (2 s)", lab.account()
    gate.touch()
    assert lab.wait(number).state == "COMPLETED", lab.account()
    assert lab.trials(number)[0].reason == "finished"


def test_a_command_counts_more_than_a_limit_that_passed_unwatched(lab: Lab, clock: Set) -> None:
    number = lab.create(_WAITS.format(""), max_trial_wall_time=_HOUR)
    lab.until(lambda: lab.runs(number))
    lab.kill_supervisor()
    clock(2 * _HOUR)
    (trial,) = lab.trials(number)
    lab.service.kill_trial(trial.id)  # the next supervisor finds both in its first tick
    lab.wait(number)
    (trial,) = lab.trials(number)
    assert (trial.state, trial.reason) == ("CANCELED", "killed by the user"), lab.account()


def test_a_day_forth_and_back_changes_no_step_no_curve_and_no_line(lab: Lab, clock: Set) -> None:
    """Supervisor, keeper and trial are all of another day; warm helpers have their own clock."""
    cold: Any = {"environment": {"warm_start": False}}
    experiment_id = lab.create(script(0.1), max_wall_time=_HOUR, max_trial_wall_time=_HOUR, **cold)

    def at_step(step: int) -> bool:
        return any(f"step {step}\n" in lab.log(run) for run in lab.runs(experiment_id))

    for step, jump in ((2, _DAY), (5, -_DAY), (8, _DAY), (10, 0)):
        lab.until(functools.partial(at_step, step))
        clock(jump)
    check_as_unbroken(lab, experiment_id)
    assert len(lab.runs(experiment_id)) == 1
    with served(lab.home) as shown:
        head, curves = shown.series(keys="1:training:loss", px=400)
        assert [len(curve["x"]) for curve in curves] == [12], head
        assert curves[0]["x"] == sorted(curves[0]["x"])
        lines = shown.json("/api/trials/1/logs", limit=100)["lines"]
        steps = [line["text"] for line in lines if "step " in line["text"]]
    assert [int(text.rsplit(" ", 1)[1]) for text in steps] == list(range(1, 13))


_SWEEPS = """
import sys
from determined.storage import SharedFSStorageManager
SharedFSStorageManager(sys.argv[1]).sweep()
"""


def test_no_save_of_a_living_process_is_taken_for_an_old_one(clock: Set, tmp_path: Path) -> None:
    """A second process a day later sweeps the storage, while the first one trains and saves."""
    setup = json.dumps({"batches": 20, "batch_seconds": 0.1})
    words = [sys.executable, "-m", "tests.support.victims", str(tmp_path / "run"), setup]
    root = Path(__file__).parents[3]

    def is_trained(batch: int) -> bool:
        return batch in batches_noted(tmp_path / "run")

    with subprocess.Popen(words, cwd=root, stdout=subprocess.DEVNULL) as training:
        for batch, jump in ((4, _DAY), (10, -_DAY), (16, 0)):
            eventually(functools.partial(is_trained, batch), f"batch {batch}")
            clock(jump)
            words = [sys.executable, "-c", _SWEEPS, str(tmp_path / "run" / "storage")]
            subprocess.run(words, check=True)
        assert training.wait(100) == 0
    assert sorted(check_storage(tmp_path / "run")) == list(range(2, 21, 2))
    assert batches_noted(tmp_path / "run") == list(range(20))


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "UTC"])
def test_the_hour_that_comes_twice_is_told_apart(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from determined.cli._present.tables import time_text

    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        end_of_summer = 1_793_494_800.0  # 2026-11-01 01:00 UTC
        moments = [end_of_summer - 7 * _DAY + 900 * n for n in range(8 * 96)]
        texts = [time_text(moment) for moment in moments]
        assert len(set(texts)) == len(texts)
        leap_second = time_text(1_483_228_799.0), time_text(1_483_228_800.0)  # the last so far
        assert leap_second[0] != leap_second[1]
    finally:
        monkeypatch.undo()
        time.tzset()
