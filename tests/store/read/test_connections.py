"""A store that is made anew in its place: who has the old one open reads the new one."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from determined.store import CurveKey, set_aside
from tests.store.homes import Home, report


@pytest.fixture
def other(home: Home, tmp_path: Path) -> Home:
    """A home whose store knows more, to be put in the place of the first."""
    made = Home(tmp_path / "other")
    run = made.new_run(made.new_trial())
    made.ingest(run, report(1, loss=1.0))
    return made


def _put_in_place(other: Home, home: Home) -> None:
    """As `det store rebuild` does it: the old one stays, beside."""
    other.close()
    home.writer.close()
    set_aside(home.path)
    (other.path / "store.db").rename(home.path / "store.db")


def test_a_reader_goes_on_with_the_new_store(home: Home, other: Home) -> None:
    watch, before = home.reader.watch(), home.reader.data_version()
    probe = home.reader.version_probe()
    known = probe()
    assert home.reader.trials().rows == []
    _put_in_place(other, home)
    assert [trial.id for trial in home.reader.trials().rows] == [1]
    assert home.reader.data_version() != before
    assert probe() not in (known, before)
    changed = watch.look()
    assert changed.is_another_store
    assert changed.trials == {1}
    assert not watch.look()
    points, last = home.reader.metrics.new_points([CurveKey(1, "training", "loss", False)], 0)
    assert (last, list(points)) == (1, [CurveKey(1, "training", "loss", False)])


def test_a_look_that_fails_is_made_up_for_by_the_next(home: Home, other: Home) -> None:
    watch = home.reader.watch()
    _put_in_place(other, home)
    with contextlib.closing(sqlite3.connect(home.path / "store.db")) as store:
        store.execute("ALTER TABLE command RENAME TO hidden")
        for _ in range(2):
            with pytest.raises(sqlite3.OperationalError):
                watch.look()
        store.execute("ALTER TABLE hidden RENAME TO command")
    changed = watch.look()
    assert changed.is_another_store
    assert changed.trials == {1}


def test_a_snapshot_and_an_answer_stay_with_the_store_that_they_began_with(
    home: Home, other: Home
) -> None:
    run = home.new_run(home.new_trial())
    home.ingest(run, *(report(step, loss=1.0) for step in range(1, 500)))
    reports = home.reader.metrics.reports(run.trial_id, "training")
    first = next(reports)
    with home.reader.snapshot():
        _put_in_place(other, home)
        assert len(list(home.reader.metrics.reports(1, "training"))) == 499
    assert len(list(home.reader.metrics.reports(1, "training"))) == 1
    assert [r.steps_completed for r in (first, *reports)] == list(range(1, 500))


def test_a_reader_keeps_what_it_has_until_the_new_store_is_there(home: Home, other: Home) -> None:
    set_aside(home.path)
    assert home.reader.trials().rows == []
    _put_in_place(other, home)
    assert len(home.reader.trials().rows) == 1
