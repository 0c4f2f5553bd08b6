"""File systems that refuse `chmod` or `fsync`: checkpoints are saved, with one warning each."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from determined._os import weak_file_systems
from determined.errors import CheckpointError
from determined.storage import build


def _refusing(monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, refuse)


def _save(base: Path, name: str) -> None:
    storage = build({"type": "shared_fs", "host_path": str(base)})
    source = base.parent / f"source-{name}"
    source.mkdir()
    (source / "weights").write_text("12345")
    (source / "inner").mkdir()
    (source / "inner" / "more").write_text("6")
    storage.upload(source, name)
    assert storage.verify(name)


@pytest.fixture(autouse=True)
def _untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weak_file_systems, "_warned", set())


@pytest.mark.parametrize(
    ("calls", "number", "words"),
    [
        (("fsync", "fdatasync"), errno.EINVAL, "after a power cut"),
        (("fsync", "fdatasync"), errno.ENOTSUP, "after a power cut"),
        (("chmod", "fchmod"), errno.EPERM, "who may read what is saved"),
    ],
)
def test_a_checkpoint_is_saved_with_one_warning(
    calls: tuple[str, ...],
    number: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for call in calls:
        _refusing(monkeypatch, call, number)
    with caplog.at_level(logging.WARNING):
        _save(tmp_path / "storage", "one")
        _save(tmp_path / "storage", "two")
    (warning,) = [record.getMessage() for record in caplog.records]
    assert words in warning
    assert str(tmp_path) in warning


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fails_still_ends_the_save(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _refusing(monkeypatch, "fsync", number)
    with pytest.raises(CheckpointError, match=os.strerror(number)):
        _save(tmp_path / "storage", "one")
    assert not (tmp_path / "storage" / "one").exists()
