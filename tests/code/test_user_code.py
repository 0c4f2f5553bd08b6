"""The copy of the user's code in a checkpoint."""

from __future__ import annotations

import importlib
import io
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from determined import util
from determined._code.user_code import archive_user_code, copy_user_code, unpack_user_code


def write(root: Path, *files: str, size: int = 1) -> None:
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)


def copied(source: Path, destination: Path, *exclude: Path) -> set[str]:
    copy_user_code(source, destination, exclude)
    return {str(path.relative_to(destination)) for path in destination.rglob("*") if path.is_file()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    directory.mkdir()
    return directory


def test_code_is_copied_without_the_usual_litter(source: Path, tmp_path: Path) -> None:
    write(source, "train.py", "pkg/__init__.py", "pkg/data.csv", "sub/shared_fs/a.py")
    write(source, "pkg/__pycache__/a.pyc", ".git/config", "a.pyo", ".idea/x", "shared_fs/ckpt")
    assert copied(source, tmp_path / "code") == {
        "train.py",
        "pkg/__init__.py",
        "pkg/data.csv",
        "sub/shared_fs/a.py",
    }


def test_a_script_in_the_home_or_temporary_directory_comes_without_strangers(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(source, "train.py", "downloads/other.py")
    (source / "a_lib_of_mine").mkdir()
    (source / "a_lib_of_mine/__init__.py").write_text("")
    monkeypatch.syspath_prepend(source)
    importlib.import_module("a_lib_of_mine")
    for variable in ("HOME", "TMPDIR"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, str(source))
            patch.setattr(tempfile, "tempdir", None)  # so that it is asked for again
            assert copied(source, tmp_path / variable) == {"train.py", "a_lib_of_mine/__init__.py"}
    assert "downloads/other.py" in copied(source, tmp_path / "elsewhere")


def test_virtual_environments_are_left_out_whatever_their_name(
    source: Path, tmp_path: Path
) -> None:
    write(source, "train.py", "env/pyvenv.cfg", "env/lib/site.py", "sub/py311/pyvenv.cfg")
    write(source, "miniconda/conda-meta/history", "miniconda/lib/a.py")
    assert copied(source, tmp_path / "code") == {"train.py"}


def test_checkpoints_and_event_files_of_other_runs_are_left_out(
    source: Path, tmp_path: Path
) -> None:
    write(source, "train.py", "two/id/manifest.json", "two/id/load_data.json", "two/id/code/a.py")
    write(source, "two/tensorboard/run/events.out.tfevents.1794787924.vm.1.0", "web/manifest.json")
    assert copied(source, tmp_path / "code") == {"train.py", "web/manifest.json"}


def test_ignore_files_follow_gitignore_rules(source: Path, tmp_path: Path) -> None:
    write(source, "a.py", "a.csv", "keep.csv", "data/x.bin", "sub/data/y.bin")
    (source / ".detignore").write_text("*.csv\n!keep.csv\n/data/\n# a comment\n")
    assert copied(source, tmp_path / "code") == {"a.py", "keep.csv", "sub/data/y.bin"}


def test_nested_ignore_files_rule_their_directory_and_override(
    source: Path, tmp_path: Path
) -> None:
    write(source, "a.log", "sub/a.log", "sub/b.txt", "sub/deep/b.txt", "other/b.txt")
    (source / ".detignore").write_text("*.log\n")
    (source / "sub" / ".detignore").write_text("!a.log\n/b.txt\n")
    assert copied(source, tmp_path / "code") == {"sub/a.log", "sub/deep/b.txt", "other/b.txt"}


def test_the_checkpoint_store_is_never_copied_into_itself(source: Path) -> None:
    write(source, "train.py", "store/old/code/train.py", "runs/events")
    destination = source / "store" / "new" / "code"
    assert copied(source, destination, source / "store", source / "runs") == {"train.py"}


def test_a_destination_below_the_source_is_left_out(source: Path) -> None:
    write(source, "train.py")
    assert copied(source, source / "out") == {"train.py"}


def test_links_are_followed_but_not_in_circles(
    source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(source, "pkg/a.py")
    write(tmp_path / "library", "lib.py")
    (source / "library").symlink_to(tmp_path / "library")
    (source / "pkg" / "up").symlink_to(source)
    (source / "alias.py").symlink_to(source / "pkg" / "a.py")
    (source / "dangling.py").symlink_to(source / "absent")
    assert copied(source, tmp_path / "code") == {"pkg/a.py", "library/lib.py", "alias.py"}
    assert "links back" in caplog.text
    assert "dangling.py" in caplog.text


def test_special_and_unreadable_files_are_left_out_with_a_warning(
    source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(source, "a.py", "locked/b.py", "c.py")
    os.mkfifo(source / "pipe")
    (source / "locked").chmod(0)
    (source / "c.py").chmod(0)
    try:
        found = copied(source, tmp_path / "code")
    finally:
        (source / "locked").chmod(0o755)
    assert "a.py" in found
    assert "pipe" not in found
    assert "pipe is not a regular file" in caplog.text
    if os.geteuid() != 0:  # root reads everything
        assert found == {"a.py"}


def test_the_largest_files_go_when_the_copy_is_too_large(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DET_CODE_MAX_BYTES", "1000")
    write(source, "big.py", size=900)
    write(source, "huge.bin", size=5000)
    write(source, "small.txt", size=50)
    assert copied(source, tmp_path / "one") == {"big.py", "small.txt"}
    assert copied(source, tmp_path / "two") == {"big.py", "small.txt"}
    warnings = [record.message for record in caplog.records if "over the limit" in record.message]
    assert len(warnings) == 1
    assert "huge.bin" in warnings[0]
    assert "DET_CODE_MAX_BYTES" in warnings[0]


def test_a_full_disk_is_an_error(source: Path, tmp_path: Path) -> None:
    write(source, "a.py", size=5000)
    script = f"""
import pathlib, resource
from determined._code.user_code import copy_user_code
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
copy_user_code(pathlib.Path({str(source)!r}), pathlib.Path({str(tmp_path / "code")!r}))
"""
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 1
    assert "File too large" in answer.stderr


def test_write_user_code_replaces_the_old_copy(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source)
    write(source, "a.py", "pkg/b.py")
    write(tmp_path / "checkpoint" / "code", "stale.py")
    (source / "a.py").chmod(0o755)
    util.write_user_code(tmp_path / "checkpoint", on_cluster=False)
    code = tmp_path / "checkpoint" / "code"
    assert sorted(str(path.relative_to(code)) for path in code.rglob("*.py")) == [
        "a.py",
        "pkg/b.py",
    ]
    assert stat.S_IMODE(code.stat().st_mode) == 0o755
    assert stat.S_IMODE((code / "pkg").stat().st_mode) == 0o755
    assert os.access(code / "a.py", os.X_OK)


def test_an_archive_gives_the_same_copy_later(source: Path, tmp_path: Path) -> None:
    write(source, "train.py", "pkg/data.cpp", "pkg/" + 30 * "long-name/" + "x.py", ".git/config")
    (source / "train.py").chmod(0o750)
    copy_user_code(source, tmp_path / "copy")
    with (tmp_path / "archive").open("w+b") as archive:
        archive_user_code(source, archive, exclude=[tmp_path])
        (source / "train.py").write_text("changed")
        for name in ("first", "second"):
            unpack_user_code(archive, tmp_path / name)
    for copy in (tmp_path / "first", tmp_path / "second"):
        for path in (tmp_path / "copy").rglob("*"):
            same = copy / path.relative_to(tmp_path / "copy")
            assert same.stat().st_mode == path.stat().st_mode
            assert path.is_dir() or same.read_bytes() == path.read_bytes()


def archived(source: Path, destination: Path) -> set[str]:
    with (destination.parent / f"{destination.name}.tar").open("w+b") as archive:
        archive_user_code(source, archive)
        unpack_user_code(archive, destination)
    return {str(path.relative_to(destination)) for path in destination.rglob("*") if path.is_file()}


def test_checkpoints_take_source_and_no_data(source: Path, tmp_path: Path) -> None:
    write(source, "train.py", "pkg/a.py", "pkg/net.yaml", "csrc/op.cu", "requirements.txt")
    write(source, "data/labels/1.txt", "data/2.json", "train.csv", "pkg/vocab.bin", "weights.pth")
    write(source, "huge.json", size=2 << 20)
    assert archived(source, tmp_path / "code") == {
        "train.py",
        "pkg/a.py",
        "pkg/net.yaml",
        "csrc/op.cu",
        "requirements.txt",
    }


def test_an_include_file_adds_what_an_ignore_file_does_not_name(
    source: Path, tmp_path: Path
) -> None:
    write(source, "train.py", "old.py", "assets/a.bin", "assets/b.bin", "c.bin")
    (source / ".detinclude").write_text("assets/\n# more\n")
    (source / ".detignore").write_text("b.bin\nold.py\n")
    assert archived(source, tmp_path / "code") == {"train.py", "assets/a.bin"}


def test_secrets_are_never_kept(source: Path, tmp_path: Path) -> None:
    write(source, "train.py", "secrets.py", "tokenizer.json", ".env", "prod.env", "id_rsa", "a.pem")
    write(source, "credentials.json", "secrets.yaml", ".aws/config.ini", ".ssh/key.txt", "token")
    (source / ".detinclude").write_text("*\n")
    assert archived(source, tmp_path / "code") == {"train.py", "secrets.py", "tokenizer.json"}


def test_copies_of_one_archive_share_files_that_nobody_changed(
    source: Path, tmp_path: Path
) -> None:
    write(source, "a.py", "pkg/b.py", "c.py")
    first, second = tmp_path / "first", tmp_path / "second"
    with (tmp_path / "archive").open("w+b") as archive:
        archive_user_code(source, archive)
        unpack_user_code(archive, first)
        (first / "a.py").write_text("edited in the first")
        (first / "c.py").unlink()
        (first / "added.py").touch()
        unpack_user_code(archive, second, first)
    assert (second / "pkg" / "b.py").samefile(first / "pkg" / "b.py")
    assert (second / "a.py").read_text() == "x"
    assert (second / "c.py").read_text() == "x"
    assert not (second / "added.py").exists()
    shutil.rmtree(first)
    assert (second / "pkg" / "b.py").read_text() == "x"


def test_a_storage_that_is_moved_away_while_code_is_copied_is_not_made_again(
    tmp_path: Path,
) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "storage" / "checkpoint"
    write(source, "train.py", "package/module.py")
    checkpoint.mkdir(parents=True)

    class Archive(io.BytesIO):
        """Moves the storage away as soon as it is read."""

        def read(self, size: int | None = -1, /) -> bytes:
            if checkpoint.exists():
                checkpoint.parent.rename(tmp_path / "away")
            return super().read(size)

    archive = Archive()
    archive_user_code(source, archive)
    with pytest.raises(FileNotFoundError):
        unpack_user_code(archive, checkpoint / "code")
    assert not checkpoint.parent.exists()
