"""What every storage promises, run over each of them."""

from __future__ import annotations

import logging
import random
import threading
import time
from pathlib import Path

import pytest

from determined.errors import CheckpointError, CheckpointNotFound
from determined.storage import Contents, StorageManager, validate_manager
from determined.storage._base import StoredCheckpoint, tag_of

TREE = {"model.pt": b"m" * 10, "extra/a.pt": b"a" * 20, "extra/b.bin": b"b" * 30}


def write_tree(folder: Path) -> Path:
    (folder / "extra").mkdir(parents=True)
    (folder / "logs").mkdir()
    for name, content in TREE.items():
        (folder / name).write_bytes(content)
    return folder


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }


def save(
    manager: StorageManager, storage_id: str, steps: int, run_id: str = "run", **metrics: float
) -> None:
    stage = manager.begin(storage_id)
    metadata = {"steps_completed": steps, "run_id": run_id, "metrics": metrics}
    manager.commit(stage, storage_id, Contents(), metadata)


class TestStorage:
    def test_upload_then_restore_gives_the_same_tree(
        self, manager: StorageManager, tmp_path: Path
    ) -> None:
        manager.upload(write_tree(tmp_path / "src"), "one")
        with manager.restore_path("one") as path:
            assert files_below(path) == TREE
            assert (path / "logs").is_dir()
        assert manager.resources("one") == {
            "extra/": 0,
            "extra/a.pt": 20,
            "extra/b.bin": 30,
            "logs/": 0,
            "model.pt": 10,
        }
        assert manager.verify("one")

    def test_upload_of_some_paths_creates_their_parents(
        self, manager: StorageManager, tmp_path: Path
    ) -> None:
        manager.upload(write_tree(tmp_path / "src"), "one", paths={"extra/a.pt"})
        assert manager.resources("one") == {"extra/": 0, "extra/a.pt": 20}

    def test_store_path_that_fails_leaves_nothing(self, manager: StorageManager) -> None:
        def save_half() -> None:
            with manager.store_path("one") as path:
                (path / "model.pt").write_bytes(b"half")
                raise KeyError("stop")

        with pytest.raises(KeyError):
            save_half()
        assert manager.list() == []
        with pytest.raises(CheckpointNotFound, match="one"):
            manager.verify("one")
        with manager.store_path("one") as path:
            assert list(path.iterdir()) == []

    def test_store_path_keeps_binary_content(self, manager: StorageManager) -> None:
        content = random.Random(1).randbytes(3_000_000)
        with manager.store_path("one") as path:
            (path / "big").write_bytes(content)
        with manager.restore_path("one") as path:
            assert (path / "big").read_bytes() == content

    def test_a_name_is_used_once(self, manager: StorageManager, tmp_path: Path) -> None:
        src = write_tree(tmp_path / "src")
        manager.upload(src, "one")
        with pytest.raises(CheckpointError, match="one already exists"):
            manager.upload(src, "one")
        assert manager.verify("one")

    def test_download_with_a_selector_takes_parents_along(
        self, manager: StorageManager, tmp_path: Path
    ) -> None:
        manager.upload(write_tree(tmp_path / "src"), "one")
        out = tmp_path / "out"
        manager.download("one", out, selector=lambda path: path.endswith("b.bin"))
        assert files_below(out) == {"extra/b.bin": TREE["extra/b.bin"]}
        assert sorted(path.name for path in out.iterdir()) == ["extra"]

    def test_download_of_nothing_creates_nothing(
        self, manager: StorageManager, tmp_path: Path
    ) -> None:
        manager.upload(write_tree(tmp_path / "src"), "one")
        manager.download("one", tmp_path / "out", selector=lambda path: False)
        assert not (tmp_path / "out").exists()

    def test_download_into_an_existing_folder_keeps_what_is_there(
        self, manager: StorageManager, tmp_path: Path
    ) -> None:
        manager.upload(write_tree(tmp_path / "src"), "one")
        out = tmp_path / "out"
        out.mkdir()
        (out / "mine").write_bytes(b"mine")
        manager.download("one", out)
        assert files_below(out) == {**TREE, "mine": b"mine"}

    def test_unknown_checkpoint_is_not_found(self, manager: StorageManager, tmp_path: Path) -> None:
        with pytest.raises(CheckpointNotFound, match="nope"):
            manager.download("nope", tmp_path / "out")
        with pytest.raises(CheckpointNotFound), manager.restore_path("nope"):
            pass
        with pytest.raises(CheckpointNotFound):
            manager.get_metadata("nope")
        assert manager.delete("nope", ["**/*"]) == {}

    @pytest.mark.parametrize(
        ("globs", "left"),
        [
            (["**/*"], []),
            (["extra"], ["logs/", "model.pt"]),
            (["**/*.pt"], ["extra/", "extra/b.bin", "logs/"]),
            (["**.pt"], ["extra/", "extra/a.pt", "extra/b.bin", "logs/"]),
            (["logs/*", "extra/*"], ["extra/", "logs/", "model.pt"]),
            (["nothing"], ["extra/", "extra/a.pt", "extra/b.bin", "logs/", "model.pt"]),
            (["../*"], ["extra/", "extra/a.pt", "extra/b.bin", "logs/", "model.pt"]),
            (["extra", "logs", "*.pt"], []),
        ],
    )
    def test_delete_by_pattern_leaves_the_rest_valid(
        self, manager: StorageManager, tmp_path: Path, globs: list[str], left: list[str]
    ) -> None:
        manager.upload(write_tree(tmp_path / "src"), "one")
        assert list(manager.delete("one", globs)) == left
        if left:
            assert list(manager.resources("one")) == left
            assert manager.verify("one")
        else:
            with pytest.raises(CheckpointNotFound):
                manager.resources("one")

    @pytest.mark.parametrize(
        "name",
        ["", ".", "..", "../x", "a/b", "/abs", "a\0b", ".hidden", "x" * 300, "a\\b", "a*", "a\nb"],
    )
    def test_names_that_lead_elsewhere_are_refused(
        self, manager: StorageManager, tmp_path: Path, name: str
    ) -> None:
        for action in (manager.begin, manager.pre_store_path):
            with pytest.raises(ValueError, match="storage_id"):
                action(name)
        with pytest.raises(ValueError, match="storage_id"):
            manager.delete(name, ["**/*"])

    def test_order_is_by_steps_then_by_sequence(self, manager: StorageManager) -> None:
        save(manager, "c", 10)
        save(manager, "a", 20)
        save(manager, "b", 20)
        save(manager, "d", 5)
        assert [c.storage_id for c in manager.list()] == ["d", "c", "a", "b"]

    def test_latest_is_saved_last_however_long_an_older_run_was(
        self, manager: StorageManager
    ) -> None:
        save(manager, "long", 100, run_id="run")
        save(manager, "afresh", 5, run_id="run")
        newest = manager.latest("run")
        assert newest is not None
        assert newest.storage_id == "afresh"

    def test_latest_is_exact(self, manager: StorageManager) -> None:
        save(manager, "exact", 3)
        stage = manager.begin("failed")
        metadata = {"steps_completed": 5, "run_id": "run", "not_exact": "the error came in a batch"}
        manager.commit(stage, "failed", Contents(), metadata)
        newest = manager.latest("run")
        assert newest is not None
        assert newest.storage_id == "exact"
        manager.delete("exact", ["**/*"])
        assert manager.latest("run") is None

    def test_a_clock_that_goes_back_does_not_make_a_save_older(
        self, manager: StorageManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save(manager, "first", 1, run_id="run")
        manager._last_sequences.clear()  # what a new process knows
        monkeypatch.setattr(time, "time_ns", lambda: 10**9)
        save(manager, "second", 1, run_id="run")
        save(manager, "third", 1, run_id="run")
        newest = manager.latest("run")
        assert newest is not None
        assert newest.storage_id == "third"
        assert [c.storage_id for c in manager.list("run")] == ["first", "second", "third"]

    def test_listing_a_run_looks_at_no_other_once_all_are_tagged(
        self, manager: StorageManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save(manager, "mine", 1, run_id="one")
        save(manager, "theirs", 1, run_id="two")
        save(manager, "nobodys", 1)
        manager.list("one")  # tags the last
        looked_at: list[str] = []
        look_up = manager._look_up

        def looking(name: str) -> StoredCheckpoint | None:
            looked_at.append(name)
            return look_up(name)

        monkeypatch.setattr(manager, "_look_up", looking)
        assert [c.storage_id for c in manager.list("one")] == ["mine"]
        assert [c.storage_id for c in manager.list_tagged("one")] == ["mine"]
        assert looked_at == ["mine", "mine"]
        assert len(manager.list()) == 3

    def test_a_checkpoint_that_lost_its_tag_is_found_and_tagged_again(
        self, manager: StorageManager
    ) -> None:
        save(manager, "mine", 1, run_id="one")
        manager._untag("mine", tag_of("one"))
        assert manager.list_tagged("one") == []
        assert [c.storage_id for c in manager.list("one")] == ["mine"]
        assert [c.storage_id for c in manager.list_tagged("one")] == ["mine"]

    def test_a_tag_of_a_checkpoint_that_is_gone_means_nothing(
        self, manager: StorageManager
    ) -> None:
        save(manager, "mine", 1, run_id="one")
        manager._tag("gone", tag_of("one"))
        assert [c.storage_id for c in manager.list("one")] == ["mine"]
        assert [c.storage_id for c in manager.list_tagged("one")] == ["mine"]
        assert manager._tags(tag_of("one")) == {"mine": tag_of("one")}
        manager.delete("mine", ["**/*"])
        assert manager._tags() == {}

    def test_runs_that_share_a_storage_do_not_meet(self, manager: StorageManager) -> None:
        save(manager, "a", 10, run_id="one", loss=0.5)
        save(manager, "b", 99, run_id="two", loss=0.1)
        newest, best = manager.latest("one"), manager.best("loss", run_id="one")
        assert newest is not None
        assert best is not None
        assert newest.storage_id == best.storage_id == "a"
        assert manager.latest("three") is None

    def test_best_follows_the_metric(self, manager: StorageManager) -> None:
        for storage_id, steps, value in [("a", 1, 3.0), ("b", 2, 1.0), ("c", 3, 2.0)]:
            save(manager, storage_id, steps, accuracy=value)
        save(manager, "d", 4)
        save(manager, "e", 5, accuracy=float("nan"))
        smallest, largest = manager.best("accuracy"), manager.best("accuracy", False)
        assert smallest is not None
        assert largest is not None
        assert (smallest.storage_id, largest.storage_id) == ("b", "a")
        assert manager.best("loss") is None

    def test_listing_is_never_stale(self, manager: StorageManager) -> None:
        for number in range(3):
            save(manager, f"c{number}", number)
            assert len(manager.list()) == number + 1
        manager.delete("c1", ["**/*"])
        assert [c.storage_id for c in manager.list()] == ["c0", "c2"]

    def test_metadata_comes_back(self, manager: StorageManager) -> None:
        save(manager, "a", 7, loss=1.5)
        assert manager.get_metadata("a")["metrics"] == {"loss": 1.5}
        stage = manager.begin("b")
        manager.commit(stage, "b", Contents())
        assert manager.get_metadata("b") == {}

    def test_validation_leaves_nothing(self, manager: StorageManager) -> None:
        validate_manager(manager)
        assert manager.list() == []

    def test_random_state_is_not_disturbed(self, manager: StorageManager) -> None:
        before = random.getstate()
        validate_manager(manager)
        assert random.getstate() == before

    def test_works_from_a_background_thread(self, manager: StorageManager) -> None:
        errors: list[BaseException] = []

        def run() -> None:
            try:
                validate_manager(manager)
                save(manager, "a", 1)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
        assert errors == []
        assert len(manager.list()) == 1

    def test_order_ignores_the_clock(
        self, manager: StorageManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save(manager, "a", 1)
        monkeypatch.setattr(time, "time", lambda: 0.0)
        save(manager, "b", 1)
        newest = manager.latest()
        assert newest is not None
        assert newest.storage_id == "b"

    def test_latest_passes_over_damage_and_says_what(
        self, manager: StorageManager, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        source = tmp_path / "src"
        source.mkdir()
        (source / "weights").write_bytes(b"x" * 100)
        for storage_id, steps in [("good", 1), ("bad", 2)]:
            stage = manager.begin(storage_id)
            contents = manager.put(source, stage)
            if storage_id == "bad":
                digest = contents.files["weights"]._replace(sha256="0" * 64)
                contents = Contents({"weights": digest})
            manager.commit(stage, storage_id, contents, {"steps_completed": steps})
        with caplog.at_level(logging.WARNING, "determined.storage"):
            newest = manager.latest()
        assert newest is not None
        assert newest.storage_id == "good"
        assert "bad" in caplog.text
        assert "weights" in caplog.text
        assert "SHA-256" in caplog.text
