"""What ranks say of a checkpoint that they save together."""

from __future__ import annotations

from typing import Any

import pytest

from determined.core._checkpoint_shards import merge_metadata

NAN = float("nan")


@pytest.mark.parametrize("ranks", [[{"a": {"loss": NAN}}, {}], [{"a": {"loss": NAN}}] * 2])
def test_a_metric_that_is_not_a_number_is_no_conflict(ranks: list[dict[str, Any]]) -> None:
    merged, conflicts = merge_metadata(ranks)
    assert conflicts == {}
    assert merged["a"]["loss"] != merged["a"]["loss"]


def test_values_that_differ_are_one() -> None:
    assert merge_metadata([{"a": 1.0}, {"a": NAN}])[1] == {"/a": [0, 1]}
