"""Archives of code: the same bytes every time, and hostile ones refused."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from determined.platform.homes import code_archive
from determined.platform.homes.code_archive import (
    UnsafeArchiveError,
    extract_archive,
    write_archive,
)
from determined.platform.homes.snapshot import (
    Snapshot,
    create_snapshot,
)
from tests.platform.homes.code import names


def archive_of(snapshot: Snapshot) -> bytes:
    packed = io.BytesIO()
    write_archive(snapshot, packed)
    return packed.getvalue()


def test_an_archive_has_the_same_bytes_every_time(store: Path, model: Path, tmp_path: Path) -> None:
    (model / "link").symlink_to("lib")
    (model / "train.py").chmod(0o755)
    first = create_snapshot(store, model)
    second = create_snapshot(tmp_path / "another store", model)
    assert archive_of(first) == archive_of(second)
    extract_archive(io.BytesIO(archive_of(first)), tmp_path / "unpacked")
    assert create_snapshot(store, tmp_path / "unpacked").digest == first.digest


def tar_of(*entries: tuple[str, bytes, str]) -> io.BytesIO:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, kind, link in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, link
            tar.addfile(entry)
    return io.BytesIO(gzip.compress(packed.getvalue()))


@pytest.mark.parametrize(
    "entries",
    [
        [("../evil", tarfile.REGTYPE, "")],
        [("a/../../evil", tarfile.REGTYPE, "")],
        [("/tmp/evil-absolute", tarfile.REGTYPE, "")],
        [("link", tarfile.SYMTYPE, "/etc/passwd")],
        [("link", tarfile.SYMTYPE, "../..")],
        [("d", tarfile.SYMTYPE, ".."), ("d/evil", tarfile.REGTYPE, "")],
        [
            ("top", tarfile.DIRTYPE, ""),
            ("p/q/x", tarfile.SYMTYPE, "../../top"),
            ("p/q/y", tarfile.SYMTYPE, "x/../../evil"),
        ],
        [("hard", tarfile.LNKTYPE, "/etc/passwd")],
        [("device", tarfile.CHRTYPE, "")],
        [("pipe", tarfile.FIFOTYPE, "")],
    ],
)
def test_a_hostile_archive_is_refused_as_a_whole(
    entries: list[tuple[str, bytes, str]], tmp_path: Path
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    with pytest.raises((UnsafeArchiveError, FileExistsError)):
        extract_archive(tar_of(("fine.py", tarfile.REGTYPE, ""), *entries), inner / "target")
    assert names(tmp_path) == {"inner"}


def test_an_archive_that_claims_too_much_is_refused_before_it_is_written(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("bomb")
    entry.size = 1 << 40
    head = entry.tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(
        UnsafeArchiveError, match="At 'bomb' there are 1 entries with 1,099,511,627,776"
    ):
        extract_archive(io.BytesIO(gzip.compress(head + bytes(1 << 20))), tmp_path / "target")
    assert names(tmp_path) == set()


_HEADS = {
    "one head": (1, 1 << 30),
    "heads without an entry": (1 << 10, 1 << 20),
}


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("heads", _HEADS)
def test_heads_that_unfold_without_end_are_refused_in_little_memory(
    kind: bytes, heads: str, tmp_path: Path
) -> None:
    count, size = _HEADS[heads]
    head = tarfile.TarInfo("head")
    head.type, head.size = kind, size
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as archive:
        for _ in range(count):
            archive.write(head.tobuf(tarfile.GNU_FORMAT))
            for _ in range(min(16, size >> 20)):
                archive.write(b"1" * (1 << 20))
            if archive.tell() > 16 << 20:
                break  # the rest would never be read
    packed.seek(0)
    tracemalloc.start()
    with pytest.raises(UnsafeArchiveError, match="more than 1,048,576 bytes"):
        extract_archive(packed, tmp_path / "target")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
    assert names(tmp_path) == set()


def test_what_heads_said_is_not_kept(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as archive:
        for number in range(30):
            entry = tarfile.TarInfo(f"d{number}")
            entry.type, entry.pax_headers = tarfile.DIRTYPE, {"comment": "x" * 900_000}
            archive.write(entry.tobuf(tarfile.PAX_FORMAT))
        archive.write(bytes(1024))
    packed.seek(0)
    tracemalloc.start()
    extract_archive(packed, tmp_path / "target")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20
    assert len(names(tmp_path / "target")) == 30


def test_an_archive_of_countless_entries_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_archive, "_MOST_ENTRIES", 20)
    many = [(f"d{n}", tarfile.DIRTYPE, "") for n in range(21)]
    with pytest.raises(UnsafeArchiveError, match="At 'd20' there are 21 entries"):
        extract_archive(tar_of(*many), tmp_path / "target")
    assert names(tmp_path) == set()


def test_something_else_than_an_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafeArchiveError, match="not a code archive"):
        extract_archive(io.BytesIO(b"hello" * 1000), tmp_path / "target")
    assert names(tmp_path) == set()
