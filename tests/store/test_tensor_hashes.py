"""What checkpoints held, tensor by tensor, stays known when their files are gone."""

from __future__ import annotations

from pathlib import Path

from determined import journal
from determined._contracts.tensor_hashes import TensorHashes
from determined.store import Reader, Writer
from tests.store.homes import Home
from tests.support import old_homes

_HASHES = TensorHashes({"models/0/a": "0123456789abcdef"}, {"seed": 3})


def test_hashes_come_from_the_journal_and_outlive_the_files(home: Home) -> None:
    run = home.new_run(home.new_trial())
    home.ingest(run, journal.Checkpoint("u", 1, {"w": 1}, {}, _HASHES.to_record()))
    home.ingest(run, journal.CheckpointDeleted("u"))
    assert home.reader.tensor_hashes("u") == _HASHES


def test_other_checkpoints_have_none(home: Home) -> None:
    run = home.new_run(home.new_trial())
    home.ingest(run, journal.Checkpoint("u", 1, {}, {}), journal.Checkpoint("v", 2, {}, {}, "?"))
    assert [home.reader.tensor_hashes(uuid) for uuid in ("u", "v", "w")] == [None] * 3


def test_checkpoints_of_an_old_store_have_none(tmp_path: Path) -> None:
    for version in old_homes.versions():
        path = tmp_path / str(version)
        old_homes.unpack(version, path)
        Writer(path).close()
        reader = Reader(path)
        found = reader.checkpoints_beginning_with("", 10)
        assert found
        assert [reader.tensor_hashes(checkpoint.uuid) for checkpoint in found] == [None] * len(
            found
        )
        reader.close()
