"""Trials that lay hands on what is not theirs: they end, with all they started, and alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from determined.store import Trial
from tests.cli.det import call_det
from tests.dashboard.served import served
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(600)]

_SCRIPT = """
import json, os, pathlib, random, shutil, signal, sys, time
import determined as det
from determined import journal
run = pathlib.Path(os.environ["DET_RUN_DIR"])
name = journal.new_journal_path(run)
def say(*records): journal.JournalWriter(name).append(records)
crimes = json.loads(pathlib.Path("crimes.json").read_text())
exec(crimes[det.get_cluster_info().trial.hparams["crime"]])
"""

# What each does, and the states that its experiment may end in.
CRIMES = {
    "none": ("print('fine')", "COMPLETED"),
    "a pipe instead of a journal": ("os.mkfifo(name)", "ERROR"),
    "a directory instead of a journal": ("name.mkdir(); time.sleep(1)", "ERROR"),
    "a journal without an end": ("name.symlink_to('/dev/zero')", "ERROR"),
    "a journal that is no journal": (
        "name.write_bytes(random.randbytes(30_000_000))",
        "ERROR",
    ),
    "a journal that goes on as something else": (
        "say(journal.Metrics('validation', 1, {'loss': 0.5}), journal.Progress(0.5))\n"
        "open(name, 'a').write('and so on')",
        "ERROR",
    ),
    "a journal full of beginnings": (
        "journal.JournalWriter(name).close()\n"
        "open(name, 'ab').write(bytes.fromhex('0000000300000000020200000022') * 4_000_000)",
        "ERROR",
    ),
    "a journal that leads elsewhere": ("name.symlink_to('/etc/passwd')", "ERROR"),
    "a journal nested without end": (
        "from determined.journal import _file\n"
        "text = b'{\"a\":' * 100_000 + b'1' + b'}' * 100_000\n"
        "_file.encode = lambda record: b'\\x09' + len(text).to_bytes(4, 'little') + text\n"
        "journal.JournalWriter(name).append([None])",
        "COMPLETED",
    ),
    "progress in words": ("say(journal.Progress('half'))", "ERROR"),
    "a report of the far future": (
        "say(journal.Metrics('validation', 1, {'loss': 1.0}, time=1e300))",
        "ERROR",
    ),
    "a metric of 400 digits": (
        "say(journal.Metrics('validation', 1, {'loss': 10**400}))",
        "COMPLETED",
    ),
    "a checkpoint elsewhere": (
        "say(journal.Checkpoint('../../victim', 1, {'file': 3}, {}), journal.Status('late'))",
        "ERROR",
    ),
    "control characters": (
        "say(journal.Status('x\\x1b[2J'), journal.Alert('\\x9b', '\\u202e', 'nonsense'),\n"
        "    journal.Metrics('a\\x1b', 1, {'\\x1b[2J': '\\x1b[2J', '': None, 'x' * 10**6: 1.0}))",
        "COMPLETED",
    ),
    "no run folder any more": ("shutil.rmtree(run)", "COMPLETED"),
    "a directory instead of its end": (
        "(run / 'exit.json' / 'x').mkdir(parents=True)",
        "COMPLETED",
    ),
    "a pipe instead of its log": (
        "(run / 'log').unlink(); os.mkfifo(run / 'log'); sys.exit(3)",
        "ERROR",
    ),
    "an invented keeper": (
        "(run / 'keeper.json').write_text('{'); time.sleep(1)",
        "COMPLETED",
    ),
    "an invented end": ("(run / 'exit.json').write_text('{'); time.sleep(1)", "COMPLETED"),
    "an invented control file": (
        "(run / 'control.json').write_text('{')\nfrom determined import core\n"
        "with core.init() as c: c.preempt.should_preempt()",
        "COMPLETED",
    ),
    "an index of nonsense": ("(run / 'log.times').write_bytes(random.randbytes(999))", "COMPLETED"),
    "matches of nonsense": ("(run / 'log.matches').write_text('[')", "COMPLETED"),
    "no working directory any more": ("shutil.rmtree(os.getcwd())", "COMPLETED"),
    "a daemon": (
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n"
        "    pathlib.Path('../pid').write_text(str(os.getpid()))\n    os.closerange(0, 99)\n"
        "    os.execve('/bin/sleep', ['sleep', '600'], {})\n"
        "while not os.path.exists('../pid'): time.sleep(0.01)",
        "COMPLETED",
    ),
}


_LOOKED_AT = (
    *("a pipe instead of its log", "an index of nonsense", "a metric of 400 digits"),
    *("control characters", "a checkpoint elsewhere", "no run folder any more"),
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "60")
        patch.setenv("DET_SLOTS", "4")
        lab = Lab(tmp_path_factory.mktemp("hostile"))
        yield lab
        lab.close()


@pytest.fixture(scope="module")
def trials(lab: Lab) -> dict[str, Trial]:
    """One trial for each, all over, and an innocent one."""
    experiment_id = lab.create(
        _SCRIPT,
        files={"crimes.json": json.dumps({name: script for name, (script, _) in CRIMES.items()})},
        searcher={"name": "grid", "metric": "loss"},
        hyperparameters={"crime": {"type": "categorical", "vals": list(CRIMES)}},
    )
    lab.wait(experiment_id)
    return {trial.hparams["crime"]: trial for trial in lab.trials(experiment_id)}


@pytest.mark.parametrize("name", CRIMES)
def test_a_trial_harms_itself_only(lab: Lab, trials: dict[str, Trial], name: str) -> None:
    assert trials[name].state in CRIMES[name][1].split(), trials[name].reason
    (run,) = lab.service.reader.runs(trials[name].id)
    mark = Path(run.folder, "pid")
    assert not mark.exists() or not psutil.pid_exists(int(mark.read_text()))


def test_what_was_whole_before_the_damage_is_kept(lab: Lab, trials: dict[str, Trial]) -> None:
    trial = trials["a journal that goes on as something else"]
    (run,) = lab.service.reader.runs(trial.id)
    (journal,) = Path(run.folder).glob("journal-*")
    assert f"{journal} is corrupt at byte" in trial.reason
    assert trial.progress == 0.5
    (report,) = lab.service.reader.metrics.reports(trial.id, "validation")
    assert report.metrics == {"loss": 0.5}


def test_what_they_said_can_be_looked_at(
    lab: Lab, trials: dict[str, Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    ids = [trials[name].id for name in _LOOKED_AT]
    calls = [f"t {verb} {number}" for number in ids for verb in ("describe --metrics", "logs")]
    for call in [*calls, "e describe 1"]:
        answer = call_det(*call.split(), home=lab.home.path, on_a_terminal=True)
        assert "Traceback" not in answer.errors, answer.errors
        assert (answer.output + answer.errors).replace("\n", "").isprintable()
    with served(lab.home) as shown:
        for number in ids:
            for page in ("", "/logs?tail=1", "/checkpoints", "/system", "/profile"):
                said = shown.client.get(f"/api/trials/{number}{page}")
                assert said.status_code < 500 or "log" in said.json()["error"], said.text
