"""The helpers that users import from `determined.util`."""

from __future__ import annotations

import enum
import functools
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined import util
from determined.common.check import CheckFailedError
from determined.errors import InvalidExperimentException


@pytest.mark.parametrize(
    ("values", "average"),
    [
        ([1, 2], 1.5),
        ([True, False], 0.5),
        ([None, 4], 4.0),
        ([None, None], None),
        (["x", "y"], None),
        ([np.array([1, 2]), np.array([3])], None),
        ([np.array([1.0, 2.0]), np.array([3.0, 4.0])], 2.5),
        ([np.float32(1), np.array(2.0)], 1.5),
        ([{"a": 1}, {"a": 2}], None),
        ([math.inf, 1.0], math.inf),
    ],
)
def test_metrics_are_averaged_where_there_is_an_average(
    values: list[Any], average: float | None
) -> None:
    batches = [{"m": value} for value in values]
    made = util.make_metrics(None, batches)
    assert made == {"batch_metrics": batches, "avg_metrics": {"m": average}}
    assert type(made["avg_metrics"]["m"]) in (float, type(None))


def test_opposite_infinities_average_to_nan_quietly() -> None:
    made = util.make_metrics(None, [{"m": math.inf}, {"m": -math.inf}])
    assert math.isnan(made["avg_metrics"]["m"])


def test_record_count_appears_only_if_known() -> None:
    assert util.make_metrics(3, []) == {"batch_metrics": [], "avg_metrics": {}, "num_inputs": 3}


def test_batches_with_other_metrics_are_refused_by_name() -> None:
    with pytest.raises(CheckFailedError, match=r"batch 0 has \['a'\], batch 1 has \['b'\]"):
        util.make_metrics(None, [{"a": 1}, {"b": 1}])


@given(wanted=st.integers(1, 10_000), slots=st.integers(0, 64))
def test_batch_sizes_fit_the_slots(wanted: int, slots: int) -> None:
    hparams = {"global_batch_size": wanted}
    if wanted < slots:
        with pytest.raises(InvalidExperimentException, match="at least the number of slots"):
            util.calculate_batch_sizes(hparams, slots, "T")
        return
    per_slot, effective = util.calculate_batch_sizes(hparams, slots, "T")
    assert effective == per_slot * max(slots, 1)
    assert 0 <= wanted - effective < max(slots, 1)


def test_rounded_batch_size_warns(caplog: pytest.LogCaptureFixture) -> None:
    assert util.calculate_batch_sizes({"global_batch_size": 10}, 4, "T") == (2, 8)
    assert "2 per slot, 8 in total" in caplog.text


@pytest.mark.parametrize("hparams", [{}, {"global_batch_size": 2.5}, {"global_batch_size": True}])
def test_missing_or_fractional_batch_size_is_refused(hparams: dict[str, Any]) -> None:
    with pytest.raises(InvalidExperimentException, match="global_batch_size"):
        util.calculate_batch_sizes(hparams, 1, "T")


class Base:
    def hook(self) -> None: ...

    def other(self) -> None: ...


def test_overriding_is_seen_even_under_the_same_class_name() -> None:
    original = Base

    def subclass(base: type) -> type:
        class Base(base):  # type: ignore[misc]  # a dynamic base class
            def hook(self) -> None: ...

        return Base

    child = subclass(original)()
    assert util.is_overridden(child.hook, original)
    assert not util.is_overridden(child.other, original)
    assert not util.is_overridden(original.hook, original)


def test_overriding_by_assignment_counts_and_by_a_value_does_not() -> None:
    changed: Any = Base()
    changed.hook = functools.partial(print)
    changed.other = 3
    assert util.is_overridden(changed.hook, Base)
    assert not util.is_overridden(changed.other, Base)


def decorated(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


class Trial:
    def new(self, batch: Any, batch_idx: int) -> None: ...

    def old(self, batch: Any) -> None: ...

    def renamed(self, batch: Any, i: int) -> None: ...

    def anything(self, *args: Any) -> None: ...

    wrapped_old = decorated(old)
    wrapped_new = decorated(new)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("new", True),
        ("old", False),
        ("renamed", True),
        ("anything", True),
        ("wrapped_old", False),
        ("wrapped_new", True),
    ],
)
def test_parameters_are_found_by_name_or_position(method: str, expected: bool) -> None:
    assert util.has_param(getattr(Trial(), method), "batch_idx", 2) is expected


def test_member_functions_are_callable_or_none() -> None:
    trial = Trial()
    assert util.get_member_func(trial, "new") == trial.new
    assert util.get_member_func(trial, "absent") is None
    assert util.get_member_func(trial, "__dict__") is None


@pytest.mark.parametrize("value", [1, 1.5, True, np.float32(1), np.int8(1), np.array(2.0)])
def test_numbers_are_numerical_scalars(value: Any) -> None:
    assert util.is_numerical_scalar(value)


@pytest.mark.parametrize("value", ["1", None, 1j, np.array([1.0]), np.array("x"), [1], np.str_("")])
def test_anything_else_is_not(value: Any) -> None:
    assert not util.is_numerical_scalar(value)


def test_timing_line_has_counts_and_rates() -> None:
    line = util.make_timing_log("validated", 2.0, 123456, 4)
    for part in ("validated", "123456 records", "2s", "61728 records/s", "4 batches", "2 batches/"):
        assert part in line
    assert "inf records/s" in util.make_timing_log("validated", 0.0, 1, 1)


class Colour(enum.Enum):
    RED = 1


class Custom:
    def __json__(self) -> Any:
        return {"inner": math.nan}


def test_json_is_strict_whatever_comes_in() -> None:
    value = {
        "nan": math.nan,
        "inf": [math.inf, -math.inf],
        "array": np.array([1.0, np.nan]),
        "scalar": np.int64(3),
        "enum": Colour.RED,
        "custom": Custom(),
        "tuple": (1, None, True),
    }
    assert json.loads(util.json_encode(value)) == {
        "nan": "NaN",
        "inf": ["Infinity", "-Infinity"],
        "array": [1.0, "NaN"],
        "scalar": 3,
        "enum": "RED",
        "custom": {"inner": "NaN"},
        "tuple": [1, None, True],
    }


_plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(_plain_json)
def test_plain_json_round_trips(value: Any) -> None:
    assert json.loads(util.json_encode(value)) == value


def test_unknown_objects_are_no_json() -> None:
    with pytest.raises(TypeError, match="object"):
        util.json_encode({"a": object()})


def test_trees_are_removed(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    util.rmtree_nfs_safe(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    with pytest.raises(FileNotFoundError):
        util.rmtree_nfs_safe(tmp_path / "a")


def test_removal_failures_may_be_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    util.rmtree_nfs_safe(tmp_path / "absent", ignore_errors=True)
    assert "Could not remove" in caplog.text


def test_removal_failures_may_go_to_a_function(tmp_path: Path) -> None:
    seen: list[Any] = []
    util.rmtree_nfs_safe(tmp_path / "absent", onerror=lambda *args: seen.append(args))
    ((function, path, (kind, _, _)),) = seen
    assert (function, path, kind) == (shutil.rmtree, str(tmp_path / "absent"), FileNotFoundError)
    util.rmtree_nfs_safe(
        tmp_path / "absent", ignore_errors=True, onerror=lambda *args: seen.append(args)
    )
    assert len(seen) == 1


def test_a_symlink_takes_the_place_of_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    (tmp_path / "empty").mkdir()
    for link in ("link", "b", "empty"):
        util.force_create_symlink(tmp_path / "a", tmp_path / link)
        util.force_create_symlink(tmp_path / "a", tmp_path / link)
        assert (tmp_path / link).is_symlink()
        assert (tmp_path / link).read_text() == "a"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(OSError, match="full"):
        util.force_create_symlink(tmp_path / "a", tmp_path / "full")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "empty", "full", "link"]


def test_dictionaries_are_merged_at_every_depth() -> None:
    base = {"a": 1, "in": {"x": 1, "y": {"z": 1}}, "list": [1]}
    merged = util.merge_dicts(base, {"in": {"y": {"w": 2}, "x": 3}, "list": [2], "b": 2})
    assert merged == {"a": 1, "in": {"x": 3, "y": {"z": 1, "w": 2}}, "list": [2], "b": 2}
    assert base == {"a": 1, "in": {"x": 1, "y": {"z": 1}}, "list": [1]}


class _Blob:
    """A blob whose first downloads fail."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def download_as_bytes(self) -> bytes:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("reset")
        return b"data"


def test_a_blob_is_downloaded_again_after_errors() -> None:
    assert util.download_gcs_blob_with_backoff(_Blob(2), max_backoff=0) == b"data"
    with pytest.raises(ConnectionError, match="reset"):
        util.download_gcs_blob_with_backoff(_Blob(2), n_retries=2, max_backoff=0)
