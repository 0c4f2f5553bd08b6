"""Which checkpoints of a run stay."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from determined import pytorch
from determined.storage import SharedFSStorageManager
from tests.support.messages import documented
from tests.support.resumable import ResumableTrial, checkpoints, steps, train


class Scored(ResumableTrial):
    """Its n-th validation (after n batches) has the n-th of these scores."""

    scores: tuple[float, ...] = ()

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"score": self.scores[self.callbacks["counter"].batches - 1]}


def run(storage: Path | dict[str, Any], scores: str, **options: Any) -> None:
    """Train and validate as often as there are scores, smaller being better."""
    Scored.scores = tuple(float(score) for score in scores.split())
    defaults: dict[str, Any] = {
        "validation_period": pytorch.Batch(1),
        "checkpoint_policy": "best",
        "metric": "score",
        "smaller_is_better": True,
    }
    train(storage, len(Scored.scores), trial_class=Scored, **{**defaults, **options})


def test_a_new_best_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    run(tmp_path, "5 6 4 9 3 9 9")
    assert steps(tmp_path) == [5, 7]


def test_larger_may_be_better(tmp_path: Path) -> None:
    run(tmp_path, "5 6 4 9 3 9 1", smaller_is_better=False)
    assert steps(tmp_path) == [4, 7]


def test_checkpoints_that_a_period_asks_for_stay_even_if_they_were_best(tmp_path: Path) -> None:
    run(tmp_path, "9 8 7 6 5 4 3", checkpoint_period=pytorch.Batch(3))
    assert steps(tmp_path) == [3, 6, 7]


def test_the_last_checkpoint_stays_when_a_longer_run_beats_it(tmp_path: Path) -> None:
    run(tmp_path, "9 8")
    run(tmp_path, "9 8 7 6 9", latest_checkpoint="latest")
    assert steps(tmp_path) == [2, 4, 5]


def test_without_a_metric_every_validation_is_kept(tmp_path: Path) -> None:
    run(tmp_path, "9 8 7", metric=None)
    assert steps(tmp_path) == [1, 2, 3]


class Stopping(Scored):
    stop_after = 0

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx + 1 == self.stop_after:
            self.context.set_stop_requested(True)
        return super().train_batch(batch, epoch_idx, batch_idx)


def stop(storage: Path, after: int, scores: str, **fit: Any) -> None:
    Scored.scores = tuple(float(score) for score in scores.split())
    Stopping.stop_after = after
    train(
        storage,
        len(Scored.scores),
        trial_class=Stopping,
        validation_period=pytorch.Batch(1),
        checkpoint_policy="best",
        metric="score",
        smaller_is_better=True,
        **fit,
    )


def test_the_best_of_before_a_resume_is_replaced_after_it(tmp_path: Path) -> None:
    stop(tmp_path, 3, "5 4 9 9 9 9")
    assert steps(tmp_path) == [2, 3]
    run(tmp_path, "5 4 9 9 3 9", latest_checkpoint="latest")
    assert steps(tmp_path) == [3, 5, 6]


def test_the_best_value_survives_resumes(tmp_path: Path) -> None:
    stop(tmp_path, 2, "5 6 7 4 5")
    stop(tmp_path, 3, "5 6 7 4 5", latest_checkpoint="latest")
    assert steps(tmp_path) == [1, 2, 3]
    run(tmp_path, "5 6 7 4 5", latest_checkpoint="latest")
    assert steps(tmp_path) == [2, 3, 4, 5]


def test_where_a_run_started_from_stays(tmp_path: Path) -> None:
    stop(tmp_path, 2, "5 4 3 2 1")  # stopped at its best, which it is started from next
    for name in ("latest", str(tmp_path / checkpoints(tmp_path)[-1].storage_id)):
        run(tmp_path, "5 4 3 9 9", latest_checkpoint=name)
        assert 2 in steps(tmp_path)
    run(tmp_path, "5 4 3 9 2 1", latest_checkpoint="latest")
    assert 2 in steps(tmp_path)


def test_another_run_in_the_same_storage_is_left_alone(tmp_path: Path) -> None:
    run(tmp_path, "9 8 7 9", init={"run_id": "other"})
    before = [c.storage_id for c in checkpoints(tmp_path, "other")]
    run(
        tmp_path,
        "9 8 7 6",
        init={"exp_conf": {"checkpoint_storage": {"save_trial_latest": 1, "save_trial_best": 0}}},
    )
    assert [c.storage_id for c in checkpoints(tmp_path, "other")] == before
    assert len(checkpoints(tmp_path, "run")) == 1


@pytest.mark.parametrize(
    ("numbers", "kept"),
    [
        ({"save_trial_latest": 2, "save_trial_best": 0}, [5, 6]),
        ({"save_trial_latest": 1, "save_trial_best": 2}, [2, 4, 6]),
        ({"save_trial_best": 1}, [2, 6]),
        ({"save_trial_latest": 0, "save_trial_best": 0, "save_experiment_best": 1}, [2, 6]),
        ({}, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_configured_numbers_are_kept_of_this_run(
    tmp_path: Path, numbers: dict[str, int], kept: list[int]
) -> None:
    run(
        tmp_path,
        "5 1 4 2 3 6",
        checkpoint_policy="all",
        init={"exp_conf": {"checkpoint_storage": {"type": "shared_fs", **numbers}}},
    )
    assert steps(tmp_path) == kept


@pytest.mark.parametrize("configured", [{}, {"save_trial_latest": 4, "save_trial_best": 1}])
def test_numbers_may_stand_where_the_storage_is_given(
    tmp_path: Path, configured: dict[str, int]
) -> None:
    """Where both are given, `checkpoint_storage` goes before `exp_conf`, key by key."""
    storage = {"type": "shared_fs", "host_path": str(tmp_path), "save_trial_latest": 2}
    init = {"exp_conf": {"checkpoint_storage": configured}}
    run(storage, "5 1 4 2 3 6", checkpoint_policy="all", init=init)
    assert steps(tmp_path) == [2, 5, 6]


def test_numbers_hold_while_training_goes_on(tmp_path: Path) -> None:
    seen: list[int] = []

    class Watching(Scored):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            seen.append(len(checkpoints(tmp_path)))
            return super().train_batch(batch, epoch_idx, batch_idx)

    Scored.scores = (3.0,) * 6
    train(
        tmp_path,
        6,
        trial_class=Watching,
        checkpoint_period=pytorch.Batch(1),
        async_checkpoint=False,
        init={"exp_conf": {"checkpoint_storage": {"save_trial_latest": 2}}},
    )
    assert seen == [0, 1, 2, 2, 2, 2]


def test_a_run_started_afresh_keeps_its_newest_though_an_older_one_was_longer(
    tmp_path: Path,
) -> None:
    numbers = {"exp_conf": {"checkpoint_storage": {"save_trial_latest": 1}}}
    train(tmp_path, 9, init=numbers)
    train(tmp_path, 2, init=numbers)
    assert 2 in steps(tmp_path)
    assert len(train(tmp_path, 3, latest_checkpoint="latest", init=numbers).losses) == 1


@pytest.fixture
def in_use(tmp_path: Path) -> Iterator[Path]:
    """A storage whose first checkpoint a reader is restoring right now."""
    run(tmp_path, "6 5", checkpoint_policy="all")
    storage = SharedFSStorageManager(tmp_path)
    with storage.restore_path(checkpoints(tmp_path)[0].storage_id):
        yield tmp_path


def test_a_checkpoint_in_use_stays_and_training_goes_on(
    in_use: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        run(
            in_use,
            "6 5 7",
            checkpoint_policy="all",
            latest_checkpoint="latest",
            init={"exp_conf": {"checkpoint_storage": {"save_trial_latest": 1}}},
        )
    assert 1 in steps(in_use)
    assert "being restored by a live process" in caplog.text


def test_a_best_that_cannot_be_deleted_is_only_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    readers: list[Any] = []

    class Reading(Scored):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            if batch_idx == 1:
                storage = SharedFSStorageManager(tmp_path)
                reader = storage.restore_path(checkpoints(tmp_path)[0].storage_id)
                reader.__enter__()
                readers.append(reader)
            return super().train_batch(batch, epoch_idx, batch_idx)

    Scored.scores = (5.0, 4.0, 6.0)
    with caplog.at_level(logging.WARNING):
        train(
            tmp_path,
            3,
            trial_class=Reading,
            validation_period=pytorch.Batch(1),
            checkpoint_policy="best",
            metric="score",
            async_checkpoint=False,
        )
    readers[0].__exit__(None, None, None)
    assert steps(tmp_path) == [1, 2, 3]
    assert "could not be deleted" in caplog.text


def test_numbers_that_make_no_sense_are_refused_at_the_start(tmp_path: Path) -> None:
    wrong = {"type": "directory", "container_path": str(tmp_path), "save_trial_latest": -1}
    with pytest.raises(ValueError, match="save_trial_latest.*-1"):
        train(wrong, 1)
    with pytest.raises(ValueError, match="save_trial_latest.*-1"):
        train(tmp_path, 1, init={"exp_conf": {"checkpoint_storage": wrong}})
    assert steps(tmp_path) == []


def test_the_trainer_knows_its_latest_and_best_checkpoints(tmp_path: Path) -> None:
    Scored.scores = (5, 3, 4)

    def fit(**options: Any) -> pytorch.Trainer:
        with pytorch.init(checkpoint_storage=tmp_path, run_id="r") as context:
            trainer = pytorch.Trainer(Scored(context), context)
            assert trainer.best_checkpoint is None
            trainer.fit(
                max_length=pytorch.Batch(3),
                validation_period=pytorch.Batch(1),
                latest_checkpoint="latest",
                **options,
            )
        return trainer

    first, second = fit(metric="score"), fit(metric="score")  # the second has nothing to do
    found = checkpoints(tmp_path, None)
    at = {c.manifest.steps_completed: str(tmp_path / c.storage_id) for c in found}
    assert first.latest_checkpoint == second.latest_checkpoint == at[3]
    assert first.best_checkpoint == second.best_checkpoint == at[2]
    assert fit().best_checkpoint is None


def _fit_scored(tmp_path: Path, scores: tuple[float, ...], **options: Any) -> list[int]:
    Scored.scores = scores
    train(
        tmp_path,
        len(scores),
        trial_class=Scored,
        validation_period=pytorch.Batch(1),
        checkpoint_policy="all",
        **options,
    )
    return steps(tmp_path)


def test_fit_keeps_as_many_of_the_newest_and_best_as_asked(tmp_path: Path) -> None:
    scores = (1.0, 5.0, 2.0, 4.0, 3.0)
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({}, [1, 2, 3, 4, 5]),
        ({"keep_last": 2}, [4, 5]),
        ({"keep_last": 2, "metric": "score"}, [1, 4, 5]),
        ({"keep_last": 2, "keep_best": 0, "metric": "score"}, [4, 5]),
        ({"keep_best": 2, "metric": "score"}, [1, 3, 5]),
        ({"keep_best": 2, "metric": "score", "smaller_is_better": False}, [2, 4, 5]),
    ]
    for number, (options, kept) in enumerate(cases):
        assert _fit_scored(tmp_path / str(number), scores, **options) == kept


def test_fit_counts_more_than_the_configuration(tmp_path: Path) -> None:
    section = {"checkpoint_storage": {"save_trial_latest": 3, "save_trial_best": 0}}
    found = _fit_scored(
        tmp_path, (1.0, 2.0, 3.0, 4.0), init={"exp_conf": section}, keep_last=1, metric="score"
    )
    assert found == [4]


def test_keeping_the_best_needs_a_metric(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep_best") as error:
        train(tmp_path, 1, keep_best=2)
    documented("`keep_best` without a metric", str(error.value))
    with pytest.raises(ValueError, match="`keep_last` must be at least 1, got 0"):
        train(tmp_path, 1, keep_last=0)
    assert steps(tmp_path) == []
