"""One writer: transactions, commands that take effect once, and a kill at any instant."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from determined import journal
from determined.errors import StoreError
from determined.journal import JournalWriter
from determined.store import (
    NewExperiment,
    NewTrial,
    Reader,
    Writer,
    check,
    is_decisive,
    send_command,
)
from tests.store.homes import Home, report


def test_a_transaction_happens_as_a_whole(home: Home) -> None:
    trial = home.new_trial()
    run = home.new_run(trial)

    def fail_halfway() -> None:
        with home.writer.transaction() as tx:
            tx.read_journal("j", trial.id, run.run_id, [report(1, a=1.0)], 10)
            tx.update_trial(trial.id, state="COMPLETED")
            raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"):
        fail_halfway()
    assert list(home.reader.metrics.reports(trial.id)) == []
    assert home.trial(trial.id).state == "ACTIVE"
    assert "j" not in home.writer.journals(trial.id, run.run_id)
    home.ingest(run, report(1, a=2.0))
    assert home.reader.metrics.summaries(trial.id)["avg_metrics"]["a"].sum == 2.0


def test_offsets_are_committed_with_the_rows(home: Home) -> None:
    trial = home.new_trial()
    run = home.new_run(trial)
    with home.writer.transaction(durable=False) as tx:
        assert tx.read_journal("j", trial.id, run.run_id, [report(1, a=1.0)], 123) == []
    assert home.writer.journals(trial.id, run.run_id)["j"].offset == 123


def test_a_decision_needs_a_durable_transaction(home: Home) -> None:
    trial = home.new_trial()
    with (
        pytest.raises(AssertionError, match="durable"),
        home.writer.transaction(durable=False) as tx,
    ):
        tx.update_trial(trial.id, state="COMPLETED")


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (report(1, a=1.0), False),
        (report(1, "validation", a=1.0), True),
        (journal.Progress(0.5), False),
        (journal.Checkpoint("u", 1, {}, {}), True),
        (journal.EarlyExit("INVALID_HP"), True),
        (journal.PreemptionAcknowledged(), True),
        (journal.Heartbeat(), False),
    ],
)
def test_which_records_may_lead_to_a_decision(record: journal.Record, expected: bool) -> None:
    assert is_decisive(record) is expected


def test_what_is_heard_keeps_its_order(home: Home) -> None:
    run = home.new_run(home.new_trial())
    records = [
        report(1, a=1.0),
        report(1, "validation", loss=1.0),
        journal.Checkpoint("u", 1, {}, {}),
        journal.Status("x"),
        journal.EarlyExit("INVALID_HP", rank=1),
        journal.EarlyExit("ERRORED"),
        journal.PreemptionAcknowledged(),
    ]
    accepted = home.ingest(run, *records)
    assert [h.record for h in accepted] == [records[i] for i in (1, 2, 4, 5, 6)]
    assert [h.is_repeat for h in accepted] == [False, False, False, True, False]
    read = home.trial(run.trial_id)
    assert (read.early_exit, read.status) == ("INVALID_HP", "x")
    assert home.reader.runs(run.trial_id)[0].acknowledged


def test_small_things_are_kept(home: Home) -> None:
    run = home.new_run(home.new_trial())
    home.ingest(
        run,
        journal.Progress(0.5),
        journal.Metadata({"a": 1}),
        journal.Alert("title", "text", "error"),
        journal.TaskUsing("checkpoint", "u1"),
        journal.Heartbeat(time=77.0),
        journal.Unknown(99),
    )
    read = home.trial(run.trial_id)
    assert (read.progress, read.metadata) == (0.5, {"a": 1})
    alert, unknown = home.reader.events(experiment_id=home.experiment_id)
    assert (alert.kind, alert.level, alert.text) == ("alert", "error", "title: text")
    assert unknown.kind == "unknown_record"
    assert home.reader.tasks_using("checkpoint", "u1") == [run.trial_id]
    assert home.reader.runs(run.trial_id)[0].heartbeat == 77.0


def test_runs_count_from_one_and_end(home: Home) -> None:
    trial = home.new_trial()
    first, second = home.new_run(trial), home.new_run(trial, 5)
    assert (first.run_id, second.run_id) == (1, 2)
    assert second.allocation_id == f"{trial.task_id}.2"
    with home.writer.transaction() as tx:
        tx.end_run(trial.id, 1, 137, "killed")
        assert [run.run_id for run in tx.unfinished_runs()] == [2]
    assert home.reader.runs(trial.id)[0].exit_code == 137


def test_terminal_states_set_the_end(home: Home) -> None:
    trial = home.new_trial()
    with home.writer.transaction() as tx:
        tx.update_trial(trial.id, state="ERROR", reason="it broke")
        tx.update_experiment(home.experiment_id, state="ERROR")
    assert home.trial(trial.id).ended is not None
    with home.writer.transaction() as tx:
        tx.update_trial(trial.id, state="ACTIVE")
    assert home.trial(trial.id).ended is None


def test_the_search_is_recorded_with_its_state(home: Home) -> None:
    with home.writer.transaction() as tx:
        assert tx.searcher_state(home.experiment_id) is None
        tx.record_search(home.experiment_id, {"n": 1}, {"type": "initial"}, [{"create": 1}], "Why.")
        tx.record_search(home.experiment_id, {"n": 2}, {"type": "exited"}, [])
    steps = home.reader.search_steps(home.experiment_id)
    assert [(s.number, s.sentence) for s in steps] == [(1, "Why."), (2, "")]
    assert steps[0].actions == [{"create": 1}]
    assert home.reader.searcher_state(home.experiment_id) == {"n": 2}
    assert home.reader.search_steps(home.experiment_id, after=1) == steps[1:]


def test_deleting_an_experiment_takes_everything_along(home: Home) -> None:
    run = home.new_run(home.new_trial())
    home.ingest(run, report(1, a=1.0, batches=[{"a": 1.0}]), journal.Checkpoint("u", 1, {}, {}))
    with home.writer.transaction() as tx:
        tx.delete_experiment(home.experiment_id)
    assert home.reader.trial(run.trial_id) is None
    assert home.reader.checkpoint("u") is None
    assert list(home.reader.metrics.reports(run.trial_id)) == []
    assert check(home.path) == []


def test_latest_checkpoint_has_the_most_steps(home: Home) -> None:
    run = home.new_run(home.new_trial())
    for uuid, steps in (("a", 5), ("b", 9), ("c", 7)):
        home.ingest(run, journal.Checkpoint(uuid, steps, {}, {}))
    with home.writer.transaction() as tx:
        latest = tx.latest_checkpoint(run.trial_id)
        assert latest is not None
        assert latest.uuid == "b"
        assert not tx.adopt_checkpoint(run.trial_id, 1, journal.Checkpoint("b", 9, {}, {}))
        assert tx.adopt_checkpoint(run.trial_id, 1, journal.Checkpoint("d", 11, {}, {}))
        tx.set_checkpoint_files("d", "DELETED", {})
        latest = tx.latest_checkpoint(run.trial_id)
        assert latest is not None
        assert latest.uuid == "b"


def test_latest_checkpoint_is_exact(home: Home) -> None:
    run = home.new_run(home.new_trial())
    nan = {"metrics": {"loss": float("nan")}}  # which is no JSON to SQLite
    home.ingest(run, journal.Checkpoint("exact", 5, {}, nan))
    home.ingest(
        run, journal.Checkpoint("failed", 9, {}, {"not_exact": "the error came in a batch"})
    )
    with home.writer.transaction() as tx:
        latest = tx.latest_checkpoint(run.trial_id)
        assert latest is not None
        assert latest.uuid == "exact"


def test_a_command_is_taken_and_answered_once(home: Home) -> None:
    uuid = send_command(home.path, "pause", {"experiment_id": 1}, sender="me")
    assert send_command(home.path, "pause", {"experiment_id": 1}, uuid=uuid) == uuid
    assert home.reader.has_unanswered()
    with home.writer.transaction() as tx:
        (command,) = tx.unanswered()
        assert (command.verb, command.arguments, command.sender) == (
            "pause",
            {"experiment_id": 1},
            "me",
        )
        tx.answer(uuid, True, {"state": "PAUSED"})
        with pytest.raises(StoreError, match="no unanswered command"):
            tx.answer(uuid, True, {})
    read = home.reader.command(uuid)
    assert read is not None
    assert (read.is_ok, read.answer) == (True, {"state": "PAUSED"})
    send_command(home.path, "pause", {"experiment_id": 1}, uuid=uuid)
    assert not home.reader.has_unanswered()


def test_the_first_command_makes_the_store(tmp_path: Path) -> None:
    uuid = send_command(tmp_path / "new" / "home ü", "create", {})
    writer = Writer(tmp_path / "new" / "home ü")
    with writer.transaction() as tx:
        assert [command.uuid for command in tx.unanswered()] == [uuid]
    writer.close()


def test_many_clients_at_once(home: Home) -> None:
    def give(count: int) -> None:
        for _ in range(count):
            send_command(home.path, "pause", {})

    clients = [threading.Thread(target=give, args=(10,)) for _ in range(6)]
    for client in clients:
        client.start()
    run = home.new_run(home.new_trial())
    step = 0
    while any(client.is_alive() for client in clients):
        home.ingest(run, report(step, a=1.0))
        step += 1
        time.sleep(0.001)
    with home.writer.transaction() as tx:
        assert len(tx.unanswered()) == 60


def test_there_is_one_writer(home: Home) -> None:
    with pytest.raises(StoreError, match="Another process is already writing"):
        Writer(home.path)


def test_readers_of_many_threads_see_commits_only(home: Home) -> None:
    run = home.new_run(home.new_trial())
    failures: list[str] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            with home.reader.snapshot():
                trial = home.trial(run.trial_id)
                reports = list(home.reader.metrics.reports(run.trial_id, "training"))
            last = max((r.steps_completed for r in reports), default=0)
            if trial.total_batches != last:
                failures.append(f"{trial.total_batches} != {last}")

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for step in range(1, 60):
        home.ingest(run, report(step, a=1.0), journal.Progress(step / 60))
    done.set()
    for thread in threads:
        thread.join()
    assert failures == []


_SUPERVISOR = """
import sys
from pathlib import Path
from determined.journal import JournalReader
from determined.store import Writer
home = Path(sys.argv[1])
writer = Writer(home)
path = home / "journal-1"
position = writer.journals(1, 1).get(str(path))
reader = JournalReader(path, position.offset if position else 0)
print("ready", flush=True)
while True:
    records = list(reader.records(limit_bytes=400))
    if not records:
        print("done", flush=True)
        break
    with writer.transaction() as tx:
        for accepted in tx.read_journal(str(path), 1, 1, records, reader.offset):
            state = tx.searcher_state(1) or {"accepted": []}
            state["accepted"].append(getattr(accepted.record, "steps_completed", -1))
            tx.record_search(1, state, {"n": len(state["accepted"])}, [])
"""


@pytest.mark.multiprocess
@pytest.mark.slow
def test_a_killed_supervisor_goes_on_exactly(tmp_path: Path) -> None:
    home = tmp_path / "home"
    writer = Writer(home)
    with writer.transaction() as tx:
        experiment = tx.create_experiment(
            NewExperiment(config={}, owner="me", name="x", searcher_metric="loss")
        )
        trial = tx.create_trial(NewTrial(experiment.id, "r", 0, {}))
        tx.create_run(trial.id, folder="", slots=[], steps_completed=0)
    writer.close()
    steps = range(1, 1501)
    out = JournalWriter(home / "journal-1")
    out.append([report(s, "validation", loss=1.0 / s) for s in steps])
    out.close()
    draw = random.Random(3)
    kills = 0
    while True:
        command = [sys.executable, "-c", _SUPERVISOR, str(home)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            if kills < 8:
                time.sleep(draw.random() * 0.15)
                process.send_signal(signal.SIGKILL)
                kills += 1
            if process.stdout.readline() == "done\n":
                break
    reader = Reader(home)
    assert [r.steps_completed for r in reader.metrics.reports(1, "validation")] == list(steps)
    assert reader.searcher_state(1) == {"accepted": list(steps)}
    assert [s.event["n"] for s in reader.search_steps(1)] == list(steps)
    summary = reader.metrics.summaries(1)["validation_metrics"]["loss"]
    assert (summary.count, summary.min) == (1500, 1.0 / 1500)
    reader.close()
    assert check(home) == []


def test_a_command_waits_for_its_turn_among_many(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("determined.store._connection._PRAGMAS", "PRAGMA busy_timeout=10;")
    other = sqlite3.connect(home.path / "store.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.3, other.rollback)
    release.start()
    uuid = send_command(home.path, "x", {})
    release.join()
    other.close()
    found = home.reader.command(uuid)
    assert found is not None
    assert found.verb == "x"
