"""Who may read and change what is saved: homes, storages, and what others put into them."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined._contracts.home import make_home
from determined.storage import build
from determined.storage.local.storage import SharedFSStorageManager
from tests.support.other_user import NOBODY, as_other_user, refusal_of


@contextlib.contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _save(base: Path, name: str) -> SharedFSStorageManager:
    storage = build({"type": "shared_fs", "host_path": str(base)})
    assert isinstance(storage, SharedFSStorageManager)
    path = storage.pre_store_path(name)
    (path / "weights").write_text(name)
    metadata = {"steps_completed": 1, "run_id": "mine"}
    storage.post_store_path(path, name, metadata=metadata)
    return storage


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o700), (0o022, 0o755), (0o002, 0o775)])
def test_what_is_saved_is_as_open_as_the_umask_says(mask: int, mode: int, tmp_path: Path) -> None:
    with _umask(mask):
        _save(tmp_path / "storage", "one")
    for folder in ("", "one", ".det-locks", ".det-runs"):
        assert _mode(tmp_path / "storage" / folder) == mode, folder
    assert _mode(tmp_path / "storage" / "one" / "weights") == mode & 0o666


def test_a_storage_that_a_group_shares_stays_shared_and_safe(tmp_path: Path) -> None:
    base = tmp_path / "storage"
    base.mkdir()
    base.chmod(0o3770)
    with _umask(0o007):
        _save(base, "one")
    for folder in (".det-locks", ".det-runs"):
        assert _mode(base / folder) == 0o3770  # all may lock, none removes what others have
    assert _mode(base / "one") & 0o777 == 0o770


def test_the_home_of_a_script_is_closed_to_others(tmp_path: Path) -> None:
    script = (
        "from determined import core\n"
        "with core.init() as ctx:\n"
        "    with ctx.checkpoint.store_path({'steps_completed': 1}) as (path, _):\n"
        "        (path / 'weights').write_text('secret')\n"
        "    ctx.train.report_training_metrics(1, {'loss': 1.0})\n"
    )
    clean = {k: v for k, v in os.environ.items() if k not in ("DET_HOME", "DET_STORAGE")}
    environment = {**clean, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    tmp_path.chmod(0o755)
    with _umask(0o022):
        subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=100)
    home = tmp_path / "data" / "determined"
    assert _mode(home) == 0o700
    assert as_other_user(lambda: refusal_of(lambda: list(home.iterdir()))) == "PermissionError"


def test_a_home_that_was_open_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o755)
    monkeypatch.setenv("DET_HOME", str(home))
    make_home(home)
    assert _mode(home) == 0o700


def test_a_checkpoint_of_another_owner_is_used_only_if_it_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give files away")
    storage = _save(tmp_path / "storage", "mine")
    _save(tmp_path / "storage", "theirs")
    for path in [tmp_path / "storage/theirs", *(tmp_path / "storage/theirs").iterdir()]:
        os.chown(path, NOBODY, NOBODY)
    with caplog.at_level(logging.WARNING):
        found = storage.latest("mine")
    assert found is not None
    assert found.storage_id == "mine"
    assert f"theirs in {tmp_path / 'storage'}: it belongs to user {NOBODY}" in caplog.text
    with storage.restore_path("theirs") as path:
        assert (path / "weights").read_text() == "theirs"
