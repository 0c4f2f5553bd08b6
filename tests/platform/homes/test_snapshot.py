"""Code snapshots: what is in them, that they are shared, and that copies are private."""

from __future__ import annotations

import io
import multiprocessing
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined.platform.homes.code_archive import (
    extract_archive,
    write_archive,
)
from determined.platform.homes.snapshot import (
    create_snapshot,
    load_snapshot,
    working_copy,
)
from tests.platform.homes.code import names, write


def listed(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_a_snapshot_holds_the_content_of_the_directory(store: Path, model: Path) -> None:
    snapshot = create_snapshot(store, model)
    assert names(snapshot.tree) == {"train.py", "lib", "lib/net.py"}
    assert (snapshot.tree / "train.py").read_text() == "print(1)"
    assert (snapshot.num_files, snapshot.num_bytes, snapshot.notes) == (2, 22, ())
    assert load_snapshot(store, snapshot.digest) == snapshot


def test_equal_code_is_stored_once(store: Path, model: Path, tmp_path: Path) -> None:
    first = create_snapshot(store, model)
    os.utime(first.path, (1, 1))
    before = first.path.stat().st_ino, first.tree.stat().st_mtime_ns
    elsewhere = tmp_path / "elsewhere"
    model.rename(elsewhere)
    (elsewhere / "train.py").touch()
    assert create_snapshot(store, elsewhere) == first
    assert (first.path.stat().st_ino, first.tree.stat().st_mtime_ns) == before
    assert first.path.stat().st_mtime > 1  # it is known to be wanted again
    assert listed(store) == [first.digest]


@pytest.mark.parametrize("change", ["content", "name", "mode", "empty folder", "link"])
def test_any_difference_gives_another_snapshot(store: Path, model: Path, change: str) -> None:
    first = create_snapshot(store, model)
    train = model / "train.py"
    if change == "content":
        train.write_text("print(2)")
    elif change == "name":
        train.rename(model / "train2.py")
    elif change == "mode":
        train.chmod(0o755)
    elif change == "empty folder":
        (model / "empty").mkdir()
    else:
        (model / "again.py").symlink_to("train.py")
    assert create_snapshot(store, model).digest != first.digest


def test_ignore_files_count_at_every_level(store: Path, model: Path) -> None:
    write(model / ".detignore", "*.bin\n/only_here\n")
    write(model / "a.bin")
    write(model / "only_here" / "x")
    write(model / "lib" / "only_here")
    write(model / "lib" / ".detignore", "!keep.bin\nsecret.txt\n")
    write(model / "lib" / "keep.bin")
    write(model / "lib" / "b.bin")
    write(model / "lib" / "secret.txt")
    write(model / "secret.txt")
    expected = {"train.py", "secret.txt", "lib", "lib/net.py", "lib/only_here", "lib/keep.bin"}
    assert names(create_snapshot(store, model).tree) == expected


def test_what_is_never_code_is_left_out(store: Path, model: Path) -> None:
    for name in (
        *("__pycache__/a.pyc", "lib/b.pyo", ".git/config", ".idea/x", ".vscode/x", ".terraform.d"),
        *("terraform", "terraform.tfstate.backup", ".mypy_cache/x", "shared_fs/x", "old$py.class"),
    ):
        write(model / name)
    write(model / "lib" / "shared_fs")
    assert names(create_snapshot(store, model).tree) == {
        *("train.py", "lib", "lib/net.py", "lib/shared_fs")
    }


def test_includes_stand_beside_the_model_under_their_own_names(
    store: Path, model: Path, tmp_path: Path
) -> None:
    write(tmp_path / "shared" / "util.py")
    note = write(tmp_path / "note.txt")
    snapshot = create_snapshot(store, model, [tmp_path / "shared", note])
    assert {"shared", "shared/util.py", "note.txt", "train.py"} <= names(snapshot.tree)


def test_names_at_the_top_must_differ(store: Path, model: Path, tmp_path: Path) -> None:
    write(tmp_path / "other" / "lib" / "x.py")
    with pytest.raises(ValueError, match="both put 'lib' at the top of the snapshot"):
        create_snapshot(store, model, [tmp_path / "other" / "lib"])


def test_a_file_or_nothing_as_model_directory_is_refused(store: Path, model: Path) -> None:
    with pytest.raises(ValueError, match=r"MODEL_DIR must be a directory, but .* is a file"):
        create_snapshot(store, model / "train.py")
    with pytest.raises(ValueError, match=r"MODEL_DIR must be a directory, but .* does not exist"):
        create_snapshot(store, model / "absent")
    with pytest.raises(ValueError, match="--include .* does not exist"):
        create_snapshot(store, model, [model / "absent"])


def test_no_model_directory_means_no_code(store: Path) -> None:
    snapshot = create_snapshot(store, None)
    assert names(snapshot.tree) == set()
    assert snapshot.num_files == 0


def test_links_inside_are_kept_and_never_lead_out(store: Path, model: Path, tmp_path: Path) -> None:
    outside = write(tmp_path / "outside" / "secret.txt", "secret")
    (model / "inner.py").symlink_to("lib/net.py")
    (model / "absolute.py").symlink_to(model / "lib" / "net.py")
    (model / "lib" / "up").symlink_to("..")
    (model / "leak.txt").symlink_to(outside)
    (model / "leaky").symlink_to(outside.parent)
    (model / "dangling").symlink_to("nowhere")
    snapshot = create_snapshot(store, model)
    model.rename(tmp_path / "moved")
    assert (snapshot.tree / "inner.py").read_text() == "class Net: ..."
    assert (snapshot.tree / "absolute.py").read_text() == "class Net: ..."
    assert (snapshot.tree / "absolute.py").readlink() == Path("lib/net.py")
    assert (snapshot.tree / "lib" / "up").resolve() == snapshot.tree.resolve()
    left_out = {Path(note.split(" is left out")[0]).name for note in snapshot.notes}
    assert left_out == {"leak.txt", "leaky", "dangling"}
    assert not any((snapshot.tree / name).is_symlink() for name in left_out)


def test_a_special_file_is_refused_by_name(store: Path, model: Path) -> None:
    os.mkfifo(model / "pipe")
    with pytest.raises(ValueError, match=r"pipe is neither a file nor a directory nor a link"):
        create_snapshot(store, model)
    assert listed(store) == [] if store.exists() else True
    write(model / ".detignore", "pipe")
    create_snapshot(store, model)


def test_names_of_any_bytes_survive(store: Path, model: Path, tmp_path: Path) -> None:
    odd = [b"\xff\xfe", b"new\nline", "日本".encode(), b" lead", b"quote'\"", b"-rf"]
    for name in odd:
        (model / os.fsdecode(name)).write_bytes(name)
    snapshot = create_snapshot(store, model)
    working_copy(snapshot, tmp_path / "copy")
    packed = io.BytesIO()
    write_archive(snapshot, packed)
    packed.seek(0)
    extract_archive(packed, tmp_path / "unpacked")
    for place in ("copy", "unpacked"):
        for name in odd:
            assert (tmp_path / place / os.fsdecode(name)).read_bytes() == name


def test_large_code_is_stored_with_a_note(store: Path, model: Path) -> None:
    with (model / "data").open("wb") as file:
        file.truncate(101 * 2**20)
    (note,) = create_snapshot(store, model).notes
    assert note.startswith("The code has 101 MiB")


def test_a_working_copy_is_private(store: Path, model: Path, tmp_path: Path) -> None:
    (model / "train.py").chmod(0o755)
    (model / "link").symlink_to("train.py")
    snapshot = create_snapshot(store, model)
    copy = tmp_path / "run" / "workdir"
    copy.mkdir(parents=True)  # empty: it is replaced
    working_copy(snapshot, copy)
    assert names(copy) == names(snapshot.tree)
    assert stat.S_IMODE((copy / "train.py").stat().st_mode) == 0o755
    assert stat.S_IMODE((copy / "lib" / "net.py").stat().st_mode) == 0o644
    (copy / "link").write_text("changed through a link")
    (copy / "lib" / "net.py").write_text("changed")
    assert (snapshot.tree / "train.py").read_text() == "print(1)"
    assert (snapshot.tree / "lib" / "net.py").read_text() == "class Net: ..."
    assert listed(copy.parent) == ["workdir"]


def _create(store: Path, model: Path, barrier: object, results: object) -> None:
    barrier.wait()  # type: ignore[attr-defined]  # multiprocessing's types are private
    results.put(create_snapshot(store, model).digest)  # type: ignore[attr-defined]


def test_many_may_store_the_same_at_once(store: Path, model: Path) -> None:
    for number in range(50):
        write(model / f"f{number}.py", "y" * 1000)
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(6), context.Queue()
    workers = [
        context.Process(target=_create, args=(store, model, barrier, results)) for _ in range(6)
    ]
    for worker in workers:
        worker.start()
    digests = {results.get(timeout=60) for _ in workers}
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert listed(store) == list(digests)
    assert len(names(store / digests.pop() / "tree")) == 53


def test_what_a_killed_maker_left_behind_is_removed(store: Path, model: Path) -> None:
    write(store / ".stage-of-the-dead" / "tree" / "half.py")
    snapshot = create_snapshot(store, model)
    assert listed(store) == [snapshot.digest]


@settings(max_examples=25)
@given(
    files=st.dictionaries(
        st.text(
            st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=20
        ).filter(lambda name: name not in (".", "..", ".detignore") and len(name.encode()) < 200),
        st.binary(max_size=100),
        max_size=6,
    )
)
def test_copies_equal_what_was_stored(
    files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "model").mkdir()
    for name, content in files.items():
        (folder / "model" / name).write_bytes(content)
    snapshot = create_snapshot(folder / "store", folder / "model")
    working_copy(snapshot, folder / "copy")
    kept = names(snapshot.tree)
    assert names(folder / "copy") == kept
    assert all((folder / "copy" / name).read_bytes() == files[name] for name in kept)
