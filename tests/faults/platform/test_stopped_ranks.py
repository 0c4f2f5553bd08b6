"""One of two ranks is stopped by a signal (SIGSTOP): the user decides, and nothing is left."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from determined.platform.runs.folder import RunFolder
from tests.faults.platform.steady import check_as_unbroken, check_only_the_supervisor_lives, script
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(200)]

# What a launcher is to the platform: it starts two processes and waits for both. No torch.
_LAUNCHER = """
import os, signal, subprocess, sys
ranks = [
    subprocess.Popen([sys.executable, name], env={**os.environ, "RANK": str(rank)})
    for rank, name in enumerate(["chief.py", "other.py"])
]
signal.signal(signal.SIGTERM, lambda *_: [rank.terminate() for rank in ranks])
code = max(abs(rank.wait()) for rank in ranks)
sys.exit(min(code, 1) if code != 137 else code)
"""
# Keeps step with the chief through pipes, as ranks do by collectives.
_OTHER = """
import os, time
while not os.path.exists("answers"): time.sleep(0.01)
with open("steps") as steps, open("answers", "w", buffering=1) as answers:
    for line in steps:
        answers.write(line)
"""
_CHIEF = script(0.05).replace(
    '        print("step", step, flush=True)\n',
    '        print("step", step, flush=True)\n        together(step)\n',
)
_TOGETHER = """
import os
for name in ("steps", "answers"):
    if not os.path.exists(name): os.mkfifo(name)
steps, answers = open("steps", "w", buffering=1), open("answers")
def together(step):
    steps.write(f"{step}\\n")
    if answers.readline() != f"{step}\\n": raise RuntimeError("the other rank is gone")
"""


def _create(lab: Lab, **config: Any) -> int:
    files = {"chief.py": _TOGETHER + _CHIEF, "other.py": _OTHER}
    return lab.create(_LAUNCHER, files=files, **config)


def _ranks(lab: Lab, experiment_id: int) -> dict[str, psutil.Process]:
    lab.until(lambda: lab.checkpoints(experiment_id))
    folder = lab.runs(experiment_id)[-1].folder
    found = {}
    for process in lab.processes():
        with contextlib.suppress(psutil.Error):
            rank = process.environ().get("RANK")
            if rank is not None and folder in process.environ().get("DET_RUN_DIR", ""):
                found[rank] = process
    return found


@contextlib.contextmanager
def _stopped(*pids: int) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_trial_goes_on_exactly_when_its_rank_is_resumed(lab: Lab, rank: str) -> None:
    experiment_id = _create(lab)
    victim = _ranks(lab, experiment_id)[rank]
    with _stopped(victim.pid):
        lab.until(lambda: victim.status() == psutil.STATUS_STOPPED)
        assert lab.experiment(experiment_id).state == "ACTIVE"
    check_as_unbroken(lab, experiment_id)
    assert len(lab.runs(experiment_id)) == 1


@pytest.mark.parametrize("victims", [["0"], ["1"], ["0", "1"], ["1", "keeper"]])
def test_a_kill_ends_stopped_ranks(lab: Lab, victims: list[str]) -> None:
    experiment_id = _create(lab)
    ranks = _ranks(lab, experiment_id)
    keeper = RunFolder(lab.runs(experiment_id)[-1].folder).keeper
    assert keeper is not None
    pids = [keeper.pid if name == "keeper" else ranks[name].pid for name in victims]
    with _stopped(*pids):
        lab.service.kill(experiment_id)
        assert lab.wait(experiment_id).state == "CANCELED"
        check_only_the_supervisor_lives(lab)


@pytest.mark.parametrize("victim", ["1", "keeper"])
def test_a_pause_ends_stopped_ranks_after_its_time_and_the_trial_goes_on_later(
    lab: Lab, victim: str
) -> None:
    experiment_id = _create(lab, preemption_timeout=1)
    ranks = _ranks(lab, experiment_id)
    keeper = RunFolder(lab.runs(experiment_id)[-1].folder).keeper
    assert keeper is not None
    with _stopped(keeper.pid if victim == "keeper" else ranks[victim].pid):
        lab.service.pause(experiment_id)
        lab.until(lambda: not lab.service.reader.unfinished_runs())
        check_only_the_supervisor_lives(lab)
    end = RunFolder(lab.runs(experiment_id)[-1].folder).exit
    assert end is not None
    assert victim == "keeper" or end.stopped_by == "SIGTERM", "it was not resumed to end by itself"
    lab.service.activate(experiment_id)
    check_as_unbroken(lab, experiment_id)
