"""Scripts started manually: they show up as experiments, and nothing is lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from determined import journal
from determined.journal import InboxItem, Introduction, JournalWriter, Record, item_names
from determined.platform.service import RefusedError
from determined.platform.supervisor import presence
from determined.store import Experiment, ExperimentFilter
from tests.support import tracked
from tests.support.lab import Lab
from tests.support.waiting import eventually

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(300)]

_SCRIPT = """
import sys, time
from determined import core

def report(context, first, last):
    for step in range(first, last + 1):
        context.train.report_training_metrics(step, {"loss": 1.0 / step})
        if step % 5 == 0:
            context.train.report_validation_metrics(step, {"loss": 1.0 / step})
            with context.checkpoint.store_path({"steps_completed": step}) as (path, uuid):
                (path / "weights").write_text("x" * step)
        context.train.report_progress(step / 20)

mode = sys.argv[1]
with core.init() as context:
    report(context, 1, 10)
    if mode == "raise":
        raise ValueError("bad luck")
    if mode == "wait":
        print("ready", flush=True)
        sys.stdin.readline()
    report(context, 11, 20)
"""


@pytest.fixture
def script(lab: Lab) -> Path:
    return tracked.write(lab.folder, _SCRIPT)


def experiments(lab: Lab) -> list[Experiment]:
    if not lab.service.has_store:
        return []
    return list(lab.service.reader.experiments(ExperimentFilter()).rows)


def steps(lab: Lab, trial_id: int, group: str = "training") -> list[int]:
    return [r.steps_completed for r in lab.service.reader.metrics.reports(trial_id, group)]


class TestLives:
    """What becomes of real processes."""

    def test_a_script_shows_up_at_the_next_look(self, lab: Lab, script: Path) -> None:
        assert tracked.run(lab.home.path, script, "go")[0] == 0
        assert presence.find(lab.home) is None  # the script started nobody
        lab.until(lambda: [e.state for e in experiments(lab)] == ["COMPLETED"])
        (experiment,) = experiments(lab)
        assert (experiment.name, experiment.state) == ("train.py", "COMPLETED")
        assert (experiment.unmanaged, experiment.progress) == (True, 1.0)
        assert "train.py go" in experiment.config["entrypoint"]
        (trial,) = lab.trials(experiment.id)
        assert steps(lab, trial.id) == list(range(1, 21))
        assert steps(lab, trial.id, "validation") == [5, 10, 15, 20]
        found = lab.checkpoints(experiment.id)
        assert [checkpoint.steps_completed for checkpoint in found] == [5, 10, 15, 20]
        target = lab.service.download(found[-1], lab.folder / "copy")
        assert (target / "weights").read_text() == "x" * 20
        assert experiment.created <= (experiment.ended or 0) <= time.time()
        (run,) = lab.runs(experiment.id)
        assert "train.py go" in lab.log(run)
        eventually(lambda: item_names(lab.home.path) == [])
        assert Path(run.folder).is_relative_to(lab.home.experiment(experiment.id))
        assert sorted(path.name for path in Path(run.folder).iterdir()) == ["log", "log.times"]

    def test_failed_killed_and_live_ones_are_shown_as_such(self, lab: Lab, script: Path) -> None:
        assert tracked.run(lab.home.path, script, "raise")[0] == 1
        live, killed = (self._waiting(lab, script) for _ in range(2))
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        lab.until(lambda: [e.state for e in experiments(lab)] == ["ERROR", "ACTIVE", "ERROR"])
        failed, _, dead = experiments(lab)
        assert failed.reason == "ValueError: bad luck"
        assert "killed" in dead.reason
        (run,) = lab.runs(failed.id)
        assert "ValueError: bad luck" in lab.log(run)
        (trial,) = lab.trials(dead.id)
        assert steps(lab, trial.id) == list(range(1, 11))
        live.communicate("\n")
        lab.until(lambda: experiments(lab)[1].state == "COMPLETED")
        (trial,) = lab.trials(experiments(lab)[1].id)
        assert steps(lab, trial.id) == list(range(1, 21))

    def test_verbs_without_meaning_are_refused_and_others_work(
        self, lab: Lab, script: Path
    ) -> None:
        tracked.run(lab.home.path, script, "go")
        lab.until(lambda: [e.state for e in experiments(lab)] == ["COMPLETED"])
        (experiment,) = experiments(lab)
        (trial,) = lab.trials(experiment.id)
        service = lab.service
        for verb in (service.pause, service.activate, service.cancel, service.kill):
            with pytest.raises(RefusedError, match=r"experiment 1 is unmanaged.*cannot"):
                verb(experiment.id)
        with pytest.raises(RefusedError, match="trial 1 is unmanaged"):
            service.kill_trial(trial.id)
        with pytest.raises(RefusedError, match="unmanaged"):
            service.continue_experiment(experiment.id)
        service.change(experiment.id, name="mine", labels=["a"])
        service.archive(experiment.id)
        assert lab.experiment(experiment.id).name == "mine"
        assert lab.experiment(experiment.id).archived

    def _waiting(self, lab: Lab, script: Path) -> subprocess.Popen[str]:
        environment = tracked.environment(lab.home.path)
        process = subprocess.Popen(
            [sys.executable, str(script), "wait"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process


class Script:
    """A process of another machine, or of none: writes an item by hand."""

    def __init__(self, lab: Lab, *, boot_id: str | None = None, **about: Any) -> None:
        lab.home.path.mkdir(exist_ok=True)
        self.item, self.writer = InboxItem.create(lab.home.path)
        values: dict[str, Any] = {
            "name": "other.py",
            "command": ["python", "other.py"],
            "folder": "/",
            "owner": "me",
            "host": "elsewhere",
            "boot_id": self.item.boot_id if boot_id is None else boot_id,
            "pid": 1,
            "storage": {"type": "shared_fs", "host_path": str(lab.folder)},
            **about,
        }
        self.say(Introduction(**values))
        self.say(journal.RunStarted(1, values.get("steps_completed", 0)))

    def say(self, *records: Record) -> None:
        self.writer.append(records)

    def report(self, first: int, last: int) -> None:
        self.say(*(journal.Metrics("training", s, {"loss": 1 / s}) for s in range(first, last + 1)))

    def checkpoint(self, uuid: str, step: int) -> None:
        self.say(journal.Checkpoint(uuid, step, {"w": 1}, {"steps_completed": step}))

    def end(self, state: str = "COMPLETED", reason: str = "finished") -> None:
        self.say(journal.Ended(state, reason))
        self.writer.close()


class TestResuming:
    def test_a_run_that_goes_on_is_the_next_run_of_its_experiment(self, lab: Lab) -> None:
        first = Script(lab, run_id="me", metric="loss")
        first.report(1, 14)
        first.checkpoint("c10", 10)
        first.writer.close()  # killed
        second = Script(lab, run_id="me", continues="c10", steps_completed=10)
        second.report(11, 20)
        second.end()
        lab.until(lambda: [e.state for e in experiments(lab)] == ["COMPLETED"])
        (trial,) = lab.trials(1)
        assert (trial.run_id, trial.total_batches) == (2, 20)
        assert steps(lab, trial.id) == list(range(1, 21))
        hidden = lab.service.reader.metrics.reports(trial.id, "training", archived=True)
        assert len(list(hidden)) == 24
        assert [run.from_checkpoint for run in lab.runs(1)] == [None, "c10"]
        assert "killed" in lab.runs(1)[0].reason

    def test_order_of_arrival_and_a_clock_that_jumped_do_not_matter(self, lab: Lab) -> None:
        scripts = []
        for number in range(3):
            begins = number * 10
            about: dict[str, Any] = {}
            if number:
                about = {"continues": f"c{begins}", "steps_completed": begins}
            one = Script(lab, run_id="me", **about)
            one.report(begins + 1, begins + 10)
            one.checkpoint(f"c{begins + 10}", begins + 10)
            one.end()
            scripts.append(one)
        for number, one in enumerate(reversed(scripts)):  # the later, the older by the clock
            name = f"{1_000_000 + number:020d}{one.item.path.name[20:]}"
            one.item.path.rename(one.item.path.with_name(name))
        lab.until(lambda: [e.state for e in experiments(lab)] == ["COMPLETED"])
        assert steps(lab, 1) == list(range(1, 31))
        assert [run.from_checkpoint for run in lab.runs(1)] == [None, "c10", "c20"]

    def test_another_run_from_the_same_checkpoint_is_a_child(self, lab: Lab) -> None:
        first = Script(lab, run_id="me")
        first.checkpoint("c", 1)
        first.end()
        second = Script(lab, run_id="other", continues="c", steps_completed=1)
        second.report(2, 3)
        second.end()
        lab.until(lambda: [e.state for e in experiments(lab)] == ["COMPLETED"] * 2)
        assert experiments(lab)[1].parent_id == 1

    def test_a_checkpoint_that_nobody_could_report_is_no_break(self, lab: Lab) -> None:
        first = Script(lab, run_id="me")
        first.say(journal.CheckpointAnnounced("never-told", 5))
        first.writer.close()
        second = Script(lab, run_id="me", continues="never-told", steps_completed=5)
        second.end()
        third = Script(lab, run_id="stranger", continues="unheard-of", steps_completed=5)
        third.end()
        lab.until(lambda: [e.state for e in experiments(lab)] == ["COMPLETED"] * 2)
        assert (lab.trials(1)[0].run_id, experiments(lab)[1].parent_id) == (2, None)


class TestFaults:
    def test_a_torn_end_costs_only_the_record_that_was_torn(self, lab: Lab) -> None:
        script = Script(lab)
        script.report(1, 5)
        whole = script.item.size
        script.report(6, 6)
        os.truncate(script.item.journal, script.item.size - 3)
        script.writer.close()
        lab.until(lambda: [e.state for e in experiments(lab)] == ["ERROR"])
        assert whole > 0
        assert steps(lab, 1) == [1, 2, 3, 4, 5]
        eventually(lambda: item_names(lab.home.path) == [])

    def test_bytes_that_changed_are_passed_over_and_told(self, lab: Lab) -> None:
        script = Script(lab)
        script.report(1, 5)
        place = script.item.size + 20
        script.report(6, 6)
        script.report(7, 9)
        with script.item.journal.open("r+b") as file:
            file.seek(place)
            file.write(b"\\0\\0\\0")
        script.end()
        lab.until(lambda: [e.state for e in experiments(lab)] == ["COMPLETED"])
        assert steps(lab, 1) == [1, 2, 3, 4, 5, 7, 8, 9]
        kinds = [event.kind for event in lab.service.reader.events(experiment_id=1)]
        assert "damaged_journal" in kinds

    def test_what_is_no_journal_is_set_aside_and_holds_up_nobody(self, lab: Lab) -> None:
        good = Script(lab)
        good.end()
        bad = Script(lab)
        bad.say(journal.Metrics("training", 2**70, {"loss": 1.0}))  # no store takes that
        bad.end()
        lab.until(lambda: [e.state for e in experiments(lab)] == ["COMPLETED"])
        eventually(lambda: item_names(lab.home.path) == [])
        assert [p.name for p in lab.home.inbox.iterdir()] == [f"{bad.item.path.name}.unreadable"]

    def test_a_hundred_at_once_while_supervisors_are_killed(self, lab: Lab) -> None:
        scripts = [Script(lab, run_id=f"r{i}", hparams={"i": i}) for i in range(100)]
        rng = random.Random(lab.seed)
        done = [0] * len(scripts)
        for round_number in range(1, 6):
            for i, script in enumerate(scripts):
                count = 20 - done[i] if round_number == 5 else rng.randint(0, 20 - done[i])
                script.report(done[i] + 1, done[i] + count)
                done[i] += count
                if round_number == 5 and i % 2:
                    script.end()
                elif round_number == 5:
                    script.writer.close()
            lab.service.supervised._ensure_supervisor()
            time.sleep(rng.random())  # at any moment of its work, or before it began
            lab.kill_supervisor()
        states = {i: "COMPLETED" if i % 2 else "ERROR" for i in range(100)}
        lab.until(
            lambda: {lab.trials(e.id)[0].hparams["i"]: e.state for e in experiments(lab)} == states
        )
        for experiment in experiments(lab):
            (trial,) = lab.trials(experiment.id)
            assert steps(lab, trial.id) == list(range(1, 21))
            assert [run.run_id for run in lab.runs(experiment.id)] == [1]
        lab.until(lambda: item_names(lab.home.path) == [])

    def test_more_than_is_read_at_once_is_read_to_its_end(self, lab: Lab) -> None:
        first = Script(lab, run_id="me")
        for step in range(1, 41):
            first.say(journal.Metrics("training", step, {"text": "x" * (1 << 19)}))
        first.checkpoint("c", 40)
        first.writer.close()
        second = Script(lab, run_id="me", continues="c", steps_completed=40)
        second.report(41, 42)
        second.end()
        lab.until(lambda: [e.state for e in experiments(lab)] == ["COMPLETED"])
        assert steps(lab, 1) == list(range(1, 43))


class TestOtherMachines:
    """No lock tells anything of them: only what they write."""

    @pytest.fixture
    def remote(self, lab: Lab) -> Script:
        script = Script(lab, boot_id="of another machine")
        script.writer.close()  # its lock does not reach us
        return script

    def _append(self, script: Script, lab: Lab, *records: Record) -> None:
        """What another machine writes into the same file."""
        draft = lab.folder / "draft"
        draft.unlink(missing_ok=True)
        writer = JournalWriter(draft)
        writer._end = script.item.size  # records are only valid where they stand
        os.lseek(writer._file, 0, os.SEEK_SET)
        os.ftruncate(writer._file, 0)
        writer.append(records)
        writer.close()
        with script.item.journal.open("ab") as file:
            file.write(draft.read_bytes())

    def test_silence_is_an_end_that_can_be_taken_back(self, lab: Lab, remote: Script) -> None:
        lab.until(lambda: [e.state for e in experiments(lab)] == ["ACTIVE"])
        hour_ago = time.time() - 3600
        os.utime(remote.item.journal, (hour_ago, hour_ago))
        lab.until(lambda: experiments(lab)[0].state == "ERROR")
        assert "it has not reported" in experiments(lab)[0].reason
        self._append(remote, lab, journal.Metrics("training", 1, {"loss": 1.0}))
        lab.until(lambda: experiments(lab)[0].state == "ACTIVE")
        self._append(remote, lab, journal.Ended("COMPLETED", "finished"))
        lab.until(lambda: experiments(lab)[0].state == "COMPLETED")
        assert steps(lab, 1) == [1]
        assert experiments(lab)[0].reason == "finished"

    def test_a_clock_that_runs_ahead_takes_nothing_for_dead(self, lab: Lab) -> None:
        script = Script(lab)
        tomorrow = time.time() + 86400
        os.utime(script.item.journal, (tomorrow, tomorrow))
        lab.until(lambda: [e.state for e in experiments(lab)] == ["ACTIVE"])
        years_ago = time.time() - 1e8
        os.utime(script.item.journal, (years_ago, years_ago))
        script.say(journal.Heartbeat(time=1.0))
        os.utime(script.item.journal, (years_ago, years_ago))
        lab.until(lambda: (lab.runs(1)[0].heartbeat or 0) == 1.0)
        assert experiments(lab)[0].state == "ACTIVE"  # it holds its lock
        script.end()
        lab.until(lambda: experiments(lab)[0].state == "COMPLETED")
