"""The kernel ends a trial that needs more memory than its group may have."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined.platform.supervisor import presence
from tests.cli.det import run_det
from tests.support.lab import Lab, lab

__all__ = ["lab"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(100)]

LIMIT = 192 << 20

# It puts itself into the group, since only it must be limited.
_HUNGRY = """
import os, sys
from pathlib import Path
import determined as det
from determined import core
with core.init() as ctx:
    latest = det.get_cluster_info().latest_checkpoint
    if latest is None and {saves}:
        with ctx.checkpoint.store_path({{"steps_completed": 1}}) as (path, _):
            (path / "state").write_text("1")
    if latest is None:
        Path({group!r}, "cgroup.procs").write_text(str(os.getpid()))
        eaten = [bytearray(1 << 20) for _ in range(1024)]
        print("survived", len(eaten))
    else:
        print("goes on after", latest)
"""
_CHILD = """
import os, subprocess, sys
from pathlib import Path
eats = "import sys, os; from pathlib import Path; " \\
    "Path(sys.argv[1], 'cgroup.procs').write_text(str(os.getpid())); " \\
    "eaten = [bytearray(1 << 20) for _ in range(1024)]"
sys.exit(subprocess.run([sys.executable, "-c", eats, {group!r}]).returncode % 256)
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with little memory, in either of the kernel's two versions."""
    with contextlib.ExitStack() as stack:
        for root, limit in (
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ):
            folder = Path(root, f"det-test-{uuid.uuid4().hex}")
            try:
                folder.mkdir()
            except OSError:
                continue
            stack.callback(_remove, folder)
            try:
                (folder / limit).write_text(str(LIMIT))
            except OSError:
                continue
            with contextlib.suppress(OSError):  # where there is swap
                swap = "memory.swap.max" if limit == "memory.max" else "memory.memsw.limit_in_bytes"
                (folder / swap).write_text("0" if limit == "memory.max" else str(LIMIT))
            yield folder
            return
        pytest.skip("limiting memory needs control groups, and the right to make one")


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            folder.rmdir()
            return
        except OSError:  # the last of its processes is just ending
            time.sleep(0.02)


def test_a_trial_that_is_killed_for_memory_says_so_and_is_not_tried_for_ever(
    lab: Lab, group: Path
) -> None:
    script = _HUNGRY.format(group=str(group), saves=False)
    experiment_id = lab.create(script, max_restarts=1)
    facts = presence.find(lab.home)
    assert lab.wait(experiment_id).state == "ERROR"
    (trial,) = lab.trials(experiment_id)
    assert trial.restarts == 1
    assert "lack of memory" in trial.reason
    assert len(lab.runs(experiment_id)) == 2
    assert all("survived" not in lab.log(run) for run in lab.runs(experiment_id))
    home = {"DET_HOME": str(lab.home.path)}
    for words in (["t", "describe", str(trial.id)], ["e", "describe", str(experiment_id)]):
        shown = run_det(*words, environment=home)
        assert shown.returncode == 0
    assert "lack of memory" in run_det("t", "describe", str(trial.id), environment=home).stdout
    now = presence.find(lab.home)
    assert facts is not None
    assert now is not None
    assert now.pid == facts.pid, "the supervisor was killed, too"
    assert lab.wait(lab.create("pass")).state == "COMPLETED"


def test_after_a_new_checkpoint_it_goes_on_from_there(lab: Lab, group: Path) -> None:
    experiment_id = lab.create(_HUNGRY.format(group=str(group), saves=True), max_restarts=1)
    assert lab.wait(experiment_id).state == "COMPLETED"
    (trial,) = lab.trials(experiment_id)
    assert trial.restarts == 0
    first, second = lab.runs(experiment_id)
    assert first.exit_code == 137
    assert "goes on after" in lab.log(second)


def test_a_child_that_is_killed_for_memory_is_told_of_too(lab: Lab, group: Path) -> None:
    """A launcher reports the end of its rank by a status of its own."""
    experiment_id = lab.create(_CHILD.format(group=str(group)), max_restarts=0)
    assert lab.wait(experiment_id).state == "ERROR"
    (trial,) = lab.trials(experiment_id)
    assert "lack of memory" in trial.reason, trial.reason


def test_a_limit_of_the_address_space_is_an_error_of_the_script(lab: Lab) -> None:
    script = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "bytearray(1 << 31)\n"
    )
    experiment_id = lab.create(script)
    assert lab.wait(experiment_id).state == "ERROR"
    (trial,) = lab.trials(experiment_id)
    assert "MemoryError" in trial.reason
