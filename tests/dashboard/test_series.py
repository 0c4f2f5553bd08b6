"""Charts are truthful: every point counts, extremes stay, few points come exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined import journal
from determined.dashboard.series import MOST_BYTES, fitting_pixels, pack, smoothed
from determined.platform.homes.home import Home
from determined.store import Curve, CurveKey
from tests.dashboard.served import Served, read_series, served
from tests.store.homes import a_home, report

_POINTS = 50_000
_SPIKE = 31_234


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A trial with many points: a spike, NaN and infinities among them; another with few."""
    path = tmp_path_factory.mktemp("long") / "home"
    with a_home(path) as home:
        run = home.new_run(home.new_trial())
        values = [math.sin(n / 500) for n in range(_POINTS)]
        values[_SPIKE], values[7], values[9] = 77.0, math.nan, math.inf
        for first in range(0, _POINTS, 1000):
            batches = [{"loss": value} for value in values[first : first + 1000]]
            epoch: dict[str, Any] = {"epochs": (first + 1000) / 10_000}
            home.ingest(run, report(first + 1000, "training", batches, loss=float(first), **epoch))
            home.ingest(run, report(first + 1000, "validation", error=1 / (first + 1)))
        few = home.new_run(home.new_trial())
        odd: list[dict[str, Any]] = [{"na;me:%": n / 10} for n in range(1, 20)]
        home.ingest(few, *(report(n, "odd group:;", **m) for n, m in enumerate(odd, start=1)))
        big = home.new_run(home.new_trial())
        home.ingest(big, *(report(n, loss=1.7e9 + n) for n in range(1, 3000)))
    with served(Home(path)) as shown:
        yield shown


def test_no_point_is_dropped_silently(long: Served) -> None:
    head, (columns,) = long.series(keys="1:training:loss:batches", px=300)
    (series,) = head["series"]
    assert series["kind"] == "bands"
    assert series["total"] == head["total_points"] == _POINTS == sum(columns["count"])
    assert series["n"] <= 300
    assert max(v for v in columns["max"] if math.isfinite(v)) == 77.0
    assert math.inf in columns["max"]
    place = columns["max"].index(77.0)
    assert abs(columns["x"][place] - _SPIKE) < _POINTS / 200
    assert all(
        low <= mean <= high
        for low, mean, high in zip(columns["min"], columns["mean"], columns["max"], strict=True)
        if math.isfinite(mean)
    )
    assert columns["x"] == sorted(columns["x"])


def test_zooming_in_gives_exact_points(long: Served) -> None:
    head, (columns,) = long.series(
        **{"keys": "1:training:loss:batches", "from": _SPIKE - 50, "to": _SPIKE + 50, "px": 800}
    )
    assert head["series"][0]["kind"] == "points"
    assert columns["x"] == [float(n) for n in range(_SPIKE - 50, _SPIKE + 51)]
    assert columns["y"][51] == 77.0
    assert columns["y"][50] == pytest.approx(math.sin((_SPIKE - 1) / 500))


def test_what_was_not_a_number_arrives_as_it_was(long: Served) -> None:
    _, (columns,) = long.series(keys="1:training:loss:batches", to=12)
    assert math.isnan(columns["y"][7])
    assert columns["y"][9] == math.inf


@pytest.mark.parametrize(
    ("x", "last"),
    [("steps", _POINTS), ("epochs", 5.0), ("metric:training.epochs", 5.0), ("wall", 51_000.0)],
)
def test_any_axis_orders_the_points(long: Served, x: str, last: float) -> None:
    head, (columns,) = long.series(keys="1:training:loss", x=x)
    assert head["x"] == x
    assert head["series"][0]["n"] == 50
    assert columns["x"][-1] == last
    assert columns["y"] == [float(n) for n in range(0, _POINTS, 1000)]


def test_epochs_of_another_group_are_found(long: Served) -> None:
    _, (columns,) = long.series(keys="1:validation:error", x="epochs")
    assert columns["x"][-1] == 5.0


def test_names_may_hold_any_character(long: Served) -> None:
    key = "2:odd%20group%3A%3B:na%3Bme%3A%25"
    head, (one, other) = long.series(keys=f"{key};1:training:loss")
    assert [series["key"] for series in head["series"]] == [key, "1:training:loss"]
    assert one["y"] == [n / 10 for n in range(1, 20)]
    assert len(other["y"]) == 50


def test_what_does_not_exist_is_empty(long: Served) -> None:
    head, rows = long.series(keys="99:training:loss;1:training:nope;1:nope:loss:batches")
    assert [series["n"] for series in head["series"]] == [0, 0, 0]
    assert rows[0] == {"x": [], "y": []}


def test_large_numbers_with_small_differences_keep_them(long: Served) -> None:
    head, (columns,) = long.series(keys="3:training:loss", px=100)
    assert head["series"][0]["columns"][1] == {"name": "min", "type": "f8", "offset": 800}
    assert columns["min"][0] == 1.7e9 + 1


def test_smoothing_goes_over_all_points(long: Served) -> None:
    _, (columns,) = long.series(keys="1:training:loss", smooth=0.9)
    expected, kept, weight = [], 0.0, 0.0
    for value in columns["y"]:
        kept, weight = 0.9 * kept + 0.1 * value, 0.9 * weight + 0.1
        expected.append(kept / weight)
    assert columns["smooth"] == pytest.approx(expected)


def test_many_curves_stay_below_half_a_megabyte(long: Served) -> None:
    keys = ";".join(["1:training:loss:batches"] * 50)
    answer = long.client.get("/api/series", params={"keys": keys, "px": 4000, "smooth": 0.5})
    assert len(answer.content) < 500_000
    head, _ = read_series(answer.content)
    assert all(series["total"] == _POINTS for series in head["series"])


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"keys": ""},
        {"keys": "1"},
        {"keys": "1:a"},
        {"keys": "x:a:b"},
        {"keys": "1:a:b:c"},
        {"keys": "1::b"},
        {"keys": ";".join(["1:a:b"] * 501)},
        {"keys": "1:a:b", "px": 0},
        {"keys": "1:a:b", "smooth": 1},
        {"keys": "1:a:b", "x": "time"},
        {"keys": "1:a:b", "from": "x"},
    ],
)
def test_odd_questions_for_curves_are_refused(long: Served, query: dict[str, Any]) -> None:
    assert long.client.get("/api/series", params=query).status_code == 422


def test_a_restarted_trial_shows_one_history(tmp_path: Path) -> None:
    with a_home(tmp_path / "home") as home:
        trial = home.new_trial()
        home.ingest(home.new_run(trial), *(report(n, loss=float(n)) for n in range(1, 11)))
        again = home.new_run(home.trial(trial.id), steps_completed=5)
        home.ingest(again, *(report(n, loss=float(-n)) for n in range(6, 9)))
    with served(Home(tmp_path / "home")) as shown:
        _, (columns,) = shown.series(keys=f"{trial.id}:training:loss")
    assert columns["y"] == [1.0, 2.0, 3.0, 4.0, 5.0, -6.0, -7.0, -8.0]


_floats = st.floats(-1e6, 1e6)


@given(values=st.lists(_floats, max_size=60), smoothing=st.floats(0, 0.999))
def test_smoothed_values_stay_between_the_extremes(values: list[float], smoothing: float) -> None:
    means = np.asarray(values)
    found = smoothed(means, np.ones(len(values)), smoothing)
    assert len(found) == len(values)
    if values and smoothing > 0:
        assert found.min() >= means.min() - 1e-6
        assert found.max() <= means.max() + 1e-6


@given(
    value=_floats,
    counts=st.lists(st.integers(1, 1000), min_size=1),
    smoothing=st.floats(0.01, 0.99),
)
def test_a_constant_curve_is_its_own_average(
    value: float, counts: list[int], smoothing: float
) -> None:
    found = smoothed(np.full(len(counts), value), np.asarray(counts), smoothing)
    assert found == pytest.approx(value)


@given(
    columns=st.lists(
        st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=20), max_size=4
    )
)
def test_what_is_packed_is_read_back(columns: list[list[float]]) -> None:
    curves = [_exact(values) for values in columns]
    keys = [f"{n}:a:ä" for n in range(len(curves))]
    head, rows = read_series(pack(keys, curves, "steps", 0.0))
    assert [series["key"] for series in head["series"]] == keys
    assert head["total_points"] == sum(map(len, columns))
    for values, row in zip(columns, rows, strict=True):
        assert np.array_equal(values, row["y"], equal_nan=True)


def _exact(values: list[float]) -> Curve:
    x, y = np.arange(len(values)), np.asarray(values, "f8")
    ones = np.ones(len(values), "i8")
    key = CurveKey(1, "a", "b")
    return Curve(key, True, len(values), x, x, y, y, y, y, ones, np.isnan(y).astype("i8"))


@given(pixels=st.integers(1, 4000), curves=st.integers(1, 500))
def test_the_budget_is_shared_fairly(pixels: int, curves: int) -> None:
    found = fitting_pixels(pixels, curves)
    assert found <= max(pixels, 24)
    assert found == pixels or found * curves * 32 <= max(MOST_BYTES, 24 * curves * 32)


def test_records_of_a_journal_need_no_batches() -> None:
    assert journal.BatchColumns.of([]).count == 0


@pytest.mark.parametrize("name", ["loss (train)", "it's!", "a*b", "x:y;z", "\u00e4/~-_."])
def test_keys_come_back_as_browsers_write_them(name: str) -> None:
    """A page finds its curves by the key that it asked for: that of `encodeURIComponent`."""
    from determined.dashboard.api.series import text_of

    written = "".join(
        c if c in "!'()*~-_." or c.isascii() and c.isalnum() else quote(c) for c in name
    )
    assert text_of(CurveKey(1, "training", name)) == f"1:training:{written.replace('/', '%2F')}"
