"""Checkpoints made to do harm run nothing, write nothing outside, hang nowhere, fill no memory."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import shutil
import socket
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from determined import core, pytorch
from determined.errors import CheckpointNotFound, InvalidCheckpointException
from determined.storage import SharedFSStorageManager
from determined.storage._base import tag_of
from tests.support.faults import factor
from tests.support.hostile import (
    RAW_ATTACKS,
    SENTINEL,
    claimed_storage,
    forge,
    forged_manifest,
    laughing_counters,
    laughing_keys,
    laughing_state,
    script_archive,
    torch_archive,
)
from tests.support.resumable import ResumableTrial, checkpoints, train
from tests.support.workers import run_workers

REFUSED = (InvalidCheckpointException, CheckpointNotFound)
TENSOR_FILES = [
    "state_dict.pth",
    "determined/state_dict.pth",
    "pedl/state_dict.pth",
    "checkpoint.pt",
    "ranks/rank_0.pth",
    "shards/rank_0.pth",
]
COUNTER_FILES = ["trial_state.pkl", "workload_sequencer.pkl"]
JSON_FILES = ["manifest.json", "metadata.json", "run.json", "load_data.json"]


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("intact")
    train(storage, 2)
    (found,) = checkpoints(storage)
    return storage / found.storage_id


@pytest.fixture
def checkpoint(intact: Path, tmp_path: Path) -> Path:
    """A copy of a checkpoint, to be spoilt, alone in its storage."""
    return Path(shutil.copytree(intact, tmp_path / "hostile" / "one"))


@pytest.fixture(autouse=True)
def _nothing_ran(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_text("mine")
    before = everything_in(tmp_path)
    yield
    assert not list(tmp_path.rglob(f"{SENTINEL}*"))
    after = everything_in(tmp_path)
    assert after == before, "something was written or deleted outside of the storage"


def everything_in(folder: Path) -> set[str]:
    """Return the names of all that is neither in the storages nor written by training."""
    ours = ("hostile", "storage", "download", "tensorboard")
    found = (path.relative_to(folder) for path in folder.rglob("*"))
    return {str(path) for path in found if path.parts[0] not in ours}


def is_refused(checkpoint: Path, match: str | None = None) -> str:
    """Every way in refuses it; return the reason."""
    root, name = checkpoint.parent, checkpoint.name
    reasons = []
    for given_as in (name, str(checkpoint)):
        with pytest.raises(REFUSED, match=match) as caught:
            train(root, 9, latest_checkpoint=given_as)
        reasons.append(str(caught.value))
    with pytest.raises(REFUSED, match=match):
        pytorch.load_trial_from_checkpoint_path(str(checkpoint), trial_class=ResumableTrial)
    assert max(map(len, reasons)) < 1500
    return reasons[0]


# Pickles.


def place(checkpoint: Path, file: str, content: bytes) -> None:
    """Put the content where a reader finds it first, with a manifest that fits."""
    if file in TENSOR_FILES[:4]:
        (checkpoint / "state_dict.pth").unlink()
    if file == "shards/rank_0.pth":
        shard = {"determined.shard": "k", "shape": [1], "dtype": "float32"}
        state = torch.load(checkpoint / "state_dict.pth", weights_only=True)
        torch.save({**state, "more": shard}, checkpoint / "state_dict.pth")
    if file == "workload_sequencer.pkl":
        (checkpoint / "trial_state.pkl").unlink()
    (checkpoint / file).parent.mkdir(exist_ok=True)
    (checkpoint / file).write_bytes(content)
    forge(checkpoint)


def resume_is_refused(checkpoint: Path, file: str) -> None:
    with pytest.raises(InvalidCheckpointException, match=file):
        train(checkpoint.parent, 9, latest_checkpoint=checkpoint.name)


@pytest.mark.parametrize("is_archive", [True, False], ids=["archive", "bare"])
@pytest.mark.parametrize("attack", RAW_ATTACKS)
@pytest.mark.parametrize("file", TENSOR_FILES)
def test_no_pickle_runs_in_any_tensor_file(
    checkpoint: Path, file: str, attack: str, is_archive: bool
) -> None:
    content = RAW_ATTACKS[attack]
    place(checkpoint, file, torch_archive(content) if is_archive else content)
    resume_is_refused(checkpoint, file)


@pytest.mark.parametrize("attack", RAW_ATTACKS)
@pytest.mark.parametrize("file", COUNTER_FILES)
def test_no_pickle_runs_in_any_counter_file(checkpoint: Path, file: str, attack: str) -> None:
    place(checkpoint, file, RAW_ATTACKS[attack])
    resume_is_refused(checkpoint, file)


@pytest.mark.parametrize("attack", RAW_ATTACKS)
@pytest.mark.parametrize("file", JSON_FILES)
def test_no_pickle_runs_in_any_json_file(checkpoint: Path, file: str, attack: str) -> None:
    (checkpoint / file).write_bytes(RAW_ATTACKS[attack])
    if file != "manifest.json":
        forge(checkpoint)
    if file in ("manifest.json", "load_data.json"):
        with pytest.raises(REFUSED, match=file):
            pytorch.load_trial_from_checkpoint_path(str(checkpoint), trial_class=ResumableTrial)
    if file in ("manifest.json", "run.json"):
        with pytest.raises(REFUSED, match=file):
            train(checkpoint.parent, 9, latest_checkpoint="one")
    if file in ("manifest.json", "metadata.json"):
        assert SharedFSStorageManager(checkpoint.parent).latest() is None


def test_a_script_archive_is_not_handed_to_another_loader(checkpoint: Path) -> None:
    place(checkpoint, "state_dict.pth", script_archive())
    is_refused(checkpoint, "state_dict.pth")


# Names.

BAD_PATHS = [
    "../outside/precious",
    "../../outside/precious",
    "a/../../outside/precious",
    "/etc/passwd",
    "//etc/passwd",
    "./state_dict.pth",
    "a//b",
    "",
    ".",
    "..",
    "a\0b",
    "a" * 256,
    "a/" * 3000 + "b",
    "\ud800",
    "dir/\udcff\ud800",
    "manifest.json",
]
BAD_IDS: list[Any] = [
    "..",
    ".",
    "",
    "../outside",
    "../hostile/one",
    "one/../one",
    "one/",
    "./one",
    "a/b",
    "a\\b",
    "a\0b",
    "x" * 201,
    "x" * 5000,
    "é" * 150,
    ".hidden",
    "C:one",
    "on*",
    "on?",
    "[o]ne",
    "one#1",
    "one\n",
    "\ud800",
    "\u202eeno",
    b"one",
    5,
    None,
]


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (kind, path)
        for kind in ("files", "directories")
        for path in BAD_PATHS
        if (kind, path) != ("directories", "manifest.json")  # a folder of that name does no harm
    ],
    ids=lambda text: ascii(text[:20]),
)
def test_no_entry_of_a_manifest_leads_outside(
    checkpoint: Path, tmp_path: Path, path: str, kind: str
) -> None:
    entry: Any = {"path": path, "size": 4, "sha256": "0" * 64} if kind == "files" else path + "/"
    (checkpoint / "manifest.json").write_bytes(forged_manifest(**{kind: [entry]}))
    storage = SharedFSStorageManager(checkpoint.parent)
    assert storage.list() == []
    assert storage.latest() is None
    with pytest.raises(InvalidCheckpointException, match="manifest.json"):
        storage.verify("one")
    with pytest.raises(InvalidCheckpointException, match="manifest.json"):
        storage.download("one", tmp_path / "download")
    assert not (tmp_path / "download").exists()
    with pytest.raises(InvalidCheckpointException, match="manifest.json"):
        storage.delete("one", ["state_dict.pth"])
    assert "manifest.json" in is_refused(checkpoint)
    storage.delete("one", ["**/*"])
    assert storage.list() == []


@pytest.mark.parametrize("storage_id", BAD_IDS, ids=lambda storage_id: ascii(storage_id)[:20])
def test_no_name_of_a_checkpoint_leads_outside(
    checkpoint: Path, tmp_path: Path, storage_id: Any
) -> None:
    storage = SharedFSStorageManager(checkpoint.parent)
    with core.init(checkpoint_storage=checkpoint.parent) as context:
        checkpoints = context.checkpoint
        calls: list[Callable[[], Any]] = [
            lambda: storage.begin(storage_id),
            lambda: storage.verify(storage_id),
            lambda: storage.resources(storage_id),
            lambda: storage.get_metadata(storage_id),
            lambda: storage.delete(storage_id, ["**/*"]),
            lambda: storage.download(storage_id, tmp_path / "download"),
            lambda: storage.upload(checkpoint, storage_id),
            lambda: storage.restore_path(storage_id).__enter__(),
            lambda: checkpoints.download(storage_id, tmp_path / "download"),
            lambda: checkpoints.get_metadata(storage_id),
            lambda: checkpoints.delete(storage_id),
            lambda: checkpoints.restore_path(storage_id).__enter__(),
        ]
        if storage_id is not None:
            calls.append(lambda: train(checkpoint.parent, 3, latest_checkpoint=storage_id))
        for call in calls:
            with pytest.raises((ValueError, TypeError, *REFUSED)):
                call()
    assert not (tmp_path / "download").exists()
    assert [found.storage_id for found in storage.list()] == ["one"]


@settings(max_examples=150 * factor())
@given(st.text(max_size=300) | st.text(alphabet="./\\\0~$%", max_size=20))
def test_any_text_is_a_plain_name_or_refused(storage_id: str) -> None:
    storage = SharedFSStorageManager("/nonexistent/storage")
    with pytest.raises((ValueError, *REFUSED)):  # "/" is a place, but no checkpoint
        storage.verify(storage_id)
    assert storage.list() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"sequence": 10**4000},
        {"sequence": -1},
        {"sequence": True},
        {"sequence": 1e3},
        {"format_version": 10**4000},
        {"format_version": "1"},
        {"files": [{"path": "a", "size": 10**4000, "sha256": "0" * 64}]},
        {"files": [{"path": ["a"], "size": 1, "sha256": "0" * 64}]},
        {"files": {"a": 1}},
        {"files": [[[]]]},
        {"directories": [["a/"]]},
        {"directories": [5]},
    ],
    ids=str,
)
def test_a_manifest_that_makes_no_sense_hides_its_checkpoint_and_no_other(
    checkpoint: Path, changes: dict[str, Any]
) -> None:
    (checkpoint / "manifest.json").write_bytes(forged_manifest(**changes))
    train(checkpoint.parent, 2)  # the next number of the order is found all the same
    storage = SharedFSStorageManager(checkpoint.parent)
    assert [found.storage_id == "one" for found in storage.list()] == [False]
    assert storage.latest("run") is not None


@pytest.mark.parametrize(
    "value", [10**400, -(10**400), 1e400, float("nan"), "1", None, True, [1], {}, 10**4000], ids=str
)
def test_made_up_metrics_do_not_disturb_the_search_for_the_best(
    checkpoint: Path, value: Any
) -> None:
    text = json.dumps({"run_id": "run", "metrics": {"error": value}})
    (checkpoint / "metadata.json").write_text(text)
    forge(checkpoint)
    train(checkpoint.parent, 2, metric="error", checkpoint_policy="best")
    best = SharedFSStorageManager(checkpoint.parent).best("error", run_id="run")
    assert best is not None
    assert best.storage_id != "one"


# Links and special files.


@pytest.mark.parametrize("target", ["../../outside/precious", "../../outside", "/dev/zero", "loop"])
@pytest.mark.parametrize("file", ["state_dict.pth", "manifest.json", "ranks", "code", "extra"])
def test_links_are_refused(checkpoint: Path, file: str, target: str) -> None:
    if (checkpoint / file).is_dir():
        shutil.rmtree(checkpoint / file)
    (checkpoint / file).unlink(missing_ok=True)
    (checkpoint / file).symlink_to(checkpoint / "loop" if target == "loop" else target)
    (checkpoint / "loop").symlink_to("loop")
    assert "link" in is_refused(checkpoint)
    assert SharedFSStorageManager(checkpoint.parent).list() == []


def test_a_link_in_place_of_a_checkpoint_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    storage = SharedFSStorageManager(checkpoint.parent)
    shutil.move(checkpoint, tmp_path / "hostile" / "two")
    checkpoint.symlink_to(tmp_path / "outside")
    assert [found.storage_id for found in storage.list()] == ["two"]
    for call in (storage.verify, storage.get_metadata, storage.resources):
        with pytest.raises(InvalidCheckpointException, match="symbolic link"):
            call("one")
    with pytest.raises(InvalidCheckpointException, match="symbolic link"):
        storage.delete("one", ["**/*"])


_TAG = tag_of("run")


@pytest.mark.parametrize(
    "name", [".det-runs", f".det-runs/{_TAG}", f".det-runs/{_TAG}/one", f".det-runs/{_TAG}/a b:c"]
)
def test_tags_are_not_read_or_written_through_links(
    checkpoint: Path, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside"
    link = checkpoint.parent / name
    shutil.rmtree(checkpoint.parent / ".det-runs", ignore_errors=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside if name.count("/") < 2 else outside / "new")
    storage = SharedFSStorageManager(checkpoint.parent)
    for listing in (storage.list, storage.list_tagged):
        listing("run")
        storage._note_run("one", "run")


@pytest.mark.parametrize("name", [".det-locks", ".det-locks/one"])
def test_locks_are_not_taken_through_links(checkpoint: Path, tmp_path: Path, name: str) -> None:
    link = checkpoint.parent / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "outside" / ("" if name == ".det-locks" else "new"))
    train(checkpoint.parent, 3, latest_checkpoint="one")
    pytorch.load_trial_from_checkpoint_path(str(checkpoint), trial_class=ResumableTrial)


def test_stages_that_are_links_are_not_followed_by_the_sweep(
    checkpoint: Path, tmp_path: Path
) -> None:
    for kind in ("tmp", "del"):
        stage = checkpoint.parent / f".one.{kind}-{'0' * 32}"
        stage.symlink_to(tmp_path / "outside")
    SharedFSStorageManager(checkpoint.parent).sweep()
    train(checkpoint.parent, 2)


def make_special(path: Path, kind: str) -> None:
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        descriptor = os.open(path.parent, os.O_RDONLY)  # the names of sockets are short
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(f"/proc/self/fd/{descriptor}/{path.name}")
        os.close(descriptor)
    else:
        try:
            os.mknod(path, 0o20666, os.makedev(1, 5))  # the device behind /dev/zero
        except PermissionError:
            pytest.skip("this user may not make devices")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
@pytest.mark.parametrize(
    "file", [*JSON_FILES, "state_dict.pth", "trial_state.pkl", "ranks/rank_0.pth", "extra"]
)
def test_special_files_are_refused_without_waiting_for_them(
    checkpoint: Path, file: str, kind: str
) -> None:
    (checkpoint / file).unlink(missing_ok=True)
    make_special(checkpoint / file, kind)
    is_refused(checkpoint)
    assert SharedFSStorageManager(checkpoint.parent).latest() is None


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
def test_special_files_beside_checkpoints_do_no_harm(checkpoint: Path, kind: str) -> None:
    for name in ("two", ".det-locks", ".det-runs", f".x.tmp-{'0' * 32}"):
        make_special(checkpoint.parent / name, kind)
    assert [found.storage_id for found in SharedFSStorageManager(checkpoint.parent).list()] == [
        "one"
    ]
    train(checkpoint.parent, 3, latest_checkpoint="latest")


# Bombs.


def deflated(pickle_bytes: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("archive/data.pkl", pickle_bytes)
        archive.writestr("archive/version", "3\n")
    return buffer.getvalue()


def many_values(size: int) -> bytes:
    return b'{"metrics": [' + b"[]," * (size // 3) + b"0]}"


MIB = 1 << 20
# What is put where. Sizes are small on disk, or sparse, or at the limit of what is read at all.
BOMBS: dict[str, tuple[str, Callable[[], bytes | int]]] = {
    "a compressed pickle": ("state_dict.pth", lambda: deflated(bytes(256 * MIB))),
    "a compressed pickle of a rank": ("ranks/rank_0.pth", lambda: deflated(bytes(256 * MIB))),
    "a tensor that claims a lot": ("state_dict.pth", lambda: claimed_storage(1 << 33)),
    "a list that unfolds": ("state_dict.pth", lambda: torch_archive(laughing_state(100))),
    "a bare list that unfolds": ("state_dict.pth", lambda: laughing_state(100)),
    "a rank's list that unfolds": ("ranks/rank_0.pth", lambda: torch_archive(laughing_state(100))),
    "counters that unfold": ("trial_state.pkl", lambda: laughing_counters(100)),
    "keys that unfold": ("trial_state.pkl", lambda: laughing_keys(100)),
    "a text that claims a lot": (
        "trial_state.pkl",
        lambda: b"\x80\x04\x8d" + (1 << 40).to_bytes(8, "little") + b"a.",
    ),
    "bytes that claim a lot": (
        "trial_state.pkl",
        lambda: b"\x80\x05\x96" + (1 << 32).to_bytes(8, "little") + b"a.",
    ),
    "a text that claims a lot in a tensor file": (
        "state_dict.pth",
        lambda: torch_archive(b"\x80\x02X" + (0xFFFFFFF0).to_bytes(4, "little") + b"a."),
    ),
    "a huge empty tensor file": ("state_dict.pth", lambda: 1024 * MIB),
    "huge empty counters": ("trial_state.pkl", lambda: 1024 * MIB),
    **{f"nothing but size in {file}": (file, lambda: 1024 * MIB) for file in JSON_FILES},
    **{f"many values in {file}": (file, lambda: many_values(60 * MIB)) for file in JSON_FILES},
    **{f"many numbers in {file}": (file, lambda: b"1" * (10 * MIB)) for file in JSON_FILES},
    **{f"depth in {file}": (file, lambda: b'{"a":' * MIB) for file in JSON_FILES},
}


def explode(folder: Path) -> dict[str, Any]:
    """Try every way into every bomb; return by how many bytes this process grew at each."""
    torch.set_num_threads(1)
    train(folder / "other", 1)  # loads what is imported on first use
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + 4096 * MIB,) * 2)
    return {checkpoint.name: growth(checkpoint) for checkpoint in sorted(folder.glob("bombs/*/*"))}


def growth(checkpoint: Path) -> int | str:
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmHWM")
    must_refuse = checkpoint.name.split(" in ")[-1] not in ("metadata.json", "load_data.json")
    try:
        train(checkpoint.parent, 9, latest_checkpoint=checkpoint.name)
        if must_refuse:
            return "it was used"
    except (*REFUSED, RuntimeError):  # the latter: it is no state of this trial
        pass
    with contextlib.suppress(*REFUSED):
        pytorch.load_trial_from_checkpoint_path(str(checkpoint), trial_class=ResumableTrial)
    with contextlib.suppress(*REFUSED):
        SharedFSStorageManager(checkpoint.parent)._look_up(checkpoint.name)
    return _status("VmHWM") - before


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    raise AssertionError(name)


def plant(checkpoint: Path, file: str, content: bytes | int) -> int:
    """Put a bomb into a checkpoint; return how much of it is really there."""
    if isinstance(content, int):
        with (checkpoint / file).open("wb") as opened:
            opened.truncate(content)
        return 0
    (checkpoint / file).write_bytes(content)
    if file != "manifest.json":
        forge(checkpoint)
    return len(content)


@pytest.mark.multiprocess
@pytest.mark.slow
def test_bombs_are_refused_in_little_memory_and_time(intact: Path, tmp_path: Path) -> None:
    folder = tmp_path / "storage"
    sizes = {
        bomb: plant(Path(shutil.copytree(intact, folder / "bombs" / bomb / bomb)), file, build())
        for bomb, (file, build) in BOMBS.items()
    }
    (grown,) = run_workers(1, explode, folder, deadline_seconds=100, process_group=False)
    assert grown.keys() == BOMBS.keys()
    too_much = {
        bomb: (growth, sizes[bomb])
        for bomb, growth in grown.items()
        if isinstance(growth, str) or growth > 2 * sizes[bomb] + 96 * MIB
    }
    assert not too_much
