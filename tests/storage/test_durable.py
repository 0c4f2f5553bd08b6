"""HashingFile writes what it is given and knows its hash without reading it back."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import random
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from determined.errors import CheckpointError
from determined.storage import FileDigest, HashingFile, _durable
from determined.storage._durable import copy_file, digest_bytes, digest_file, for_each


@given(sizes=st.lists(st.integers(0, 3000) | st.sampled_from([1024, 2048]), max_size=5))
def test_the_digest_is_that_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:  # small blocks, so that many meetings are tried
        patch.setattr(_durable, "_BLOCK_BYTES", 1024)
        patch.setattr(_durable, "_LARGE_BYTES", 512)
        patch.setattr(_durable, "_WRITE_BYTES", 256)
        _write_and_compare(tmp_path_factory.mktemp("digest") / "file", sizes)


@pytest.mark.parametrize("past_cache", [False, True])
def test_so_it_is_with_large_blocks(tmp_path: Path, past_cache: bool) -> None:
    _write_and_compare(tmp_path / "file", [7, 8 << 20, 0, (8 << 20) + 1, 70_000], past_cache)


def test_large_blocks_past_the_cache_become_ordinary_ones_where_they_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_durable, "open_past_cache", lambda path: os.open(path, os.O_RDONLY))
    _write_and_compare(tmp_path / "file", [8 << 20, 9 << 20], past_cache=True)


def test_a_full_disk_past_the_cache_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(_durable, "open_past_cache", lambda path: opened)
    file = HashingFile(tmp_path / "file", past_cache=True)
    os.dup2(opened, file._descriptor)
    with pytest.raises(CheckpointError, match="No space left"), file:
        file.write(bytes(80 << 20))


def _write_and_compare(path: Path, sizes: list[int], past_cache: bool = False) -> None:
    blocks = [random.Random(size).randbytes(size) for size in sizes]
    with HashingFile(path, past_cache=past_cache) as file:
        for block in blocks:
            assert file.write(memoryview(block)) == len(block)
        assert file.tell() == sum(sizes)
    content = b"".join(blocks)
    assert path.read_bytes() == content
    assert file.digest[:2] == (len(content), _sha256_of_blocks(content))
    assert file.digest == digest_file(path)
    assert file.digest[:2] == digest_bytes(content)[:2]
    plain = FileDigest(len(content), hashlib.sha256(content).hexdigest())  # of earlier releases
    assert digest_file(path, like=plain)[:2] == digest_bytes(content, plain)[:2] == plain[:2]


def _sha256_of_blocks(content: bytes) -> str:
    size = _durable._BLOCK_BYTES
    if len(content) <= size:
        return hashlib.sha256(content).hexdigest()
    blocks = [content[at : at + size] for at in range(0, len(content), size)]
    hashes = b"".join(hashlib.sha256(block).digest() for block in blocks)
    return f"blocks:{hashlib.sha256(hashes).hexdigest()}"


@pytest.mark.parametrize("past_cache", [False, True])
def test_flushing_does_not_move_the_blocks(tmp_path: Path, past_cache: bool) -> None:
    content = random.Random(0).randbytes(9 << 20)
    with HashingFile(tmp_path / "file", past_cache=past_cache) as file:
        for start, stop in ((0, 1), (1, 5 << 20), (5 << 20, 9 << 20)):
            file.write(content[start:stop])
            file.flush()
            assert (tmp_path / "file").stat().st_size == file.tell() == stop
    assert (tmp_path / "file").read_bytes() == content
    assert file.digest == digest_file(tmp_path / "file")


def test_torch_and_pickle_write_into_it(tmp_path: Path) -> None:
    weights = torch.arange(1_000_000.0)
    with HashingFile(tmp_path / "torch") as file:
        torch.save({"weights": weights, "name": "x"}, file)
    assert file.digest == digest_file(tmp_path / "torch")
    assert torch.equal(torch.load(tmp_path / "torch")["weights"], weights)
    with HashingFile(tmp_path / "pickle") as file:
        pickle.dump(list(range(100_000)), file)
    assert file.digest == digest_file(tmp_path / "pickle")
    with HashingFile(tmp_path / "text") as file:
        text = io.TextIOWrapper(file, "utf-8", write_through=True)
        text.write("grün")
        text.detach()
    assert (tmp_path / "text").read_text("utf-8") == "grün"


def test_buffers_of_any_shape_are_written_as_bytes(tmp_path: Path) -> None:
    values = memoryview(bytes(range(12))).cast("H", shape=[2, 3])
    with HashingFile(tmp_path / "file") as file:
        assert file.write(values) == 12
    assert (tmp_path / "file").read_bytes() == values.tobytes()


def test_an_unfinished_file_has_no_digest(tmp_path: Path) -> None:
    file = HashingFile(tmp_path / "file")
    file.write(b"x")
    with pytest.raises(ValueError, match="close the file first"):
        _ = file.digest
    with pytest.raises(KeyError), file:
        raise KeyError
    with pytest.raises(ValueError, match="close the file first"):
        _ = file.digest
    with pytest.raises(ValueError, match="is closed"):
        file.write(b"x")


def test_a_real_full_device_is_explained() -> None:
    file = HashingFile("/dev/full")
    with pytest.raises(
        CheckpointError, match=r"/dev/full: No space left.*9,437,184 bytes are need"
    ):
        file.write(bytes(9 << 20))
    with pytest.raises(CheckpointError, match="No space left"), HashingFile("/dev/full") as small:
        small.write(b"x")


def test_the_reason_is_not_hidden_by_the_writer() -> None:
    with pytest.raises(CheckpointError, match="No space left"), HashingFile("/dev/full") as file:
        torch.save({"weights": torch.zeros(1_000_000)}, file)


def test_digests_know_when_a_file_was_touched(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    digest = digest_file(path)
    assert digest.still_describes(path)
    assert FileDigest(3, digest.sha256).still_describes(path)
    assert not FileDigest(4, digest.sha256).still_describes(path)
    assert not digest._replace(mtime_ns=1).still_describes(path)


def test_a_copy_keeps_content_and_mode(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(3_000_000))
    (tmp_path / "a").chmod(0o750)
    digest = copy_file(tmp_path / "a", tmp_path / "b")
    assert digest.sha256 == digest_file(tmp_path / "a").sha256
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o750


def test_the_first_error_of_many_is_raised() -> None:
    def work(number: int) -> int:
        if number == 3:
            raise KeyError(number)
        return number * 2

    assert for_each(work, [1, 2]) == [2, 4]
    assert for_each(work, []) == []
    with pytest.raises(KeyError):
        for_each(work, range(100))
