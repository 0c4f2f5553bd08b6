"""Replays of trials: exact, compared with the record, and without a trace unless asked for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from determined.errors import RefusedError
from determined.experimental import client
from determined.platform.debugging.diff import diff_trials
from determined.platform.debugging.replay import Replayed, Replays, published
from determined.platform.service.forking import Forks
from tests.support.forked import LENGTH, create, finished
from tests.support.lab import Lab, lab

__all__ = ["lab"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(600)]

_SEEING = """
from determined import pytorch

class Seeing(pytorch.PyTorchCallback):
    def on_training_batch_end(self, epoch_idx, batch_idx, metrics):
        print("seen", batch_idx, flush=True)

    def on_training_workload_end(self, avg_metrics, batch_metrics):
        avg_metrics["seen"] = float(len(batch_metrics))
"""


def replays_of(lab: Lab, experiment_id: int) -> Replays:
    trial = finished(lab, experiment_id)
    lab.until(lambda: not lab.service.reader.has_chores())
    return Replays(
        lab.service.reader, lab.service.home, trial, lab.service.experiment(experiment_id)
    )


def replayed(lab: Lab, replays: Replays, first: int, last: int, **options: Any) -> Replayed:
    folder = lab.folder / f"replay-{len(list(lab.folder.glob('replay-*')))}"
    folder.mkdir()
    intervals = replays.plan(first, last, options.get("processes", 1))
    return replays.run(intervals, folder, **options)


def test_a_replay_is_identical_wherever_it_starts(lab: Lab) -> None:
    replays = replays_of(lab, create(lab))
    for first, last, after in ((1, 6, 0), (12, 19, 10)):
        (interval,) = replays.plan(first, last)
        assert interval.after == after
        found = replayed(lab, replays, first, last)
        assert found.checked.departure is None, str(found)
        assert found.checked.rows > 0
        assert str(found).startswith(f"identical through batch {last} (")
    assert [interval.after for interval in replays.plan(1, LENGTH, 2)] in ([0, 10], [0, 15])
    whole = replayed(lab, replays, 1, LENGTH, processes=2)
    assert (whole.checked.departure, whole.checked.through) == (None, LENGTH)
    assert whole.checked.checkpoints >= 4


def test_with_the_default_retention_hashes_of_deleted_checkpoints_are_compared(lab: Lab) -> None:
    replays = replays_of(lab, create(lab, keeps_all=False))
    gone = [point.batch for point in replays.points if not point.has_files]
    assert 10 in gone
    (interval,) = replays.plan(3, 12)
    assert interval.after == 0
    found = replayed(lab, replays, 3, 12)
    assert found.checked.departure is None, str(found)
    assert found.checked.checkpoints >= 2


def test_a_replay_that_leaves_the_record_names_the_row_or_the_tensor(lab: Lab) -> None:
    flag = lab.folder / "flag"
    other = f"""
        if os.path.exists({str(flag)!r}) and batch_idx == 12:
            self.model[0].weight.data[0, 0] += 1
    """
    replays = replays_of(lab, create(lab, other))
    flag.touch()
    found = replayed(lab, replays, 11, 15)
    assert found.checked.departure is not None
    assert "the training row at batch 14 has train_loss" in found.checked.departure
    assert "first in batch 12" in found.checked.departure
    assert found.checked.through == 12
    assert str(found).startswith("NOT identical")


def test_a_tensor_is_named_where_no_row_tells(lab: Lab) -> None:
    flag = lab.folder / "flag"
    other = f"""
        if os.path.exists({str(flag)!r}) and batch_idx == 14:
            self.optimizer.state[self.model[0].bias]["exp_avg_sq"] += 1
    """
    replays = replays_of(lab, create(lab, other))
    flag.touch()
    found = replayed(lab, replays, 14, 15)
    assert found.checked.departure is not None
    assert "the checkpoint at batch 15 has another models/0/0.bias" in found.checked.departure


def test_callbacks_see_the_batches_and_what_they_report_is_kept_apart(lab: Lab) -> None:
    experiment = create(lab)
    replays = replays_of(lab, experiment)
    before = json.dumps(
        [vars(lab.trials(experiment)[0]), vars(lab.experiment(experiment))], default=str
    )
    last = lab.service.reader.metrics.last_report_id()
    (lab.folder / "looking.py").write_text(_SEEING)
    options = {"callbacks": ["looking:Seeing"], "paths": [str(lab.folder)]}
    found = replayed(lab, replays, 6, 15, processes=2, **options)
    assert found.checked.departure is None, str(found)
    seen = {row["steps"]: row["metrics"]["seen"] for row in found.rows if "seen" in row["metrics"]}
    assert seen == {6: 1.0, 8: 2.0, 10: 2.0, 12: 2.0, 14: 2.0, 15: 1.0}
    assert list(published(lab.home, lab.experiment(experiment), 1)) == []
    number = replays.publish(found, replays.plan(6, 15))
    (kept,) = published(lab.home, lab.experiment(experiment), 1)
    assert (kept["id"], kept["group"], kept["batches"]) == (number, "replay", [6, 15])
    assert len(kept["rows"]) == len(found.rows)
    # Nothing that searches, summaries and best values are made from has changed.
    now = json.dumps(
        [vars(lab.trials(experiment)[0]), vars(lab.experiment(experiment))], default=str
    )
    assert now == before
    assert lab.service.reader.metrics.last_report_id() == last


def test_what_cannot_be_replayed_is_refused(lab: Lab) -> None:
    replays = replays_of(lab, create(lab))
    for first, last in ((0, 3), (5, 4), (3, LENGTH + 1)):
        with pytest.raises(RefusedError, match=r"expected A:B with 1 <= A <= B <= 24"):
            replays.plan(first, last)
    fork = Forks(lab.service).create(1, 12, {"lr": 0.02})
    forked = replays_of(lab, fork)
    with pytest.raises(RefusedError, match="replay the batches up to 12 of trial 1"):
        forked.plan(3, 14)
    found = replayed(lab, forked, 14, 20)
    assert found.checked.departure is None, str(found)


def det(lab: Lab, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DET_HOME": str(lab.home.path)}
    command = [sys.executable, "-m", "determined.cli", *words]
    return subprocess.run(
        command, env=environment, text=True, capture_output=True, cwd=lab.folder, **options
    )


def test_the_command_line_and_the_client_replay(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    replays_of(lab, create(lab))
    (lab.folder / "looking.py").write_text(_SEEING)
    done = det(
        lab, "trial", "replay", "1", "--batches", "9:12", "--with", "looking:Seeing", "--report"
    )
    assert done.returncode == 0, done.stderr
    assert "seen 8" in done.stdout
    assert "seen 11" in done.stdout
    assert "identical through batch 12" in done.stdout
    stopped = det(
        lab, "trial", "replay", "1", "--batches", "9:12", "--pdb", input="p batch_idx\nc\n"
    )
    assert "(Pdb)" in stopped.stdout, stopped.stderr
    monkeypatch.setenv("DET_HOME", str(lab.home.path))
    trial = client.get_trial(1)
    assert [kept["batches"] for kept in trial.replays()] == [[9, 12]]
    rows = list(trial.iter_metrics("replay"))
    assert [row.metrics for row in rows] == [row["metrics"] for row in trial.replays()[0]["rows"]]
    assert {(row.group, row.trial_run_id) for row in rows} == {("replay", 1)}
    seen = {row.steps_completed: row.metrics["seen"] for row in rows if "seen" in row.metrics}
    assert seen == {10: 2.0, 12: 2.0}, trial.replays()
    assert {row.group for row in trial.iter_metrics()} == {"training", "validation"}
    assert "replay" not in trial.summary_metrics
    monkeypatch.chdir(lab.folder)
    found = trial.replay(batches=(6, 9), callbacks=["looking:Seeing"])
    assert str(found).startswith("identical through batch 9")
    assert [row["metrics"]["seen"] for row in found.rows if "seen" in row["metrics"]] == [1.0, 2.0]


def test_a_killed_replay_leaves_nothing(lab: Lab) -> None:
    experiment = create(lab)
    replays_of(lab, experiment)
    (lab.folder / "slow.py").write_text(_SEEING + "\nimport time; time.sleep(600)\n")
    environment = {**os.environ, "DET_HOME": str(lab.home.path)}
    words = ["trial", "replay", "1", "--batches", "9:12", "--with", "slow:Seeing", "--report"]
    process = subprocess.Popen(
        [sys.executable, "-m", "determined.cli", *words],
        env=environment,
        cwd=lab.folder,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    with process.stderr:
        assert b"Replaying" in process.stderr.readline()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert list(published(lab.home, lab.experiment(experiment), 1)) == []


def test_a_trial_on_several_slots_is_replayed_by_as_many_processes(lab: Lab) -> None:
    replays = replays_of(lab, create(lab, slots=2))
    found = replayed(lab, replays, 12, 19)
    assert found.checked.departure is None, str(found)
    assert found.checked.rows > 0
    assert found.checked.checkpoints >= 1
    with pytest.raises(RefusedError, match="by 2 processes"):
        replayed(lab, replays, 12, 13, pdb=True)


def test_trials_on_several_slots_are_compared_rank_by_rank(lab: Lab) -> None:
    other = """
        if self.context.distributed.rank == 1 and batch_idx == 12:
            torch.rand(1)
    """
    pairs = [
        (finished(lab, experiment), lab.service.experiment(experiment))
        for experiment in (create(lab, slots=2), create(lab, other, slots=2), create(lab))
    ]
    reader, home = lab.service.reader, lab.service.home
    for name in ("ranks", "alone"):
        (lab.folder / name).mkdir()
    found = diff_trials(reader, home, pairs[0], pairs[1], lab.folder / "ranks")
    assert found.parting is not None, str(found)
    place = [found.parting[name] for name in ("batch", "rank", "stage")]
    assert place == [12, 1, "random state"], str(found)
    alone = diff_trials(reader, home, pairs[0], pairs[2], lab.folder / "alone")
    assert (alone.parting, alone.is_identical) == (None, False)
    assert "trained by 2 and 1 processes" in str(alone)


def test_two_trials_are_compared(lab: Lab) -> None:
    one, two = create(lab), create(lab, hparams={"dropout": 0.4})
    same = create(lab)
    pairs = [(finished(lab, e), lab.service.experiment(e)) for e in (one, two, same)]
    reader, home = lab.service.reader, lab.service.home

    def compare(a: int, b: int, name: str) -> Any:
        folder = Path(lab.folder, name)
        folder.mkdir()
        return diff_trials(reader, home, pairs[a], pairs[b], folder)

    found = compare(0, 1, "d1")
    assert ("configuration", "hyperparameters.dropout", 0.3, 0.4) in [
        (p.section, p.name, p.first, p.second) for p in found.paper
    ]
    assert found.parting is not None
    assert (found.parting["batch"], found.parting["stage"]) == (0, "loss")
    equal = compare(0, 2, "d2")
    assert equal.is_identical, str(equal)
    assert str(equal).endswith(f"identical through batch {LENGTH}")
    fork = Forks(lab.service).create(1, 10, {"lr": 0.02})
    pairs.append((finished(lab, fork), lab.service.experiment(fork)))
    forked = compare(0, 3, "d3")
    assert forked.parting is not None, str(forked)
    assert (forked.parting["batch"], forked.parting["stage"]) == (10, "optimizer")
    assert forked.checkpoints.start == 10
    between = Forks(lab.service).create(1, 12, {"lr": 0.02})
    pairs.append((finished(lab, between), lab.service.experiment(between)))
    for pair in ((0, 4), (4, 0)):  # the parent starts from what its fork saved there
        found = compare(*pair, f"d4-{pair[0]}")
        assert found.parting is not None, str(found)
        assert (found.parting["batch"], found.parting["stage"]) == (12, "optimizer")
        assert found.checkpoints.start == 12
    lab.service.delete_checkpoints([c.uuid for c in lab.checkpoints(between) if c.size])
    gone = compare(0, 4, "d5")
    assert (gone.parting, gone.is_identical) == (None, False)
    assert "is a fork of trial 1 at batch 12, lr 0.01 -> 0.02. No checkpoint" in gone.note
