"""Frozen weights are written once: checkpoints share their files, and each is whole by itself."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

from determined import pytorch
from determined._contracts.tensor_hashes import read_tensor_hashes
from determined.errors import InvalidCheckpointException
from determined.pytorch._checkpoint.files.reading import read_state
from determined.pytorch._checkpoint.joining import join_files
from determined.pytorch._checkpoint.state.hashing import hash_states
from determined.storage import SharedFSStorageManager, _crash_points, build
from tests.support.adapters import Adapted, AdapterTrial, bytes_on_disk, train
from tests.support.forks import Child
from tests.support.forwarder import forward
from tests.support.messages import documented
from tests.support.trials import checkpoints
from tests.support.workers import free_port, run_workers

MODELS = "models_state_dict"


def saved(storage: Path) -> list[Path]:
    """Return the checkpoints of a storage, oldest first."""
    return [path for _, (path,) in sorted(checkpoints(storage).items())]


def inodes(checkpoint: Path) -> set[int]:
    return {file.stat().st_ino for file in (checkpoint / "frozen").glob("*")}


def frozen_in(checkpoint: Path) -> set[str]:
    hashes = read_tensor_hashes(checkpoint)
    assert hashes is not None
    return {path for file in hashes.frozen.values() for path in file["tensors"]}


def assert_equal_state(one: Path, other: Path) -> None:
    """Compare all that two checkpoints hold, bit for bit."""
    first, second = read_state(one, False), read_state(other, False)
    torch.testing.assert_close(first[MODELS], second[MODELS], rtol=0, atol=0)
    assert hash_states(first, []) == hash_states(second, [])


def test_four_checkpoints_take_little_more_than_one_and_hold_the_same(tmp_path: Path) -> None:
    train(tmp_path / "once", 8)
    train(tmp_path / "always", 8, "always")
    once, always = saved(tmp_path / "once"), saved(tmp_path / "always")
    assert len(once) == len(always) == 4
    for one, other in zip(once, always, strict=True):
        assert_equal_state(one, other)
        assert not (other / "frozen").exists()
    assert bytes_on_disk(tmp_path / "once") <= 1.3 * bytes_on_disk(always[0])
    assert bytes_on_disk(tmp_path / "always") > 3.5 * bytes_on_disk(always[0])


def test_each_stays_whole_when_others_are_deleted_or_it_is_copied(tmp_path: Path) -> None:
    trial = train(tmp_path / "once", 6, keep_last=2)
    manager = SharedFSStorageManager(tmp_path / "once")
    older, newest = saved(tmp_path / "once")
    shutil.copytree(newest, tmp_path / "copy" / newest.name)
    manager.download(newest.name, tmp_path / "download" / newest.name)
    manager.delete(older.name, ["**/*"])
    for folder in (newest.parent, tmp_path / "copy", tmp_path / "download"):
        assert SharedFSStorageManager(folder).verify(newest.name)
        loaded = pytorch.load_trial_from_checkpoint_path(
            str(folder / newest.name), trial_class=AdapterTrial
        )
        expected, found = trial.model.state_dict(), loaded.model.state_dict()  # type: ignore[attr-defined]  # ours
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_a_resumed_run_shares_with_the_checkpoint_that_it_started_from(tmp_path: Path) -> None:
    train(tmp_path / "cut", 4)
    train(tmp_path / "cut", 8, checkpoint="latest")
    train(tmp_path / "unbroken", 8)
    cut, unbroken = saved(tmp_path / "cut"), saved(tmp_path / "unbroken")
    assert len(set(map(frozenset, map(inodes, cut[1:])))) == 1
    for one, other in zip(cut, unbroken, strict=True):
        assert_equal_state(one, other)
    elsewhere = tmp_path / "elsewhere"
    train(elsewhere, 10, checkpoint=str(cut[-1]))
    assert not inodes(saved(elsewhere)[0]) & inodes(cut[-1])


def test_checkpoints_of_both_kinds_continue_each_other(tmp_path: Path) -> None:
    train(tmp_path / "mixed", 2, "always")
    train(tmp_path / "mixed", 4, "once", checkpoint="latest")
    train(tmp_path / "mixed", 6, "always", checkpoint="latest")
    train(tmp_path / "plain", 6, "always")
    for one, other in zip(saved(tmp_path / "mixed"), saved(tmp_path / "plain"), strict=True):
        assert_equal_state(one, other)
    assert [bool(inodes(path)) for path in saved(tmp_path / "mixed")] == [False, True, False]


class Unfreezing(AdapterTrial):
    """From the fifth batch on, one layer of the base is trained, too."""

    def change(self, batch_idx: int) -> None:
        if batch_idx == 4:
            self.model.first_layer.requires_grad_(True)
            self.optimizer.add_param_group({"params": list(self.model.first_layer.parameters())})


class Writing(AdapterTrial):
    """Writes into a frozen weight, past all that could notice it."""

    def change(self, batch_idx: int) -> None:
        if batch_idx == 4:
            self.model.first_layer.weight.data.numpy()[0, 0] = 7


class Moving(AdapterTrial):
    """A weight that requires no gradient changes with every batch, as that of a teacher does."""

    def change(self, batch_idx: int) -> None:
        self.model.first_layer.weight.data.mul_(1.01)


@pytest.mark.parametrize("trial_class", [Unfreezing, Writing, Moving])
def test_bytes_decide_what_is_shared(tmp_path: Path, trial_class: type[AdapterTrial]) -> None:
    train(tmp_path / "once", 10, trial_class=trial_class)
    train(tmp_path / "always", 10, "always", trial_class)
    for one, other in zip(saved(tmp_path / "once"), saved(tmp_path / "always"), strict=True):
        assert_equal_state(one, other)
    first, *_, before, last = saved(tmp_path / "once")
    moved = "models/0/base.0.weight"
    assert moved in frozen_in(first)
    assert (moved in frozen_in(last)) == (trial_class is Writing)
    assert "models/0/base.1.weight" in frozen_in(last)
    assert inodes(before) & inodes(last)
    assert "models/0/norm.running_mean" not in frozen_in(first) | frozen_in(last)
    assert "models/0/table" in frozen_in(last)


class Several(AdapterTrial):
    """Two models with one base, a view of trained memory, and a copy in a callback's state."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context)
        other = Adapted()
        other.base = self.model.base
        other.register_buffer("window", cast(nn.Linear, self.model.up[0]).weight.detach()[:10])
        self.other = context.wrap_model(other)

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return {"holder": _Holder(self.model.table)}


class _Holder(pytorch.PyTorchCallback):
    def __init__(self, table: torch.Tensor) -> None:
        self._table = table

    def state_dict(self) -> dict[str, Any]:
        return {"table": self._table}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        pass


def test_models_share_what_they_share_and_nothing_of_trained_memory(tmp_path: Path) -> None:
    train(tmp_path / "once", 6, trial_class=Several)
    *_, last = saved(tmp_path / "once")
    found = frozen_in(last)
    assert {f"models/{index}/base.0.weight" for index in (0, 1)} <= found
    assert "models/1/window" not in found
    assert "models/0/table" not in found  # the callback has it, too
    assert "models/1/table" in found
    first, second = read_state(last, False)[MODELS]
    assert first["base.0.weight"].data_ptr() == second["base.0.weight"].data_ptr()
    assert bytes_on_disk(tmp_path / "once") < 1.6 * bytes_on_disk(last)


@pytest.mark.parametrize("code", [errno.EMLINK, errno.EXDEV, errno.EPERM])
def test_what_cannot_be_linked_is_written_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    train(tmp_path / "once", 4)
    first, second = saved(tmp_path / "once")
    assert not inodes(first) & inodes(second)
    assert SharedFSStorageManager(tmp_path / "once").verify(second.name)


def test_after_a_failed_verification_the_next_save_writes_in_full(tmp_path: Path) -> None:
    storage = tmp_path / "once"
    train(storage, 4)
    damaged = saved(storage)[-1]
    shutil.copytree(damaged, tmp_path / "intact")
    content = bytearray((damaged / "frozen" / "0.pth").read_bytes())
    content[len(content) // 2] ^= 1
    with (damaged / "frozen" / "0.pth").open("r+b") as file:  # the same file in all of them
        file.write(content)
    manager = SharedFSStorageManager(storage)
    for checkpoint in saved(storage):
        with pytest.raises(InvalidCheckpointException, match=r"frozen/0.pth is damaged"):
            manager.verify(checkpoint.name)
    shutil.rmtree(damaged)
    (tmp_path / "intact").rename(damaged)
    train(storage, 8, checkpoint="latest")
    third, fourth = saved(storage)[2:]
    assert not inodes(damaged) & inodes(third)
    assert inodes(third) == inodes(fourth)
    assert manager.verify(third.name)


def test_joined_files_are_the_plain_form(tmp_path: Path) -> None:
    train(tmp_path / "once", 4)
    train(tmp_path / "always", 4, "always")
    once, always = saved(tmp_path / "once")[-1], saved(tmp_path / "always")[-1]
    target = tmp_path / "download" / once.name
    SharedFSStorageManager(tmp_path / "once").download(once.name, target)
    assert join_files(target)
    assert not join_files(target)
    assert not (target / "frozen").exists()
    assert SharedFSStorageManager(target.parent).verify(once.name)
    found = torch.load(target / "state_dict.pth", weights_only=True)[MODELS]
    expected = torch.load(always / "state_dict.pth", weights_only=True)[MODELS]
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"determined.frozen": "../../x.pth", "tensor": "a"}, "no file of a checkpoint"),
        ({"determined.frozen": "frozen/0.pth", "tensor": "a"}, "does not hold a"),
        ({"determined.frozen": "frozen/0.pth", "tensor": ["a"]}, "does not hold"),
        ({"determined.frozen": "frozen/9.pth", "tensor": "a"}, "frozen/9.pth"),
    ],
)
def test_a_description_that_leads_elsewhere_is_refused(
    tmp_path: Path, description: dict[str, Any], message: str
) -> None:
    (tmp_path / "frozen").mkdir()
    torch.save({"b": torch.ones(1)}, tmp_path / "frozen" / "0.pth")
    torch.save({MODELS: [{"weight": description}]}, tmp_path / "state_dict.pth")
    with pytest.raises(Exception, match=message):
        read_state(tmp_path, allow_pickle=False)


def test_it_may_stand_in_the_configuration(tmp_path: Path) -> None:
    section = {"type": "directory", "container_path": str(tmp_path / "s"), "save_frozen": "once"}
    train(section, 4, save_frozen=None)
    first, second = saved(tmp_path / "s")
    assert inodes(first) == inodes(second) != set()
    with pytest.raises(
        ValueError, match="`save_frozen` must be None or 'always' or 'once', got 'n"
    ):
        train(tmp_path / "s", 4, save_frozen="never")
    with pytest.raises(ValueError, match=r"`checkpoint_storage.save_frozen` must be .* got 3"):
        train(section | {"save_frozen": 3}, 4, save_frozen=None)


def test_a_run_that_writes_the_same_again_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("determined.pytorch._checkpoint.saving.frozen._WORTH_MENTIONING", 1 << 20)
    with caplog.at_level(logging.INFO, "determined.pytorch"):
        train(tmp_path / "always", 8, "always")
        (advice,) = [m for m in caplog.messages if 'save_frozen="once"' in m]
        assert "1 of 1 MB in this checkpoint are frozen weights" in advice
        documented(
            "Checkpoints are mostly frozen weights, written again each time", advice, "1 of 1"
        )
        caplog.clear()
        train(tmp_path / "once", 8)
    assert not [m for m in caplog.messages if "save_frozen" in m]


def test_a_trained_model_gets_no_such_advice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("determined.pytorch._checkpoint.saving.frozen._WORTH_MENTIONING", 0)

    class Trained(AdapterTrial):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            super().__init__(context)
            self.model.requires_grad_(True)
            self.optimizer.add_param_group({"params": list(self.model.base.parameters())})

    train(tmp_path / "always", 6, "always", Trained)
    assert not [m for m in caplog.messages if "save_frozen" in m]


def _train_on_ranks(storage: Path) -> None:
    train(storage, 6)


@pytest.mark.multiprocess
def test_two_ranks_share_as_one_does(tmp_path: Path) -> None:
    run_workers(2, _train_on_ranks, tmp_path / "once")
    first, second, third = saved(tmp_path / "once")
    assert inodes(second) == inodes(third) != set()
    assert "models/0/base.0.weight" in frozen_in(third)


def test_an_object_store_copies_by_itself(tmp_path: Path, s3_endpoint: str, s3_client: Any) -> None:
    bucket, port = f"b{os.getpid()}", free_port()
    s3_client.create_bucket(Bucket=bucket)
    section = {"type": "s3", "bucket": bucket, "access_key": "key", "secret_key": "secret"}
    section["endpoint_url"] = f"http://127.0.0.1:{port}"
    sent = {}
    with forward(port, s3_endpoint.removeprefix("http://")) as pieces:
        for save_frozen in ("once", "always"):
            before = sum(pieces)
            train(section | {"prefix": save_frozen}, 8, save_frozen)
            sent[save_frozen] = sum(pieces) - before
        train(section | {"prefix": "once"}, 10, checkpoint="latest")
        before = sum(pieces)
        train(section | {"prefix": "single"}, 2)
        single = sum(pieces) - before
    assert sent["once"] <= 1.3 * single
    assert sent["always"] >= 3.5 * single
    listed = s3_client.list_objects_v2(Bucket=bucket, Prefix="once/")["Contents"]
    assert sum(item["Key"].endswith("/frozen/0.pth") for item in listed) == 5  # each is whole
    train(tmp_path / "local", 10)
    manager = build(section | {"prefix": "once", "endpoint_url": s3_endpoint})
    newest = manager.latest("adapter")
    assert newest is not None
    with manager.restore_path(newest.storage_id) as path:
        found, expected = read_state(path, False), read_state(saved(tmp_path / "local")[-1], False)
        torch.testing.assert_close(found[MODELS], expected[MODELS], rtol=0, atol=0)


POINTS = [
    *("before_tmp:3", "mid_write:12", "after_link:1", "after_link:4", "before_fsync:20"),
    *("before_manifest:3", "before_rename:3", "after_rename:3", "mid_gc:1"),
]


def _run(storage: Path, point: str, tell: Any) -> None:
    name, _, hits = point.partition(":")
    _crash_points._armed, _crash_points._hits_left = name, int(hits or 1)
    train(storage, 10, checkpoint="latest", keep_last=2)


def _kill_everywhere(root: Path) -> int:
    """In a process that has one thread, so that it can fork."""
    os.chdir(root)
    train(root / "unbroken", 10, keep_last=2)
    for point in POINTS:
        storage = root / point
        assert Child(_run, storage, point).join() == -signal.SIGKILL, point
        manager = SharedFSStorageManager(storage)
        assert all(manager.verify(c.storage_id) for c in manager.list()), point
        Child(_run, storage, "").result()
        for one, other in zip(saved(storage)[-2:], saved(root / "unbroken"), strict=True):
            assert manager.verify(one.name), point
            assert_equal_state(one, other)
    return len(POINTS)


@pytest.mark.slow
@pytest.mark.multiprocess
@pytest.mark.timeout(600)
def test_a_kill_at_any_point_leaves_whole_checkpoints(tmp_path: Path) -> None:
    arguments: Any = {"process_group": False, "deadline_seconds": 500}
    assert run_workers(1, _kill_everywhere, tmp_path, **arguments) == [len(POINTS)]
