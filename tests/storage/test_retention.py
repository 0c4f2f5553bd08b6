"""Which checkpoints survive: the rules, and what is never deleted."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.storage import (
    Contents,
    Manifest,
    RetentionPolicy,
    SharedFSStorageManager,
    StoredCheckpoint,
    apply_retention,
)
from tests.support.retention_table import KEPT, TRIALS


def metadata(run_id: str, steps: int, value: float | None) -> dict[str, object]:
    metrics = {} if value is None else {"loss": value}
    return {"run_id": run_id, "steps_completed": steps, "metrics": metrics}


def records() -> list[StoredCheckpoint]:
    return [
        StoredCheckpoint(name, Manifest(Contents(), 1, steps), metadata(str(trial), steps, value))
        for trial, rows in TRIALS.items()
        for name, steps, value in rows
    ]


@pytest.fixture
def store(tmp_path: Path) -> SharedFSStorageManager:
    manager = SharedFSStorageManager(tmp_path / "store")
    for trial, rows in TRIALS.items():
        for name, steps, value in rows:
            stage = manager.begin(name)
            manager.commit(stage, name, Contents(), metadata(str(trial), steps, value))
    return manager


def left(manager: SharedFSStorageManager) -> str:
    return "".join(sorted(checkpoint.storage_id for checkpoint in manager.list()))


@pytest.mark.parametrize(("rules", "kept"), KEPT)
def test_the_rules_keep_what_the_table_says(rules: tuple[int, int, int], kept: str) -> None:
    policy = RetentionPolicy(*rules, metric_name="loss")
    assert policy.kept(records()) == set(kept)


@pytest.mark.parametrize(("rules", "kept"), KEPT)
def test_the_newest_of_each_run_is_never_deleted(
    store: SharedFSStorageManager, rules: tuple[int, int, int], kept: str
) -> None:
    policy = RetentionPolicy(*rules, metric_name="loss")
    deleted = apply_retention(store, policy, ["1", "2"])
    assert left(store) == "".join(sorted({*kept, "d", "g"}))
    assert set(deleted) == set("abcdefg") - {*kept, "d", "g"}


def test_the_newest_exact_one_is_never_deleted_for_one_that_is_not(tmp_path: Path) -> None:
    manager = SharedFSStorageManager(tmp_path)
    for name, steps, why in (("a", 1, None), ("b", 2, None), ("c", 3, "an error")):
        data = {**metadata("run", steps, None), **({} if why is None else {"not_exact": why})}
        manager.commit(manager.begin(name), name, Contents(), data)
    assert apply_retention(manager, RetentionPolicy(0, 0, 1), ["run"], protected=["c"]) == ["a"]
    assert left(manager) == "bc"
    manager.commit(manager.begin("d"), "d", Contents(), metadata("run", 3, None))
    apply_retention(manager, RetentionPolicy(0, 0, 1), ["run"], protected=["d"])
    assert left(manager) == "d"


def test_larger_metrics_can_be_better_and_nan_never_is() -> None:
    rows = [("a", 1, 0.1), ("b", 2, float("nan")), ("c", 3, 0.9), ("d", 4, 0.9)]
    checkpoints = [
        StoredCheckpoint(name, Manifest(Contents(), steps, steps), metadata("1", steps, value))
        for name, steps, value in rows
    ]
    random.Random(0).shuffle(checkpoints)
    for count, kept in [(1, "c"), (2, "cd"), (3, "acd"), (4, "abcd")]:
        policy = RetentionPolicy(0, count, 0, metric_name="loss", smaller_is_better=False)
        assert policy.kept(checkpoints) == set(kept)


def test_a_run_started_afresh_keeps_what_it_would_continue_from(
    store: SharedFSStorageManager,
) -> None:
    stage = store.begin("z")
    store.commit(stage, "z", Contents(), metadata("1", 5, None))
    apply_retention(store, RetentionPolicy(0, 0, 1), ["1"])
    newest = store.latest("1")
    assert newest is not None
    assert newest.storage_id == "z"


def test_other_runs_and_protected_checkpoints_stay(store: SharedFSStorageManager) -> None:
    deleted: list[str] = []
    policy = RetentionPolicy(0, 0, 0)
    assert apply_retention(store, policy, ["1"], protected={"a"}, on_delete=deleted.append) == [
        "b",
        "c",
    ]
    assert deleted == ["b", "c"]
    assert left(store) == "adefg"


def test_checkpoints_with_foreign_files_in_them_stay(
    store: SharedFSStorageManager, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "store" / "a" / "notes.txt").write_text("mine")
    with caplog.at_level(logging.WARNING, "determined.storage"):
        apply_retention(store, RetentionPolicy(0, 0, 0), ["1", "2"])
    assert left(store) == "adg"
    assert "notes.txt" in caplog.text


def test_a_checkpoint_in_use_stays(store: SharedFSStorageManager) -> None:
    with store.restore_path("a"):
        assert apply_retention(store, RetentionPolicy(0, 0, 0), ["1"]) == ["b", "c"]
    assert apply_retention(store, RetentionPolicy(0, 0, 0), ["1"]) == ["a"]


def test_a_damaged_newest_does_not_cost_the_newest_whole_one(
    store: SharedFSStorageManager, tmp_path: Path
) -> None:
    (tmp_path / "store" / "d" / "metadata.json").write_text("{}")
    apply_retention(store, RetentionPolicy(0, 0, 0), ["1"])
    newest = store.latest("1")
    assert newest is not None
    assert newest.storage_id == "c"


@pytest.mark.parametrize("value", [-1, 1.5, True, None])
def test_counts_are_whole_numbers(value: object) -> None:
    with pytest.raises(ValueError, match="`save_trial_best`"):
        RetentionPolicy(save_trial_best=value)  # type: ignore[arg-type]  # the point of the test


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.none() | st.floats())),
    rules=st.tuples(*[st.integers(0, 4)] * 3),
)
def test_more_generous_rules_keep_more(
    rows: list[tuple[int, int, float | None]], rules: tuple[int, int, int]
) -> None:
    checkpoints = [
        StoredCheckpoint(str(n), Manifest(Contents(), n, steps), metadata(str(run), steps, value))
        for n, (run, steps, value) in enumerate(rows)
    ]
    kept = RetentionPolicy(*rules, metric_name="loss").kept(checkpoints)
    more = RetentionPolicy(rules[0] + 1, rules[1] + 1, rules[2] + 1, metric_name="loss").kept(
        checkpoints
    )
    assert kept <= more
    assert len(kept) <= rules[0] + len({run for run, _, _ in rows}) * (rules[1] + rules[2])
