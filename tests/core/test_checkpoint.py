"""CheckpointContext: rank rules, shards, shared downloads, and errors that reach every rank."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.core._checkpoint import (
    CheckpointContext,
    DownloadMode,
    DummyCheckpointContext,
    build_local,
    merge_metadata,
    merge_resources,
)
from determined.core._distributed import DistributedContext, DummyDistributedContext
from determined.errors import (
    CheckpointError,
    CheckpointNotFound,
    InvalidCheckpointException,
    JournalError,
)
from determined.storage import (
    FileDigest,
    HashingFile,
    RetentionPolicy,
    SharedFSStorageManager,
    StorageManager,
)
from tests.support.memory_storage import build_memory_storage
from tests.support.workers import run_threads


class Recorder:
    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.deleted: list[str] = []
        self.on_save: Callable[[], None] = lambda: None
        self.saves = 0

    def before_save(self, storage_id: str, metadata: dict[str, Any]) -> None:
        self.saves += 1
        self.on_save()

    def report_checkpoint(self, record: dict[str, Any]) -> None:
        self.records.append(record)

    def checkpoint_deleted(self, storage_id: str) -> None:
        self.deleted.append(storage_id)


@pytest.fixture(params=["local", "remote"])
def build_manager(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], StorageManager]:
    """Each rank has its own manager of one storage, as processes would."""
    bucket = f"bucket-{uuid.uuid4()}"

    def build() -> StorageManager:
        if request.param == "local":
            return SharedFSStorageManager(tmp_path / "store")
        return build_memory_storage(bucket)

    return build


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def context(build_manager: Callable[[], StorageManager], recorder: Recorder) -> CheckpointContext:
    return CheckpointContext(DummyDistributedContext(), build_manager(), recorder)


def outcome(action: Callable[[], Any]) -> Any:
    """The result, or the error as a value, so that every rank's end can be compared."""
    try:
        return action()
    except Exception as error:
        return error


def save_somehow(context: CheckpointContext, way: str, folder: Path, *, shard: bool = False) -> str:
    name = f"file_{context._distributed.rank}"
    if way == "upload":
        return context.upload(tree(folder, **{name: "x"}), {"steps_completed": 1}, shard=shard)
    with context.store_path({"steps_completed": 1}, shard=shard) as (path, storage_id):
        (path / name).write_text("x")
    return storage_id


def tree(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content)
    return folder


class TestOneRank:
    @pytest.mark.parametrize("way", ["upload", "store_path"])
    def test_reports_reach_the_disk_before_a_checkpoint_is_seen(
        self, context: CheckpointContext, recorder: Recorder, tmp_path: Path, way: str
    ) -> None:
        seen: list[int] = []
        recorder.on_save = lambda: seen.append(len(context._storage.list()))
        save_somehow(context, way, tmp_path)
        assert seen == [0]
        assert len(context._storage.list()) == 1

    @pytest.mark.parametrize("way", ["upload", "store_path"])
    def test_no_checkpoint_without_the_reports_before_it(
        self, context: CheckpointContext, recorder: Recorder, tmp_path: Path, way: str
    ) -> None:
        def fail() -> None:
            raise JournalError("The disk is full.")

        recorder.on_save = fail
        with pytest.raises(CheckpointError, match="The disk is full"):
            save_somehow(context, way, tmp_path)
        assert context._storage.list() == []
        assert recorder.records == []

    def test_upload_reports_and_leaves_the_directory_alone(
        self, context: CheckpointContext, recorder: Recorder, tmp_path: Path
    ) -> None:
        folder = tree(tmp_path / "mine", model="weights")
        storage_id = context.upload(folder, {"steps_completed": 3, "note": "x"})
        assert [path.name for path in folder.iterdir()] == ["model"]
        (record,) = recorder.records
        metadata = json.dumps({"steps_completed": 3, "note": "x"}, indent=2)
        assert record["uuid"] == storage_id == str(uuid.UUID(storage_id))
        assert record["resources"] == {"metadata.json": len(metadata), "model": 7}
        assert record["size"] == len(metadata) + 7
        assert record["state"] == "COMPLETED"
        assert record["steps_completed"] == 3
        with context.restore_path(storage_id) as path:
            assert (path / "metadata.json").read_text() == metadata
        assert context.get_metadata(storage_id) == {"steps_completed": 3, "note": "x"}

    def test_a_selector_never_drops_the_metadata(
        self, context: CheckpointContext, tmp_path: Path
    ) -> None:
        folder = tree(tmp_path / "mine", a="a", b="b")
        storage_id = context.upload(folder, {"x": 1}, selector=lambda path: path == "a")
        assert list(context._storage.resources(storage_id)) == ["a", "metadata.json"]

    def test_metadata_of_the_save_replaces_a_downloaded_one(
        self, context: CheckpointContext, tmp_path: Path
    ) -> None:
        folder = tree(tmp_path / "mine", **{"metadata.json": "{}", "manifest.json": "old"})
        (folder / "metadata.json").chmod(0o400)
        storage_id = context.upload(folder, {"x": 1})
        assert context.get_metadata(storage_id) == {"x": 1}
        assert context.verify(storage_id)

    def test_store_path_saves_what_the_block_wrote(
        self, context: CheckpointContext, recorder: Recorder
    ) -> None:
        metadata: dict[str, Any] = {"steps_completed": 1}
        known: dict[str, FileDigest] = {}
        with context.store_path(metadata, known=known) as (path, storage_id):
            with HashingFile(path / "weights") as file:
                file.write(b"w" * 10)
            known["weights"] = file.digest
            metadata["late"] = True
            assert recorder.records == []
        assert recorder.records[0]["uuid"] == storage_id
        assert context.get_metadata(storage_id)["late"] is True
        assert context.verify(storage_id)

    def test_a_block_that_fails_reports_nothing(
        self, context: CheckpointContext, recorder: Recorder
    ) -> None:
        def fail() -> None:
            with context.store_path() as (path, _):
                (path / "half").write_text("x")
                raise KeyError("stop")

        with pytest.raises(KeyError):
            fail()
        assert recorder.records == []
        assert context._storage.list() == []

    def test_store_path_works_on_another_thread(
        self, context: CheckpointContext, recorder: Recorder
    ) -> None:
        def save() -> None:
            with context.store_path({"steps_completed": 1}) as (path, _):
                (path / "x").write_text("x")

        thread = threading.Thread(target=save)
        thread.start()
        thread.join(30)
        assert len(recorder.records) == 1

    @pytest.mark.parametrize(
        ("metadata", "message"),
        [
            ({"a": object()}, r"metadata\['a'\]"),
            ({"steps_completed": "3"}, "steps_completed"),
            ({"steps_completed": -1}, "steps_completed"),
            ({"steps_completed": True}, "steps_completed"),
        ],
    )
    def test_bad_metadata_is_refused_before_anything_is_written(
        self, context: CheckpointContext, metadata: dict[str, Any], message: str
    ) -> None:
        entered = False
        with pytest.raises(ValueError, match=message), context.store_path(metadata):
            entered = True
        assert not entered
        assert context._storage._names() == []

    def test_upload_needs_a_directory(self, context: CheckpointContext) -> None:
        with pytest.raises(RuntimeError, match="ckpt_dir"):
            context.upload(None)

    def test_unknown_ids_are_not_found(self, context: CheckpointContext, tmp_path: Path) -> None:
        missing = str(uuid.uuid4())
        with pytest.raises(CheckpointNotFound, match=missing), context.restore_path(missing):
            pass
        with pytest.raises(CheckpointNotFound):
            context.download(missing, tmp_path / "out")
        with pytest.raises(CheckpointNotFound):
            context.get_metadata(missing)

    def test_delete_removes_and_reports(
        self, context: CheckpointContext, recorder: Recorder, tmp_path: Path
    ) -> None:
        storage_id = context.upload(tree(tmp_path / "mine", a="a"))
        context.delete(storage_id)
        assert recorder.deleted == [storage_id]
        with pytest.raises(CheckpointNotFound):
            context.verify(storage_id)

    def test_names_are_resolved(self, context: CheckpointContext, tmp_path: Path) -> None:
        folder = tree(tmp_path / "mine", a="a")
        saved = [
            context.upload(
                folder, {"run_id": "r", "steps_completed": steps, "metrics": {"loss": loss}}
            )
            for steps, loss in [(1, 0.1), (2, 0.5)]
        ]
        assert context.resolve("latest") == saved[1]
        assert context.resolve("latest", run_id="r") == saved[1]
        assert context.resolve("best", metric_name="loss") == saved[0]
        assert context.resolve("best", metric_name="loss", smaller_is_better=False) == saved[1]
        assert context.resolve("anything-else") == "anything-else"
        with pytest.raises(CheckpointNotFound, match="of run other"):
            context.resolve("latest", run_id="other")
        with pytest.raises(ValueError, match="metric_name"):
            context.resolve("best")

    def test_retention_tells_what_it_deleted(
        self, context: CheckpointContext, recorder: Recorder, tmp_path: Path
    ) -> None:
        folder = tree(tmp_path / "mine", a="a")
        saved = [context.upload(folder, {"run_id": "r", "steps_completed": n}) for n in range(3)]
        assert context.apply_retention(RetentionPolicy(0, 0, 1), ["r"], {saved[0]}) == [saved[1]]
        assert recorder.deleted == [saved[1]]

    def test_a_restore_of_damage_is_refused_unless_asked_for(self, tmp_path: Path) -> None:
        context = build_local(DummyDistributedContext(), tmp_path / "store")
        storage_id = context.upload(tree(tmp_path / "mine", a="good"))
        (tmp_path / "store" / storage_id / "a").write_text("evil")
        message = f"{storage_id}: a is damaged"
        with (
            pytest.raises(InvalidCheckpointException, match=message),
            context.restore_path(storage_id),
        ):
            pass
        with context.restore_path(storage_id, verify=False) as path:
            assert (path / "a").read_text() == "evil"

    def test_local_restore_without_a_selector_warns_of_nothing(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        context = build_local(DummyDistributedContext(), tmp_path / "store")
        storage_id = context.upload(tree(tmp_path / "mine", a="good"))
        with caplog.at_level(logging.WARNING), context.restore_path(storage_id):
            assert caplog.text == ""
        with context.restore_path(storage_id, selector=lambda path: True):
            assert "ignored" in caplog.text


@pytest.fixture
def on_ranks(
    build_manager: Callable[[], StorageManager], recorder: Recorder
) -> Callable[..., list[Any]]:
    """Run a function on each rank of a layout; errors come back as values."""

    def run(
        layout: tuple[int, int], work: Callable[[DistributedContext, CheckpointContext], Any]
    ) -> list[Any]:
        def on_rank(distributed: DistributedContext) -> Any:
            context = CheckpointContext(distributed, build_manager(), recorder)
            return outcome(lambda: work(distributed, context))

        return run_threads(layout, on_rank)

    return run


OnRanks = Callable[..., list[Any]]


class TestManyRanks:
    @pytest.mark.parametrize("way", ["upload", "store_path"])
    def test_the_chief_brings_reports_to_disk_first(
        self, on_ranks: OnRanks, recorder: Recorder, tmp_path: Path, way: str
    ) -> None:
        def fail() -> None:
            raise JournalError("The disk is full.")

        def save(distributed: DistributedContext, context: CheckpointContext) -> str:
            return save_somehow(context, way, tmp_path / str(distributed.rank), shard=True)

        first = on_ranks((2, 1), save)
        assert first[0] == first[1]
        assert recorder.saves == 1
        recorder.on_save = fail
        failed = on_ranks((2, 1), save)
        assert "The disk is full" in str(failed[0])
        assert all(isinstance(error, Exception) for error in failed)
        assert len(recorder.records) == 1

    def test_only_the_chief_saves_alone(self, on_ranks: OnRanks, tmp_path: Path) -> None:
        folder = tree(tmp_path / "mine", a="a")

        def store(_: DistributedContext, context: CheckpointContext) -> str:
            with context.store_path() as (path, storage_id):
                (path / "x").write_text("x")
            return storage_id

        uploads = on_ranks((1, 2), lambda _, context: context.upload(folder))
        stores = on_ranks((1, 2), store)
        assert isinstance(uploads[0], str)
        assert isinstance(stores[0], str)
        assert "upload" in str(uploads[1])
        assert ".store_path" in str(stores[1])
        for refused in (uploads[1], stores[1]):
            assert isinstance(refused, RuntimeError)
            assert "non-chief" in str(refused)

    def test_shards_become_one_checkpoint(
        self, on_ranks: OnRanks, recorder: Recorder, tmp_path: Path
    ) -> None:
        def save(distributed: DistributedContext, context: CheckpointContext) -> Any:
            rank = distributed.rank
            folder = tree(tmp_path / f"rank{rank}", **{f"shard{rank}": "x" * rank, "same": "s"})
            metadata = {"steps_completed": 5, "ranks": {str(rank): rank}}
            storage_id = context.upload(folder, metadata, shard=True)
            with context.restore_path(storage_id) as path:
                return storage_id, sorted(p.name for p in path.iterdir())

        results = on_ranks((2, 2), save)
        assert len({storage_id for storage_id, _ in results}) == 1
        names = ["manifest.json", "metadata.json", "same", "shard0", "shard1", "shard2", "shard3"]
        assert [found for _, found in results] == [names] * 4
        (record,) = recorder.records
        assert record["metadata"]["ranks"] == {"0": 0, "1": 1, "2": 2, "3": 3}
        assert list(record["resources"]) == [name for name in names if name != "manifest.json"]

    def test_ranks_of_one_directory_bring_it_once(
        self, on_ranks: OnRanks, recorder: Recorder, tmp_path: Path
    ) -> None:
        folder = tree(tmp_path / "shared", a="a")
        results = on_ranks((1, 3), lambda _, context: context.upload(folder, shard=True))
        assert len(set(results)) == 1
        assert list(recorder.records[0]["resources"]) == ["a", "metadata.json"]

    def test_selectors_divide_one_directory(
        self, on_ranks: OnRanks, recorder: Recorder, tmp_path: Path
    ) -> None:
        folder = tree(tmp_path / "shared", f0="0", f1="1", f2="2")

        def save(distributed: DistributedContext, context: CheckpointContext) -> str:
            mine = f"f{distributed.rank}"
            return context.upload(folder, shard=True, selector=lambda path: path == mine)

        on_ranks((1, 2), save)
        assert list(recorder.records[0]["resources"]) == ["f0", "f1", "metadata.json"]

    def test_ranks_without_files_take_part(self, on_ranks: OnRanks, tmp_path: Path) -> None:
        folder = tree(tmp_path / "mine", a="a")

        def save(distributed: DistributedContext, context: CheckpointContext) -> str:
            return context.upload(folder if distributed.rank == 1 else None, shard=True)

        assert len(set(on_ranks((1, 2), save))) == 1

    def test_no_directory_anywhere_is_an_error_everywhere(self, on_ranks: OnRanks) -> None:
        results = on_ranks((1, 2), lambda _, context: context.upload(None, shard=True))
        assert [type(result) for result in results] == [RuntimeError] * 2

    def test_a_selector_without_a_directory_fails_on_all(
        self, on_ranks: OnRanks, tmp_path: Path
    ) -> None:
        folder = tree(tmp_path / "mine", a="a")

        def save(distributed: DistributedContext, context: CheckpointContext) -> str:
            if distributed.rank == 1:
                return context.upload(None, shard=True, selector=lambda path: True)
            return context.upload(folder, shard=True)

        results = on_ranks((1, 2), save)
        assert all(isinstance(result, RuntimeError) for result in results)
        assert "Rank 1 failed" in str(results[0])

    @pytest.mark.parametrize("contents", [("a", "b"), ("a", "aa")])
    def test_files_that_differ_are_refused(
        self, on_ranks: OnRanks, recorder: Recorder, tmp_path: Path, contents: tuple[str, str]
    ) -> None:
        def save(distributed: DistributedContext, context: CheckpointContext) -> str:
            rank = distributed.rank
            folder = tree(tmp_path / str(rank), model=contents[rank])
            return context.upload(folder, shard=True)

        results = on_ranks((1, 2), save)
        for result in results:
            assert isinstance(result, RuntimeError)
            assert "refusing to upload with files conflicts:" in str(result)
        assert "model from ranks 0, 1" in str(results[0])
        assert len(str(results[1]).splitlines()) == 1
        assert recorder.records == []

    def test_metadata_that_differs_is_refused(self, on_ranks: OnRanks, tmp_path: Path) -> None:
        folder = tree(tmp_path / "mine", a="a")

        def save(distributed: DistributedContext, context: CheckpointContext) -> str:
            return context.upload(folder, {"a": {"b": distributed.rank}}, shard=True)

        for result in on_ranks((1, 2), save):
            assert isinstance(result, RuntimeError)
            assert "metadata conflicts" in str(result)
            assert "/a/b" in str(result)

    def test_store_path_of_all_ranks_is_one_checkpoint(
        self, on_ranks: OnRanks, recorder: Recorder
    ) -> None:
        def save(distributed: DistributedContext, context: CheckpointContext) -> Any:
            rank = distributed.rank
            metadata = {"steps_completed": 2, f"rank{rank}": True}
            with context.store_path(metadata, shard=True) as (path, storage_id):
                (path / f"shard{rank}").write_text("x")
            return storage_id, context.get_metadata(storage_id)

        results = on_ranks((1, 2), save)
        assert results[0] == results[1]
        assert results[0][1] == {"steps_completed": 2, "rank0": True, "rank1": True}
        (record,) = recorder.records
        assert list(record["resources"]) == ["metadata.json", "shard0", "shard1"]

    @pytest.mark.parametrize("failing", [0, 1])
    def test_a_block_that_fails_on_one_rank_fails_on_all(
        self,
        on_ranks: OnRanks,
        recorder: Recorder,
        build_manager: Callable[[], StorageManager],
        failing: int,
    ) -> None:
        def save(distributed: DistributedContext, context: CheckpointContext) -> None:
            with context.store_path(shard=True) as (path, _):
                (path / f"shard{distributed.rank}").write_text("x")
                if distributed.rank == failing:
                    raise KeyError("broken")

        results = on_ranks((1, 2), save)
        assert isinstance(results[failing], KeyError)
        assert isinstance(results[1 - failing], CheckpointError)
        assert f"Rank {failing} failed: KeyError" in str(results[1 - failing])
        assert recorder.records == []
        assert build_manager()._names() == []

    def test_a_restore_that_fails_on_one_rank_fails_on_all(
        self, on_ranks: OnRanks, tmp_path: Path
    ) -> None:
        folder = tree(tmp_path / "mine", a="a")

        def restore(distributed: DistributedContext, context: CheckpointContext) -> None:
            storage_id = context.upload(folder, shard=True)
            with context.restore_path(storage_id):
                if distributed.rank == 1:
                    raise KeyError("broken")

        results = on_ranks((1, 2), restore)
        assert isinstance(results[1], KeyError)
        assert "Rank 1 failed" in str(results[0])

    def test_a_missing_checkpoint_is_missing_on_all(self, on_ranks: OnRanks) -> None:
        def restore(_: DistributedContext, context: CheckpointContext) -> None:
            with context.restore_path("missing"):
                pass

        results = on_ranks((2, 2), restore)
        assert [type(result) for result in results] == [CheckpointNotFound] * 4
        assert [
            type(result)
            for result in on_ranks((1, 2), lambda _, context: context.resolve("latest"))
        ] == [CheckpointNotFound] * 2

    def test_local_ranks_share_one_copy(self, on_ranks: OnRanks, tmp_path: Path) -> None:
        folder = tree(tmp_path / "mine", a="a", b="b", c="c")

        def restore(distributed: DistributedContext, context: CheckpointContext) -> Any:
            storage_id = context.upload(folder, shard=True)
            wanted = "ab"[distributed.local_rank]
            out = tmp_path / f"out{distributed.cross_rank}"
            context.download(storage_id, out, selector=lambda path: path == wanted)
            with context.restore_path(storage_id) as path:
                assert (path / "a").exists()
            return str(path), sorted(p.name for p in out.iterdir())

        results = on_ranks((2, 2), restore)
        assert [names for _, names in results] == [["a", "b"]] * 4
        assert results[0] == results[1]
        assert results[2] == results[3]

    def test_a_rank_without_a_selector_wants_everything(
        self, on_ranks: OnRanks, tmp_path: Path
    ) -> None:
        folder = tree(tmp_path / "mine", a="a", b="b")

        def fetch(distributed: DistributedContext, context: CheckpointContext) -> list[str]:
            storage_id = context.upload(folder, shard=True)
            selector = (lambda path: path == "a") if distributed.rank == 0 else None
            context.download(storage_id, tmp_path / "out", selector=selector)
            return sorted(p.name for p in (tmp_path / "out").iterdir())

        assert on_ranks((1, 2), fetch)[1] == ["a", "b", "metadata.json"]

    def test_a_download_of_one_rank_needs_no_others(
        self, on_ranks: OnRanks, tmp_path: Path
    ) -> None:
        folder = tree(tmp_path / "mine", a="a", b="b")

        def fetch(distributed: DistributedContext, context: CheckpointContext) -> None:
            storage_id = context.upload(folder, shard=True)
            if distributed.rank == 1:
                mode = DownloadMode.NoSharedDownload
                context.download(storage_id, tmp_path / "out", mode, selector=lambda p: p == "b")
                with context.restore_path(storage_id, mode) as path:
                    assert (path / "a").exists()

        assert on_ranks((1, 2), fetch) == [None, None]
        assert [p.name for p in (tmp_path / "out").iterdir()] == ["b"]


class TestBuildLocal:
    def test_paths_urls_and_configs_are_taken(self, tmp_path: Path) -> None:
        chief = DummyDistributedContext()
        config = {"type": "shared_fs", "host_path": str(tmp_path), "storage_path": "below"}
        assert build_local(chief, tmp_path).storage_base == tmp_path
        assert build_local(chief, str(tmp_path)).storage_base == tmp_path
        assert build_local(chief, config).storage_base == tmp_path / "below"
        assert build_local(chief, "s3://bucket/prefix").storage_base is None
        with pytest.raises(TypeError, match="checkpoint_storage"):
            build_local(chief, 3)  # type: ignore[arg-type]  # the point of the test

    def test_the_place_is_logged_by_the_chief(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DET_STORAGE", str(tmp_path / "from-environment"))
        with caplog.at_level(logging.INFO, "determined.core"):
            run_threads((1, 2), lambda distributed: build_local(distributed, None))
        assert caplog.text.count(str(tmp_path / "from-environment")) == 1

    def test_leftovers_of_a_crash_are_cleared(self, tmp_path: Path) -> None:
        stage = tmp_path / f".one.tmp-{uuid.uuid4().hex}"
        stage.mkdir()
        build_local(DummyDistributedContext(), tmp_path)
        assert not stage.exists()

    def test_the_dummy_is_the_same_without_a_backend(self, tmp_path: Path) -> None:
        manager = SharedFSStorageManager(tmp_path)
        context = DummyCheckpointContext(dist=DummyDistributedContext(), storage_manager=manager)
        with context.store_path() as (path, storage_id):
            (path / "x").write_text("x")
        assert context.get_metadata(storage_id) == {}


class TestMerging:
    def test_metadata_is_merged_key_by_key(self) -> None:
        assert merge_metadata([{"opt": {"lr": 0.1}, "n": 3}, {"opt": {"lr": 0.2}}]) == (
            {"opt": {"lr": 0.1}, "n": 3},
            {"/opt/lr": [0, 1]},
        )
        assert merge_metadata([{"a": 1}, {}, {"b": {"c": 2}}]) == ({"a": 1, "b": {"c": 2}}, {})
        assert merge_metadata([{"a": {"b": 1}}, {"a": 1}]) == ({"a": {"b": 1}}, {"/a": [0, 1]})
        assert merge_metadata([{"a": 1}, {"a": True}])[1] == {"/a": [0, 1]}

    def test_directories_meet_and_files_do_not(self) -> None:
        assert merge_resources([{"w/": 0, "w/a": 1}, {"w/": 0, "w/b": 2}]) == (
            {"w/": 0, "w/a": 1, "w/b": 2},
            {},
        )
        assert merge_resources([{"w/": 0}, {"w": 1}])[1] == {"w": [0, 1]}
        assert merge_resources([{"w": 1}, {}, {"w": 1}])[1] == {"w": [0, 2]}

    @given(st.dictionaries(st.text(max_size=3), st.integers() | st.none()), st.integers(1, 4))
    def test_equal_metadata_never_conflicts(self, metadata: dict[str, Any], size: int) -> None:
        assert merge_metadata([metadata] * size) == (metadata, {})


@pytest.mark.multiprocess
def test_an_object_store_leaves_the_random_numbers_of_training_alone(
    s3_endpoint: str, s3_client: Any, tmp_path: Path
) -> None:
    """Its client is imported late, by the thread that saves: some module there draws a number."""
    bucket = f"bucket-{uuid.uuid4()}"
    s3_client.create_bucket(Bucket=bucket)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "weights").write_bytes(b"weights")
    script = """
import random, sys, threading
from determined import core
bucket, endpoint, folder = sys.argv[1:]
storage = dict(type="s3", bucket=bucket, endpoint_url=endpoint, access_key="k", secret_key="s")
random.seed(1)
before = random.getstate()
with core.init(checkpoint_storage=storage) as context:
    saved = []
    save = lambda: saved.append(context.checkpoint.upload(folder, {"steps_completed": 1}))
    loaded = set(sys.modules)
    thread = threading.Thread(target=save)
    thread.start()
    thread.join()
    assert saved, "nothing was saved"
    assert "s3fs" in loaded, "the thread has imported the client"
assert random.getstate() == before, "the generator was used"
"""
    process = subprocess.run(
        [sys.executable, "-c", script, bucket, s3_endpoint, str(tmp_path / "files")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
