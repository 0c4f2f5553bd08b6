"""Another user of the machine reads nothing, signals nobody and starts nothing."""

from __future__ import annotations

import ast
import os
import signal
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

import determined
from determined.dashboard.server.token import load_token
from determined.platform.supervisor import presence
from tests.cli.scripts import ENDLESS, STEPS
from tests.support.lab import Lab
from tests.support.other_user import as_other_user, refusal_of

_SOURCE = Path(determined.__file__).parent


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """An open house: its folder was there before, and everybody may look into new files."""
    mask = os.umask(0)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as name:
        patch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "60")
        patch.setenv("DET_SLOTS", "1")
        Path(name).chmod(0o755)
        lab = Lab(Path(name))
        lab.home.path.mkdir(mode=0o755)
        try:
            lab.wait(lab.create(STEPS))
            load_token(lab.home.path)
            running = lab.create(ENDLESS)
            lab.until(lambda: any("is running" in lab.log(run) for run in lab.runs(running)))
            yield lab
            lab.service.kill(running)
            lab.wait(running)
        finally:
            os.umask(mask)
            lab.close()


def _reachable(home: Path) -> list[str]:
    """What can be read, written to or listed below a folder, besides its names at the top."""
    found = []
    for folder, folders, files in os.walk(home):
        for name in [*folders, *files]:
            path = f"{folder}/{name}"
            if any(os.access(path, mode) for mode in (os.R_OK, os.W_OK)):
                found.append(path)
    return found


@pytest.mark.multiprocess
@pytest.mark.slow
def test_nothing_of_a_home_can_be_read(lab: Lab) -> None:
    names = {path.name for path in lab.home.path.iterdir()}
    assert {"store.db", "checkpoints", "snapshots", "dashboard.token", "wake"} <= names
    assert any(lab.home.checkpoints.iterdir())
    assert as_other_user(lambda: _reachable(lab.home.path)) == []


@pytest.mark.multiprocess
@pytest.mark.slow
def test_nobody_else_can_signal_or_wake_anything(lab: Lab) -> None:
    processes = lab.processes()
    assert len(processes) >= 3  # a supervisor, a keeper, a trial
    for process in processes:
        kill = partial(os.kill, process.pid, signal.SIGTERM)
        assert as_other_user(partial(refusal_of, kill)) == "PermissionError"
    assert as_other_user(lambda: refusal_of(lambda: presence.wake(lab.home))) == "PermissionError"
    assert as_other_user(lambda: refusal_of(lambda: presence.find(lab.home))) == "PermissionError"


@pytest.mark.multiprocess
@pytest.mark.slow
def test_the_platform_itself_listens_nowhere(lab: Lab) -> None:
    for process in lab.processes():
        listening = [c for c in process.net_connections("all") if c.status == psutil.CONN_LISTEN]
        named = [c for c in process.net_connections("unix") if c.laddr]
        assert listening + named == [], process.cmdline()


# Between ranks, objects of the user's code are exchanged: authenticated before they are unpickled.
# From a checkpoint, numbers only, by a reader that names no class.
_MAY_UNPICKLE = {
    "_code/shipped_target.py",  # a function of the user's, from the experiment's own code
    "core/ranks/group.py",  # from ranks that were authenticated
    "core/ranks/joint_saves.py",  # the same
    "pytorch/_checkpoint/files/reading.py",  # tensors and numbers
    "transformers/_exact.py",  # the same
    "lightning/_data.py",  # the same
    "selftest/checks/ranks.py",  # what the self-test has just written
    "selftest/checks/saving.py",  # the same
    "pytorch/replay/_lockstep.py",  # the same, from another process of the same user
}


def test_pickles_are_read_in_few_places_only() -> None:
    found = set()
    for path in _SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                called = (node.value.id, node.attr)
                unpickles = called[0] in ("pickle", "dill", "cloudpickle", "marshal", "shelve")
                if unpickles and called[1] in ("load", "loads", "Unpickler", "open"):
                    found.add(str(path.relative_to(_SOURCE)))
                if called in (("torch", "load"), ("joblib", "load")):
                    found.add(str(path.relative_to(_SOURCE)))
    assert found == _MAY_UNPICKLE


def test_torch_files_are_loaded_without_code_unless_trusted() -> None:
    for name in _MAY_UNPICKLE - {"pytorch/_checkpoint/files/reading.py"}:
        text = (_SOURCE / name).read_text()
        assert text.count("torch.load(") == text.count("weights_only=True")
    text = (_SOURCE / "pytorch/_checkpoint/files/reading.py").read_text()
    calls = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load"
    ]
    assert calls
    assert all(ast.unparse(call.keywords[-1]) == "**options" for call in calls)
    assert '"weights_only": not allow_pickle' in text
