"""Commands on experiments that exist, in a wrong state or with values that hardly fit."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings

from determined.platform.supervisor import presence
from tests.cli.det import call_det, det_on_a_terminal
from tests.cli.scripts import STEPS
from tests.support.hostile_calls import calls, words_of
from tests.support.lab import Lab
from tests.support.messages import documented
from tests.support.saving import collected
from tools.command_tree import WORKING, Words

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

# What starts something that runs on, would wait for it, or puts another store in its place.
_LEFT_OUT = {
    *[("experiment", verb) for verb in ("create", "continue", "activate")],
    *[("supervisor", verb) for verb in ("start", "stop", "install", "logs")],
    ("trial", "debug"),
    ("dashboard",),
    ("mcp",),
    ("store", "rebuild"),
    ("tensorboard", "start"),
}
_TELLS_MORE = ("create", "validate", "preview-search", "status", "wait", "verify")
# The last output of a training that cannot be repeated follows these.
_WITH_OUTPUT = ("det: The trials could not be trained again.", "det: The replay of ")
_commands = [words for words in WORKING if words not in _LEFT_OUT]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Experiments 1 (over, with a checkpoint) and 2 (paused), and a supervisor at work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "300")
        patch.setenv("DET_SLOTS", "1")
        lab = Lab(tmp_path_factory.mktemp("use"))
        lab.create(STEPS, name="over")
        collected(lab, [1])
        lab.create(STEPS, name="paused", paused=True)
        (lab.folder / "work").mkdir()
        patch.chdir(lab.folder / "work")
        yield lab
        lab.service.kill(2)
        lab.close()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("e", "pause", "1"), "is COMPLETED: it cannot be paused"),
        (("e", "activate", "1"), "is COMPLETED: it cannot be activated"),
        (("e", "archive", "2"), "only an experiment that has ended can be archived"),
        (("e", "unarchive", "1"), "is not archived already"),
        (("e", "delete", "2", "--yes"), "only an experiment that has ended can be deleted"),
        (("e", "delete", "1,2", "--yes"), "only an experiment that has ended can be deleted"),
        (("e", "continue", "2"), "only an experiment that has ended can be continued"),
        (("e", "set", "max-slots", "1", "0"), "no trial could ever start"),
        (("e", "download", "2"), "was saved at a validation with the metric 'loss'"),
        (("t", "download", "2", "--latest"), "has no complete checkpoint"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_state_is_told_in_one_line(lab: Lab, words: Words, told: str) -> None:
    answer = call_det(*words, home=lab.home.path)
    assert answer.code == 1
    assert told in answer.errors
    assert answer.errors.count("\n") == 1
    assert [e.state for e in lab.service.reader.experiments().rows] == ["COMPLETED", "PAUSED"]
    if words == ("e", "delete", "2", "--yes"):
        documented("an experiment is to be deleted that has not ended", answer.errors)


@settings(
    max_examples=250,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(calls(_commands, [words[-1] for words in _commands if words[-1] != "delete"]))
@example(("experiment", "set", "name", "1", "\x01"))
@example(("experiment", "label", "add", "1", "\udcff"))
@example(("experiment", "move", "1", "\x01", ".."))
@example(("experiment", "describe", "1", "--outdir", "..\x01"))
@example(("trial", "support-bundle", "1", "-o", "\x01"))
@example(("experiment", "download", "1", "-o", "x\x01", "--sort-by", "loss"))
@example(("experiment", "set", "weight", "1", "1e999"))
@example(("export", "parquet", "1", "x\udcff"))
def test_no_value_brings_about_a_traceback(lab: Lab, call: Words) -> None:
    answer = call_det(*call, home=lab.home.path)
    assert "Traceback" not in answer.errors, answer.errors
    assert "bug in `det`" not in answer.errors
    assert "The supervisor failed" not in answer.errors
    tells_more = words_of(call)[-1] in _TELLS_MORE or answer.errors.startswith(_WITH_OUTPUT)
    if answer.code == 1 and not tells_more:
        assert answer.errors.count("\n") == 1, answer.errors
    assert Path.cwd().parent == lab.folder


def test_ctrl_c_stops_waiting_but_not_the_deletion(lab: Lab) -> None:
    number = lab.create("print('short')")
    collected(lab, [number])
    facts = presence.find(lab.home)
    assert facts is not None
    os.kill(facts.pid, signal.SIGSTOP)  # so that the answer does not come
    try:
        home = {"DET_HOME": str(lab.home.path)}
        with det_on_a_terminal("e", "delete", str(number), "--yes", environment=home) as terminal:
            while not lab.service.reader.has_unanswered():
                assert terminal.process.poll() is None, (terminal.end(), terminal.output)
                time.sleep(0.02)
            terminal.type("\x03")
            assert terminal.end() == 3
        assert f"Deletion of experiment {number} is in progress" in terminal.output
    finally:
        os.kill(facts.pid, signal.SIGCONT)
    lab.until(lambda: lab.service.reader.experiment(number) is None)
