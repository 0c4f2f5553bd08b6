"""A replay is compared with rows and hashes, and the nearest one that differs is named."""

from __future__ import annotations

import math
from typing import Any

from determined._contracts.replay_check import Row, check_replay
from determined._contracts.tensor_hashes import TensorHashes


def row(steps: int, loss: float, batches: list[float] | None = None) -> dict[str, Any]:
    each = None if batches is None else [{"loss": value} for value in batches]
    metrics = {"loss": loss, "batches": steps, "new": 1}
    return {
        "kind": "metrics",
        "group": "training",
        "steps": steps,
        "metrics": metrics,
        "batches": each,
    }


def saved(steps: int, **tensors: str) -> dict[str, Any]:
    return {"kind": "checkpoint", "steps": steps, "hashes": hashes(**tensors).to_record()}


def hashes(**tensors: str) -> TensorHashes:
    return TensorHashes({name.replace("_", "/"): value * 16 for name, value in tensors.items()})


_ROWS = {
    ("training", 10): Row({"loss": 1.5}, [{"loss": 1.0}, {"loss": 2.0}]),
    ("training", 20): Row({"loss": math.nan}),
}


def test_what_equals_the_record_is_identical_through_the_last_batch() -> None:
    replayed = [
        row(10, 1.5, [1.0, 2.0]),
        saved(10, models_0_w="a"),
        row(15, 9.0),
        row(20, math.nan),
    ]
    found = check_replay(5, 23, replayed, _ROWS, {10: hashes(models_0_w="a")})
    assert str(found) == "identical through batch 23 (2 rows and 1 checkpoint compared)"


def test_a_row_that_differs_is_named_with_its_batch() -> None:
    found = check_replay(5, 20, [row(10, 1.25, [1.0, 1.5]), row(20, 3.0)], _ROWS, {})
    assert found.through == 5
    assert found.departure == (
        "the training row at batch 10 has loss 1.25 where 1.5 is recorded, first in batch 9"
    )


def test_a_tensor_that_differs_is_named_weights_first() -> None:
    replayed = [row(10, 1.5), saved(12, callbacks_a="a", models_0_w="a")]
    found = check_replay(5, 20, replayed, _ROWS, {12: hashes(callbacks_a="b", models_0_w="b")})
    assert found.through == 10
    assert found.departure == "the checkpoint at batch 12 has another models/0/w, callbacks/a"


def test_callbacks_that_were_not_there_the_first_time_do_not_count() -> None:
    now = TensorHashes({"models/0/w": "a" * 16, "callbacks/with m:C": "b" * 16})
    replayed = [{"kind": "checkpoint", "steps": 12, "hashes": now.to_record()}]
    found = check_replay(5, 12, replayed, {}, {12: hashes(models_0_w="a")})
    assert found.departure is None
