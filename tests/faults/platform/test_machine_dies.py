"""The machine dies: what was not flushed is gone, in any mixture. The store opens, runs go on."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from determined.store import Reader, Writer, check
from tests.faults.platform.random_kills import kind_of
from tests.faults.platform.recorded_store import ROUNDS
from tests.faults.platform.steady import check_as_unbroken, script
from tests.support import faults
from tests.support.lab import Lab
from tests.support.store_log import Disk, Entry, State

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(3600)]

# Written once and flushed by the platform; everything else in a run's folder may be lost.
FLUSHED = ("exit.json",)


def _look(home: Path, created: int) -> None:
    """All that was durable is there, and journals stand where their rows end."""
    Writer(home).close()
    assert check(home) == []
    with contextlib.closing(Reader(home)) as reader:
        trials = reader.trials().rows
        assert len(trials) >= created
        for trial in trials:
            rows = list(reader.metrics.reports(trial.id, "training"))
            assert len(rows) == (reader.journal_offset(f"{trial.id}") or 0)
            assert [row.steps_completed for row in rows] == list(range(1, len(rows) + 1))


def _write(state: State, home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    for name, content in state.items():
        (home / name).write_bytes(content)


def test_a_store_opens_whole_after_a_power_cut_at_any_write(tmp_path: Path) -> None:
    log = tmp_path / "log"
    module = "tests.faults.platform.recorded_store"
    words = [sys.executable, "-m", module, str(tmp_path / "home"), str(log)]
    subprocess.run(words, check=True, cwd=Path(__file__).parents[3])
    entries: list[Entry] = pickle.loads(log.read_bytes())
    seed = faults.draw_seed()
    draw, disk, created, seen = random.Random(seed), Disk(), -1, 0
    for number, entry in enumerate(entries):
        disk.do(entry)
        created = int(entry.file) if entry.kind == "mark" else created
        if created < 0 or draw.random() > faults.factor() / 36:
            continue  # it is just being made, or this is the short form
        for state in disk.after_power_cut(draw, draws=2):
            _write(state, tmp_path / "cut")
            try:
                _look(tmp_path / "cut", created)
            except BaseException as error:
                moment = f"seed {seed}, after entry {number} of {len(entries)}: {entry.kind}"
                raise AssertionError(moment) from error
            seen += 1
    kinds = {entry.file for entry in entries if entry.kind == "write"}
    assert kinds >= {"store.db", "store.db-wal"}, "there were checkpoints, too"
    assert created == ROUNDS
    print(f"seed {seed}: {seen} states after {len(entries)} entries")  # noqa: T201


def _lose(path: Path, draw: random.Random) -> None:
    """Leave of a file that was not flushed what a power cut may leave."""
    content = path.read_bytes()
    cut = content[: draw.randint(0, len(content))]
    kept = draw.choice([None, b"", cut, cut + bytes(len(content) - len(cut)), content])
    if kept is None:
        path.unlink()
    else:
        path.write_bytes(kept)


def _has_saved(lab: Lab, experiment_id: int, times: int) -> bool:
    return len(lab.checkpoints(experiment_id)) >= times


@pytest.mark.parametrize("number", range(faults.at_least(1, 2)))
def test_runs_go_on_after_their_machine_died(lab: Lab, number: int) -> None:
    seed = faults.draw_seed()
    draw = random.Random(seed)
    experiment_id = lab.create(script(0.05))
    for most in (1, 2, 3):
        wanted = draw.randint(0, most)
        lab.until(partial(_has_saved, lab, experiment_id, wanted))
        for process in lab.processes():
            if kind_of(process):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
        for run in lab.runs(experiment_id):
            for path in sorted(Path(run.folder).iterdir()):
                if path.is_file() and path.name not in FLUSHED and run.ended is None:
                    _lose(path, draw)
    check_as_unbroken(lab, experiment_id, with_logs=False)  # of those the end may be lost
