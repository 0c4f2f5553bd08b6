"""A store that is damaged, cut, lost or too old is set aside, and made anew from what is left."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from determined.errors import DeterminedError, StoreError
from determined.platform.maintenance.rebuild.rebuild import Rebuilt, rebuild
from determined.platform.service import Service
from determined.platform.supervisor import presence
from determined.store import Reader, backup, check
from tests.cli.det import run_det
from tests.dashboard.served import served
from tests.faults.platform.soak import settings
from tests.faults.platform.steady import check_as_unbroken, script
from tests.support import faults
from tests.support.lab import Lab
from tests.support.messages import documented

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(600)]

DONE, WAITING, SEARCHED = 1, 2, 3
PAGE = 4096


class Keepsake:
    """A home that is brought back as it was, as often as a test spoils it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._copy = lab.folder / "copy"
        lab.service.close()
        presence.stop(lab.home)
        shutil.copytree(lab.home.path, self._copy, ignore=shutil.ignore_patterns("wake"))
        self.table = self.read()

    @property
    def store(self) -> Path:
        return self.lab.home.path / "store.db"

    def bring_back(self) -> None:
        """Undo all that was done to it."""
        self.lab.service.close()
        presence.stop(self.lab.home)
        psutil.wait_procs(self.lab.processes(), timeout=60)  # runs outlive the supervisor
        shutil.rmtree(self.lab.home.path)
        shutil.copytree(self._copy, self.lab.home.path)

    def rebuild(self) -> Rebuilt:
        """Rebuild, and let the supervisor take in what it finds."""
        result = rebuild(self.lab.home)
        assert check(self.lab.home.path) == []
        self.lab.service = Service(self.lab.home)
        reader = self.lab.service.reader
        self.lab.until(lambda: not reader.unfinished_runs() and not reader.has_chores())
        return result

    def read(self) -> dict[str, Any]:
        """Everything that clients show and that folders can tell, except states."""
        self.lab.service = Service(self.lab.home)
        reader, found = self.lab.service.reader, {}
        for record in reader.experiments().rows:
            trials = self.lab.trials(record.id)
            found[record.name] = {
                "config": record.config,
                "best": record.best_validation,
                "owner": record.owner,
                "code": record.snapshot_id,
                "trials": [(t.id, t.hparams, t.best_validation, t.run_id) for t in trials],
                "rows": [_rows(reader, trial.id) for trial in trials],
                "runs": [(r.run_id, r.allocation_id) for r in self.lab.runs(record.id)],
                "checkpoints": sorted(
                    (c.uuid, c.state, c.steps_completed, c.size)
                    for c in self.lab.checkpoints(record.id)
                ),
                "count": record.checkpoint_count,
            }
        return found


def _rows(reader: Reader, trial_id: int) -> list[tuple[str, int, dict[str, Any]]]:
    groups = ("training", "validation")
    reports = [report for group in groups for report in reader.metrics.reports(trial_id, group)]
    return [(report.group, report.steps_completed, report.metrics) for report in reports]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keepsake]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "60")
        patch.setenv("DET_SLOTS", "4")
        lab = Lab(tmp_path_factory.mktemp("kept"))
        search = lab.create(script(), name="done", labels=["kept"])
        waiting = lab.create(script(0.1), name="waiting")
        lab.until(lambda: lab.checkpoints(waiting))
        backup(lab.home.path, lab.folder / "early.db")
        lab.create(**settings(3, epochs=3), name="searched")
        lab.service.pause(waiting)
        lab.until(lambda: not lab.service.reader.unfinished_runs())
        lab.wait(search)
        assert lab.wait(SEARCHED).state == "COMPLETED"
        lab.until(lambda: not lab.service.reader.has_chores())
        yield Keepsake(lab)
        lab.service = Service(lab.home)
        lab.close()


@pytest.fixture(autouse=True)
def _back(kept: Keepsake) -> None:
    kept.bring_back()


def _gone(store: Path) -> None:
    store.unlink()


def _emptied(store: Path) -> None:
    store.write_bytes(b"")


def _without_head(store: Path) -> None:
    store.write_bytes(bytes(PAGE) + store.read_bytes()[PAGE:])


def _not_a_store(store: Path) -> None:
    store.write_bytes(random.Random(1).randbytes(100_000))


@pytest.mark.parametrize("spoil", [_gone, _emptied, _without_head, _not_a_store])
def test_records_that_are_lost_come_back_from_folders(
    kept: Keepsake, spoil: Callable[[Path], None]
) -> None:
    spoil(kept.store)
    for suffix in ("-wal", "-shm"):
        kept.store.with_name(f"store.db{suffix}").unlink(missing_ok=True)
    with pytest.raises(DeterminedError, match="det store rebuild"):
        kept.lab.create(script())
    result = kept.rebuild()
    assert [name for name in result.restored if "trial" not in name] == [
        f"experiment {number}" for number in (DONE, WAITING, SEARCHED)
    ]
    assert kept.read() == kept.table
    states = [kept.lab.experiment(number).state for number in (DONE, WAITING, SEARCHED)]
    assert states == ["COMPLETED", "PAUSED", "COMPLETED"]


def test_the_command_line_tells_of_damage_and_repairs_it(kept: Keepsake) -> None:
    home = {"DET_HOME": str(kept.lab.home.path)}
    _not_a_store(kept.store)
    shown = run_det("e", "list", environment=home)
    assert (shown.returncode, shown.stdout) == (1, "")
    documented("the records are damaged", shown.stderr, kept.lab.home.path)
    done = run_det("store", "rebuild", "--yes", environment=home)
    assert done.returncode == 0, done.stderr
    assert "Restored from its folder: experiment 3." in done.stdout
    assert "Rebuilt: 3 experiments; journals of 5 trials reread." in done.stdout
    assert run_det("store", "check", environment=home).returncode == 0


def test_what_was_open_before_shows_the_new_records(kept: Keepsake) -> None:
    with served(kept.lab.home) as page, contextlib.closing(Service(kept.lab.home)) as notebook:
        assert not page.json(f"/api/experiments/{DONE}")["archived"]
        assert notebook.reader.experiments().rows
        kept.rebuild()
        kept.lab.service.archive(DONE)
        assert page.json(f"/api/experiments/{DONE}")["archived"]
        record = notebook.reader.experiment(DONE)
        assert record is not None
        assert record.archived


def test_what_was_restored_goes_on(kept: Keepsake) -> None:
    kept.store.unlink()
    kept.rebuild()
    lab = kept.lab
    lab.service.activate(WAITING)
    check_as_unbroken(lab, WAITING)
    check_as_unbroken(lab, DONE)  # its end was found in its folder
    assert lab.create(script()) == 4


@pytest.mark.parametrize("number", range(faults.at_least(5, 20)))
def test_pages_that_were_overwritten_cost_nothing_that_stands_elsewhere(
    kept: Keepsake, number: int
) -> None:
    draw = random.Random(faults.draw_seed())
    data = bytearray(kept.store.read_bytes())
    pages = len(data) // PAGE
    bad = draw.sample(range(pages), draw.randint(1, 4))
    for page in bad:
        junk = draw.choice([bytes(PAGE), draw.randbytes(PAGE)])
        data[page * PAGE : (page + 1) * PAGE] = junk
    kept.store.write_bytes(data)
    result = kept.rebuild()
    print(f"pages {bad} of {pages}; {result}")  # noqa: T201
    assert result.old is not None
    assert result.old.read_bytes() == data
    assert kept.read() == kept.table


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_store_that_was_cut_off_is_completed(kept: Keepsake, share: float) -> None:
    data = kept.store.read_bytes()
    kept.store.write_bytes(data[: int(len(data) * share)])
    kept.rebuild()
    assert kept.read() == kept.table


def test_a_whole_store_is_the_same_afterwards(kept: Keepsake) -> None:
    before = {number: kept.lab.experiment(number) for number in (DONE, WAITING, SEARCHED)}
    result = kept.rebuild()
    assert (result.damage, result.restored, result.lost, result.reread) == ({}, [], [], 0)
    assert kept.read() == kept.table
    assert {number: kept.lab.experiment(number) for number in before} == before


def test_a_store_that_is_older_than_the_folders_is_completed(kept: Keepsake) -> None:
    shutil.copy(kept.lab.folder / "early.db", kept.store)
    with pytest.raises(DeterminedError, match=r"older than the folder .*/3.* `det store rebuild`"):
        kept.lab.create(script())
    result = kept.rebuild()
    assert (result.damage, result.restored) == ({}, ["experiment 3"])
    table = kept.read()
    assert table["searched"] == kept.table["searched"]
    check_as_unbroken(kept.lab, WAITING)  # nobody had paused it by then


def test_a_rebuild_that_is_cut_short_is_begun_anew(
    kept: Keepsake, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.store.write_bytes(kept.store.read_bytes()[: 10 * PAGE])

    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("determined.platform.maintenance.rebuild.rebuild._fill", cut)
        with pytest.raises(KeyboardInterrupt):
            rebuild(kept.lab.home)
    with pytest.raises(StoreError, match="det store rebuild"):
        kept.lab.create(script())
    kept.rebuild()
    assert kept.read() == kept.table
