"""Checkpoints by the beginning of their UUIDs."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined import journal
from determined.errors import NotFoundError
from determined.platform.homes.home import Home
from determined.platform.service import Service
from determined.store import NewExperiment, NewTrial, Writer
from tests.support.messages import documented


def test_a_beginning_must_belong_to_one_checkpoint(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    writer = Writer(home.path)
    with writer.transaction() as tx:
        tx.create_experiment(NewExperiment({}, "me", "x"))
        tx.create_trial(NewTrial(1, "request", 1, {}))
        run = tx.create_run(1, folder=str(tmp_path), slots=[], steps_completed=0)
        uuids = ("abcd1111-2222", "abcd1111-3333", "abce%_")
        saved = [journal.Checkpoint(uuid, 1, {"w": 1}, {}) for uuid in uuids]
        tx.read_journal("j", 1, run.run_id, saved, 1)
    writer.close()
    service = Service(home)
    assert service.checkpoint("abcd1111-2").uuid == "abcd1111-2222"
    assert service.checkpoint("abce").uuid == "abce%_"
    assert service.checkpoint("abcd1111-3333").uuid == "abcd1111-3333"
    with pytest.raises(NotFoundError) as raised:
        service.checkpoint("abcd1")
    documented("several checkpoints have UUIDs with the same beginning", str(raised.value))
    for wrong in ("abc", "%%%%", "bcd1", ""):
        with pytest.raises(NotFoundError, match="no checkpoint"):
            service.checkpoint(wrong)
