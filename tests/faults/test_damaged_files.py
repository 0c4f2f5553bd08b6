"""A checkpoint with any damage in any of its files is never used, and the one before it is."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined import pytorch
from determined.errors import CheckpointNotFound, InvalidCheckpointException
from determined.storage import SharedFSStorageManager
from tests.support.faults import factor
from tests.support.resumable import FILES, ResumableTrial, Trained, checkpoints, train

TOTAL = 7
# These say the same in all checkpoints of a run, or (the manifest) have a test of their own.
NEVER_OUTDATED = ("run.json", "load_data.json", "manifest.json")
HARMS = ["emptied", "halved", "shortened", "lengthened", "zeroed", "deleted", "outdated"]
FLIPS = 20 * factor()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage with checkpoints of one run after 2, 4 and 6 batches."""
    folder = tmp_path_factory.mktemp("damaged")
    train(folder, 6, checkpoint_period=pytorch.Batch(2))
    return folder


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(tmp_path_factory.mktemp("unbroken"), TOTAL)


def harm(file: Path, how: str, older: Path) -> None:
    content = file.read_bytes()
    if how == "deleted":
        file.unlink()
        return
    file.write_bytes(
        {
            "emptied": b"",
            "halved": content[: len(content) // 2],
            "shortened": content[:-1],
            "lengthened": content + b"\0",
            "zeroed": bytes(len(content)),
            "outdated": older.read_bytes(),
        }[how]
    )


@contextlib.contextmanager
def harmless(*files: Path) -> Iterator[None]:
    """Put the files back as they were."""
    contents = {file: file.read_bytes() for file in files}
    try:
        yield
    finally:
        for file, content in contents.items():
            file.write_bytes(content)


def folders(root: Path) -> list[Path]:
    return [root / checkpoint.storage_id for checkpoint in checkpoints(root)]


def is_passed_over(root: Path, damaged: Path, file: str, log: pytest.LogCaptureFixture) -> None:
    """The one before is chosen, with the reason; asked for by name, it is refused."""
    log.clear()
    storage = SharedFSStorageManager(root)
    chosen = storage.latest("run")
    assert chosen is not None
    assert chosen.metadata["steps_completed"] == 4
    if (damaged / "manifest.json").exists():  # without one it never was a checkpoint
        assert damaged.name in log.text
        assert file in log.text
        with pytest.raises(InvalidCheckpointException) as caught:
            storage.verify(damaged)
        assert file in str(caught.value)


@pytest.mark.parametrize(
    ("file", "how"),
    [
        (file, how)
        for file, how in itertools.product(FILES, HARMS)
        if how != "outdated" or file not in NEVER_OUTDATED
    ],
)
def test_any_harm_to_a_file_is_found(
    root: Path, file: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    _, older, newest = folders(root)
    with harmless(newest / file):
        harm(newest / file, how, older / file)
        is_passed_over(root, newest, file, caplog)


def test_a_manifest_of_another_checkpoint_vouches_for_nothing(root: Path) -> None:
    storage = SharedFSStorageManager(root)
    _, older, newest = folders(root)
    for manifest in (older / "manifest.json", newest / "manifest.json"):
        with harmless(older / "manifest.json", newest / "manifest.json"):
            content = manifest.read_bytes()
            (older / "manifest.json").write_bytes(content)
            (newest / "manifest.json").write_bytes(content)
            wrong = newest if manifest.parent == older else older
            with pytest.raises(InvalidCheckpointException, match="damaged|bytes instead of"):
                storage.verify(wrong.name)
            chosen = storage.latest("run")
            assert chosen is not None
            assert chosen.storage_id == manifest.parent.name


@pytest.mark.parametrize("file", FILES)
def test_any_flipped_bit_is_found(root: Path, file: str, caplog: pytest.LogCaptureFixture) -> None:
    newest = folders(root)[-1]
    draw = random.Random(file)
    content = (newest / file).read_bytes()
    with harmless(newest / file):
        for _ in range(FLIPS):
            damaged = bytearray(content)
            damaged[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
            (newest / file).write_bytes(damaged)
            is_passed_over(root, newest, file, caplog)


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(FILES, 2)))
def test_swapped_files_are_found(
    root: Path, one: str, other: str, caplog: pytest.LogCaptureFixture
) -> None:
    newest = folders(root)[-1]
    with harmless(newest / one, newest / other):
        content = (newest / one).read_bytes()
        (newest / one).write_bytes((newest / other).read_bytes())
        (newest / other).write_bytes(content)
        is_passed_over(root, newest, "manifest" if "manifest" in one + other else "", caplog)


@pytest.mark.parametrize("file", FILES)
def test_a_run_continues_from_the_one_before_and_ends_the_same(
    root: Path, tmp_path: Path, file: str, unbroken: Trained, caplog: pytest.LogCaptureFixture
) -> None:
    storage = tmp_path / "storage"
    shutil.copytree(root, storage)
    _, older, newest = folders(storage)
    harm(newest / file, random.Random(file).choice(HARMS[:5]), older / file)
    with caplog.at_level(logging.INFO):
        resumed = train(storage, TOTAL, latest_checkpoint="latest")
    assert len(resumed.losses) == TOTAL - 4
    assert resumed.ends_like(unbroken)
    assert file in caplog.text
    assert f"Restoring checkpoint {older.name}" in caplog.text


def test_a_run_without_any_whole_checkpoint_starts_from_the_beginning(
    root: Path, tmp_path: Path, unbroken: Trained, caplog: pytest.LogCaptureFixture
) -> None:
    storage = tmp_path / "storage"
    shutil.copytree(root, storage)
    for folder, file in zip(folders(storage), FILES, strict=False):
        os.truncate(folder / file, 1)
    with caplog.at_level(logging.INFO):
        assert train(storage, TOTAL, latest_checkpoint="latest") == unbroken
    assert caplog.text.count("damaged") == 3
    assert "from the beginning" in caplog.text


def test_a_checkpoint_without_its_manifest_is_not_listed_and_says_so(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = tmp_path / "storage"
    shutil.copytree(root, storage)
    newest = folders(storage)[-1]
    (newest / "manifest.json").unlink()
    assert newest not in folders(storage)
    with caplog.at_level(logging.INFO):
        train(storage, TOTAL, latest_checkpoint=newest.name)
    assert "unverified" in caplog.text


def test_loading_a_trial_by_its_path_finds_damage_too(root: Path) -> None:
    newest = folders(root)[-1]
    for file in FILES:
        with harmless(newest / file):
            os.truncate(newest / file, 3)
            with pytest.raises((InvalidCheckpointException, CheckpointNotFound)):
                pytorch.load_trial_from_checkpoint_path(str(newest), trial_class=ResumableTrial)
