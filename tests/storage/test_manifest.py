"""Damage and hostile manifests are found before anything else is read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.errors import InvalidCheckpointException
from determined.storage import Contents, FileDigest, Manifest, SharedFSStorageManager
from determined.storage._manifest import check_folder, is_inner_path

FILES = ("state_dict.pth", "trial_state.pkl", "load_data.json", "code/main.py", "metadata.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    manager = SharedFSStorageManager(tmp_path / "store")
    stage = manager.pre_store_path("one")
    (stage / "code").mkdir()
    for seed, name in enumerate(FILES[:-1]):
        (stage / name).write_bytes(random.Random(seed).randbytes(500))
    manager.post_store_path(stage, "one", metadata={"steps_completed": 1})
    return tmp_path / "store" / "one"


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.999])
def test_a_truncated_file_is_named(folder: Path, name: str, keep: float) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(InvalidCheckpointException, match=rf"one: {name} has [\d,]+ bytes instead"):
        check_folder(folder, "one")


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_found_wherever_it_is(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    places = random.Random(7)
    for _ in range(20):
        damaged = bytearray(content)
        damaged[places.randrange(len(content))] ^= 1 << places.randrange(8)
        (folder / name).write_bytes(damaged)
        with pytest.raises(InvalidCheckpointException, match=f"one: {name} is damaged"):
            check_folder(folder, "one")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(InvalidCheckpointException, match=f"{name} is missing"):
        check_folder(folder, "one")


def test_swapped_files_are_found(folder: Path) -> None:
    (folder / "state_dict.pth").rename(folder / "x")
    (folder / "trial_state.pkl").rename(folder / "state_dict.pth")
    (folder / "x").rename(folder / "trial_state.pkl")
    with pytest.raises(InvalidCheckpointException, match=r"(state_dict.pth|trial_state.pkl) is d"):
        check_folder(folder, "one")


def test_a_flipped_bit_of_the_manifest_never_changes_its_meaning(folder: Path) -> None:
    content = (folder / "manifest.json").read_bytes()
    expected = Manifest.from_json(content, "one")
    refused = 0
    for place in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        try:
            assert Manifest.from_json(bytes(damaged), "one") == expected
        except InvalidCheckpointException:
            refused += 1
    assert refused > len(content)


def test_extra_files_are_reported_and_do_no_harm(folder: Path) -> None:
    (folder / "code" / "notes.txt").write_text("mine")
    assert check_folder(folder, "one") == ("code/notes.txt",)


def test_links_and_special_files_are_refused(folder: Path) -> None:
    (folder / "code" / "main.py").unlink()
    (folder / "code" / "main.py").symlink_to("/etc/passwd")
    with pytest.raises(InvalidCheckpointException, match="main.py is a symbolic link"):
        check_folder(folder, "one")


def test_a_link_in_place_of_the_manifest_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "manifest.json").rename(tmp_path / "manifest.json")
    (folder / "manifest.json").symlink_to(tmp_path / "manifest.json")
    with pytest.raises(InvalidCheckpointException, match="manifest.json cannot be read"):
        check_folder(folder, "one")


def rewrite(change: Callable[[dict[str, Any]], None]) -> bytes:
    """A changed manifest with a valid checksum, by someone who knows the format."""
    from determined.storage._manifest import _checksum

    manifest = Manifest(Contents({"a": FileDigest(1, "0" * 64)}), sequence=1)
    document = json.loads(manifest.to_json())
    del document["checksum"]
    change(document)
    return json.dumps({**document, "checksum": _checksum(document)}).encode()


@pytest.mark.parametrize(
    "path",
    ["../x", "/etc/passwd", "a/../../x", "", ".", "a//b", "a\0b", "x" * 300, "manifest.json", "a/"],
)
def test_paths_that_lead_outside_are_refused(path: str) -> None:
    text = rewrite(lambda document: document["files"][0].update(path=path))
    with pytest.raises(InvalidCheckpointException, match="not allowed"):
        Manifest.from_json(text, "one")
    if path not in ("manifest.json", "a/"):
        text = rewrite(lambda document: document.update(directories=[path + "/"]))
        with pytest.raises(InvalidCheckpointException, match="not allowed"):
            Manifest.from_json(text, "one")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 3}, "has format version 3; this release reads up to 2"),
        ({"format_version": None}, "format_version"),
        ({"sequence": -1}, "sequence"),
        ({"files": "x"}, "files"),
        ({"files": ["x"]}, "instead of a file"),
        ({"files": [{"path": "a", "size": -1, "sha256": "0" * 64}]}, "size and SHA-256"),
        ({"files": [{"path": "a", "size": True, "sha256": "0" * 64}]}, "size and SHA-256"),
        ({"files": [{"path": "a", "size": 1, "sha256": "0" * 63 + "x"}]}, "size and SHA-256"),
        ({"files": [{"path": "a", "size": 1, "sha256": "0" * 64}] * 2}, "not allowed"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidCheckpointException, match=message):
        Manifest.from_json(rewrite(lambda document: document.update(change)), "one")


def test_only_hashes_of_blocks_need_the_newer_format() -> None:
    plain, blocks = FileDigest(1, "0" * 64), FileDigest(5 << 20, f"blocks:{'1' * 64}")
    small = Manifest(Contents({"a": plain}), sequence=1)
    large = Manifest(Contents({"a": plain, "b": blocks}), sequence=1)
    assert json.loads(small.to_json())["format_version"] == 1  # so earlier releases read it
    assert json.loads(large.to_json())["format_version"] == 2
    for manifest in (small, large):
        assert Manifest.from_json(manifest.to_json(), "one").contents == manifest.contents


@pytest.mark.parametrize("is_damaged", [False, True])
def test_large_files_of_earlier_releases_are_verified_by_their_plain_hash(
    tmp_path: Path, is_damaged: bool
) -> None:
    content = bytearray(range(256)) * (9 << 12)
    manager, folder = SharedFSStorageManager(tmp_path), tmp_path / "one"
    folder.mkdir()
    digest = FileDigest(len(content), hashlib.sha256(content).hexdigest())
    (folder / "manifest.json").write_bytes(Manifest(Contents({"a": digest}), sequence=1).to_json())
    content[-1] ^= is_damaged
    (folder / "a").write_bytes(content)
    with pytest.raises(InvalidCheckpointException) if is_damaged else contextlib.nullcontext():
        assert manager.verify("one")
    with pytest.raises(InvalidCheckpointException) if is_damaged else contextlib.nullcontext():
        manager.download("one", tmp_path / "copy")
        assert (tmp_path / "copy" / "a").read_bytes() == content


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b"{}"])
def test_what_is_no_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidCheckpointException):
        Manifest.from_json(text, "one")


def test_a_huge_manifest_is_not_parsed(folder: Path) -> None:
    with (folder / "manifest.json").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(InvalidCheckpointException, match="larger than"):
        check_folder(folder, "one")


names = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=20
).filter(lambda name: name not in (".", "..", "manifest.json"))


@given(
    files=st.dictionaries(names, st.integers(0, 1 << 50)),
    sequence=st.integers(0, (1 << 63) - 1),
    steps=st.none() | st.integers(0, (1 << 63) - 1),
)
def test_manifests_survive_the_round_trip(
    files: dict[str, int], sequence: int, steps: int | None
) -> None:
    contents = Contents(
        {name: FileDigest(size, "ab" * 32) for name, size in files.items()}, frozenset(["d/"])
    )
    manifest = Manifest(contents, sequence, steps)
    assert Manifest.from_json(manifest.to_json(), "one") == manifest


@given(st.lists(names, min_size=1, max_size=4))
def test_an_inner_path_stays_inside(parts: list[str]) -> None:
    path = "/".join(parts)
    assert is_inner_path(path) == (len(path) <= 4096 and all(len(p.encode()) < 256 for p in parts))
    assert not is_inner_path("/" + path)
    assert not is_inner_path("../" + path)
    assert not is_inner_path(path + "/..")
