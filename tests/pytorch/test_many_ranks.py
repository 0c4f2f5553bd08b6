"""Training on several ranks: real processes with gloo, many checks for each start of them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from determined import pytorch
from determined.pytorch import Batch
from tests.support import ranked
from tests.support.trials import checkpoints
from tests.support.workers import run_workers

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(240)]

# Sums over ranks are added up in another order than within one batch.
TOLERANCE = 2e-6


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("storage")


@pytest.fixture(scope="module")
def environment(storage: Path) -> dict[str, str]:
    return {
        "DET_STORAGE": str(storage / "default"),
        "DET_PROGRESS": "off",
        "DET_COLLECTIVE_TIMEOUT": "60",
    }


@pytest.fixture(scope="module")
def one(storage: Path, environment: dict[str, str]) -> dict[str, Any]:
    """What one rank makes of the same global batches, and what it leaves for two."""
    with pytest.MonkeyPatch.context() as patch:
        (storage / "work").mkdir(exist_ok=True)
        patch.chdir(storage / "work")
        for name, value in environment.items():
            patch.setenv(name, value)
        found = {
            "equivalence": ranked.equivalence(storage / "one"),
            "aggregated": ranked.aggregated(storage / "one"),
            "whole": ranked.continued(storage, "one-whole"),
            "whole aggregated": ranked.continued(storage, "one-whole-2", aggregation=2),
        }
        ranked.fit(
            ranked.NetTrial,
            {
                "hparams": {"global_batch_size": 8},
                "run_id": "sizes",
                "checkpoint_storage": storage / "from-one",
            },
            max_length=Batch(3),
        )
        return found


@pytest.fixture(scope="module")
def two(one: dict[str, Any], storage: Path, environment: dict[str, str]) -> list[dict[str, Any]]:
    """What each of two ranks saw of every scenario."""
    return run_workers(
        2,
        ranked.run_all,
        storage,
        storage / "work",
        deadline_seconds=150,
        environment=environment,
    )


@pytest.fixture(scope="module")
def four(
    two: list[dict[str, Any]], storage: Path, environment: dict[str, str]
) -> list[dict[str, Any]]:
    return run_workers(
        4, _on_four_ranks, storage, storage / "work", deadline_seconds=90, environment=environment
    )


def _on_four_ranks(storage: Path, work: Path) -> dict[str, Any]:
    os.chdir(work)
    return {
        "equivalence": ranked.equivalence(storage / "four"),
        "from two": ranked.continued(storage, "from-two-1"),
        "from two aggregated": ranked.continued(storage, "from-two-2", aggregation=2),
    }


def of(two: list[dict[str, Any]], scenario: str) -> list[Any]:
    """Return a scenario's result on each rank; it must have come to one."""
    found = [rank[scenario] for rank in two]
    assert not any(isinstance(result, str) for result in found), "\n".join(map(str, found))
    return found


def assert_close(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE)


class TestEquivalence:
    @pytest.mark.parametrize("scenario", ["equivalence", "aggregated"])
    def test_two_ranks_train_to_the_weights_of_one(
        self, one: dict[str, Any], two: list[dict[str, Any]], scenario: str
    ) -> None:
        for rank in of(two, scenario):
            assert_close(rank["weights"], one[scenario]["weights"])

    def test_four_ranks_train_to_the_weights_of_one(
        self, one: dict[str, Any], four: list[dict[str, Any]]
    ) -> None:
        for rank in four:
            assert_close(rank["equivalence"]["weights"], one["equivalence"]["weights"])

    def test_metrics_are_those_of_one_rank(
        self, one: dict[str, Any], two: list[dict[str, Any]]
    ) -> None:
        wanted = one["equivalence"]
        for rank in of(two, "equivalence"):
            np.testing.assert_allclose(rank["losses"], wanted["losses"], atol=TOLERANCE)
            np.testing.assert_allclose(
                rank["validated"]["validation_loss"],
                wanted["validated"]["validation_loss"],
                atol=TOLERANCE,
            )

    def test_ranks_share_the_records_of_every_global_batch(
        self, one: dict[str, Any], two: list[dict[str, Any]]
    ) -> None:
        first, second = of(two, "equivalence")
        assert [first["per_slot"], one["equivalence"]["per_slot"]] == [4, 8]
        for batch in range(10):
            of_one = one["equivalence"]["seen"][8 * batch : 8 * batch + 8]
            shares = [rank["seen"][4 * batch : 4 * batch + 4] for rank in (first, second)]
            assert shares[0] + shares[1] == of_one

    @pytest.mark.parametrize("scenario", ["equivalence", "aggregated", "gradients", "wrapping"])
    def test_weights_are_equal_on_all_ranks_after_every_batch(
        self, two: list[dict[str, Any]], scenario: str
    ) -> None:
        first, second = of(two, scenario)
        assert first["digests"] == second["digests"]
        assert len(set(first["digests"])) > 1


class TestGradients:
    def test_a_window_applies_the_mean_over_ranks_and_batches(
        self, two: list[dict[str, Any]]
    ) -> None:
        for rank in of(two, "gradients"):
            assert [report["applied"] for report in rank["metrics"]] == [4.0, 4.0]

    def test_only_update_batches_send_gradients(self, two: list[dict[str, Any]]) -> None:
        for rank in of(two, "communication"):
            (calls, sent), (fewer_calls, less_sent) = rank[1], rank[4]
            assert (calls, fewer_calls) == (8, 2)
            assert sent == 4 * less_sent


class TestCallbacks:
    def test_hooks_run_on_the_ranks_of_the_contract(self, two: list[dict[str, Any]]) -> None:
        chief, other = ([entry[1] for entry in log] for log in of(two, "trace"))
        saved = ["state_dict", "on_checkpoint_save_start", "on_checkpoint_write_end"]
        batch = ["on_training_workload_end", *saved, "on_checkpoint_upload_end"]
        validation = ["start", "epoch_start", "epoch_end", "end"]
        assert chief == [
            "on_trial_startup",
            "on_training_start",
            "on_training_epoch_start",
            *batch,
            "on_training_epoch_end",
            *batch,
            *(f"on_validation_{name}" for name in validation),
            "on_trial_shutdown",
        ]
        assert other == [hook for hook in chief if hook not in saved]

    def test_all_ranks_get_the_chiefs_values(self, two: list[dict[str, Any]]) -> None:
        chief, other = of(two, "trace")
        shared = ("on_training_workload_end", "on_validation_end", "on_checkpoint_upload_end")
        for hook in shared:
            found = [[entry[2:] for entry in log if entry[1] == hook] for log in (chief, other)]
            assert repr(found[0]) == repr(found[1])

    def test_validation_outputs_are_the_ranks_own(self, two: list[dict[str, Any]]) -> None:
        outputs = [
            [entry[2] for entry in log if entry[1] == "on_validation_epoch_end"][0]
            for log in of(two, "trace")
        ]
        assert [len(of_rank) for of_rank in outputs] == [2, 2]
        assert outputs[0] != outputs[1]


class TestValidation:
    @pytest.mark.parametrize(("records", "mean"), [(2, 0.5), (6, 2.5), (8, 3.5)])
    def test_shards_may_be_uneven_or_empty(
        self, two: list[dict[str, Any]], records: int, mean: float
    ) -> None:
        for rank in of(two, "validation"):
            metrics = rank[f"{records} records"]
            assert metrics["ids"] == pytest.approx(mean)
            assert metrics["in_order"] == [[i, i + 1] for i in range(0, records, 2)]

    def test_all_ranks_validate_with_the_chiefs_buffers(self, two: list[dict[str, Any]]) -> None:
        probes = {
            float(rank[f"{records} records"]["probe"])
            for rank in of(two, "validation")
            for records in (2, 6, 8)
        }
        assert len(probes) == 1

    def test_the_chief_evaluates_a_whole_dataset_with_batch_norm(
        self, two: list[dict[str, Any]]
    ) -> None:
        first, second = of(two, "validation")
        assert first["full"]["ids"] == second["full"]["ids"] == 12
        assert first["digests"] == second["digests"]


class TestMetrics:
    def test_every_kind_is_averaged_as_on_one_rank(self, two: list[dict[str, Any]]) -> None:
        for rank in of(two, "metrics"):
            (report,) = rank["all"]
            assert [report[name] for name in ("number", "vector", "text")] == [1.5, 2.0, None]
            assert [report[name] for name in ("sometimes", "never", "truth")] == [4.0, None, 0.5]
            assert report["per_batch"][0]["vector"].tolist() == [1.5, 2.5]

    def test_there_may_be_none(self, two: list[dict[str, Any]]) -> None:
        for rank in of(two, "metrics"):
            assert rank["none"] == [{"batches": 2, "epochs": 0, "per_batch": [{}, {}]}]


class TestWrapping:
    def test_frozen_models_are_equal_and_not_distributed(self, two: list[dict[str, Any]]) -> None:
        first, second = of(two, "wrapping")
        assert first["teacher"] == second["teacher"]
        assert first["teacher_type"] == "Linear"


class TestGroups:
    def test_a_group_needs_no_launcher(self, two: list[dict[str, Any]]) -> None:
        first, second = of(two, "without_launcher")
        assert [first["ranks"], second["ranks"]] == [(0, 2, 0, 2, 1), (1, 2, 1, 2, 1)]
        assert first["digests"] == second["digests"]


class TestStopping:
    def test_one_rank_may_ask(self, two: list[dict[str, Any]]) -> None:
        first, second = of(two, "stopping")
        assert 3 <= first["asked"] == second["asked"] <= 103

    @pytest.mark.parametrize("ranks", [(1,), (0, 1)])
    def test_a_signal_to_any_rank_stops_all(
        self, two: list[dict[str, Any]], ranks: tuple[int, ...]
    ) -> None:
        first, second = of(two, "stopping")
        assert first[ranks] == second[ranks] == 143
        assert first["resumed"] == second["resumed"]
        assert 0 < len(first["resumed"]) < 400


class TestResuming:
    @pytest.mark.parametrize("aggregation", [1, 2])
    def test_two_ranks_resume_bit_for_bit(
        self, two: list[dict[str, Any]], aggregation: int
    ) -> None:
        for rank in of(two, "resuming"):
            unbroken = rank[f"unbroken {aggregation}"]
            assert rank[f"resumed {aggregation}"].ends_like(unbroken)

    def test_buffers_of_a_rank_survive_inside_a_window(self, two: list[dict[str, Any]]) -> None:
        for rank in of(two, "buffers"):
            assert rank[3] == rank[None]

    def test_one_rank_continues_on_two(
        self, one: dict[str, Any], two: list[dict[str, Any]]
    ) -> None:
        first, second = of(two, "across_sizes")
        assert_close(first["weights"], one["whole"]["weights"])
        assert sorted(first["seen"] + second["seen"]) == sorted(one["whole"]["seen"][24:])

    def test_two_ranks_continue_on_four(
        self, one: dict[str, Any], four: list[dict[str, Any]]
    ) -> None:
        for rank in four:
            assert_close(rank["from two"]["weights"], one["whole"]["weights"])
        seen = [i for rank in four for i in rank["from two"]["seen"]]
        assert sorted(seen) == sorted(one["whole"]["seen"][24:])

    def test_an_open_window_keeps_its_mean_on_more_ranks(
        self, one: dict[str, Any], four: list[dict[str, Any]]
    ) -> None:
        for rank in four:
            assert_close(rank["from two aggregated"]["weights"], one["whole aggregated"]["weights"])

    @pytest.mark.parametrize("aggregation", [1, 2])
    def test_two_ranks_continue_on_one(
        self,
        one: dict[str, Any],
        two: list[dict[str, Any]],
        storage: Path,
        tmp_path: Path,
        aggregation: int,
    ) -> None:
        shutil.copytree(storage / f"from-two-{aggregation}", tmp_path / "source")
        for batches, paths in checkpoints(tmp_path / "source").items():
            if batches > 3:  # of four ranks, if they came first
                for path in paths:
                    shutil.rmtree(path)
        found = ranked.continued(tmp_path, "source", aggregation)
        wanted = one["whole" if aggregation == 1 else "whole aggregated"]
        assert_close(found["weights"], wanted["weights"])
        assert found["seen"] == wanted["seen"][24:]


class TestCheckpoints:
    def test_one_of_two_ranks_loads_without_ranks(
        self, two: list[dict[str, Any]], storage: Path
    ) -> None:
        (path,) = checkpoints(storage / "equivalence-1")[10]
        trial = pytorch.load_trial_from_checkpoint_path(str(path), trial_class=ranked.NetTrial)
        assert isinstance(trial, ranked.NetTrial)
        assert_close(trial.weights(), of(two, "equivalence")[0]["weights"])
